"""Rough step times and memory of strategies, by which a search begins with those that are likely good.

One stage with all layers is taken from the block engine for each kind of recomputation; degrees divide it.  Nothing is
proved by these numbers: they order configurations, and every one of them is bounded or timed all the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tessel_core.errors import InputError
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.ir.transforms.expansion import DATA, REPLICAS
from tessel_core.strategies.block_engine import BlockEngine
from tessel_core.strategies.evaluation import Configuration
from tessel_core.strategies.families import Spec
from tessel_core.strategies.stages import StageCosts
from tessel_core.strategies.strategy import Strategy

_WITHIN_NODE, _ACROSS_NODES = 0.04, 0.4
"""Share of the time of a layer that its communication takes, for each time that the devices that share it double."""


class Estimates:
    """Estimates of strategies of one network for micro-batches of `rows` samples and more."""

    def __init__(self, engine: BlockEngine, spec: Spec, devices: int, rows: int) -> None:
        self._engine, self._batch, self._rows = engine, spec.batch, rows
        # With two micro-batches gradients stay from one to the next, so they count as static memory.
        self._spec = engine.table.family.with_batch(spec, 2 * devices * rows)
        self._usual = Strategy(devices, micro_batches=2)
        self._node = max(Counter(each.node for each in engine.table.mesh.devices).values())
        self._known: dict[Recompute, StageCosts | None] = {}

    def promising(self, every: Sequence[Strategy], room: float, most: int) -> list[Strategy]:
        """At most so many of the strategies, those that likely fit into `room` bytes and are likely fast first."""
        found = list[tuple[float, int, int]]()
        for number, each in enumerate(every):
            try:
                found += [(seconds, each.micro_batches, number) for seconds in self._seconds(each, room)]
            except InputError:  # ranks that do not lie like this on the mesh
                continue
        return [every[number] for *_, number in sorted(found)[:most]]

    def _seconds(self, strategy: Strategy, room: float) -> list[float]:
        """The seconds of a step; none where it likely does not fit.  Raises InputError as `Wiring`."""
        whole = self._whole(strategy.recompute)
        if whole is None:
            return []
        sharing, devices = strategy.tensor * strategy.context, strategy.pipeline
        apart = _apart(strategy)
        samples = self._batch // (strategy.data * strategy.micro_batches) / self._rows
        in_flight = min(strategy.micro_batches, devices)
        held = whole.held * in_flight / devices + max(whole.peak) - whole.held
        static = sum(each / part for each, part in zip(whole.parts, apart, strict=True)) / devices
        if static + held * samples / sharing > room:
            return []
        inside = min(sharing, self._node)
        talking = _WITHIN_NODE * math.log2(inside) + _ACROSS_NODES * math.log2(sharing / inside)
        work = sum(whole.seconds[:3]) * samples / sharing * (1 + talking)
        runs = strategy.micro_batches + (devices - 1) / strategy.stages_per_device
        run = (work + whole.seconds[3] / apart[1]) / devices
        return [runs * max(run, self._exchanging(strategy, whole))]

    def _exchanging(self, strategy: Strategy, whole: StageCosts) -> float:
        """Seconds in which replicas gather weights and scatter gradients of one micro-batch, beside its computation."""
        if not strategy.scatters_at_once:
            return 0.0
        wiring, over = self._engine.table.wiring(strategy), REPLICAS if strategy.context > 1 else DATA
        parts = strategy.tensor * strategy.pipeline * strategy.expert
        weights, gradients = (round(each / parts) for each in whole.parts[:2])
        gather = 2 * wiring.collective(0, "allgather", over, weights) if strategy.zero == 3 else 0.0
        return gather + wiring.collective(0, "reduce_scatter", over, gradients)

    def _whole(self, recompute: Recompute) -> StageCosts | None:
        """All layers on one device; None where it cannot be."""
        if recompute not in self._known:
            try:
                asked = Configuration(self._spec, replace(self._usual, recompute=recompute))
                self._known[recompute] = self._engine.staged(asked).stages[0]
            except InputError:
                self._known[recompute] = None
        return self._known[recompute]


def _apart(strategy: Strategy) -> list[int]:
    """Devices that share the weights of a layer, the gradients and the optimizer's state; most weights are experts'."""
    replicas = strategy.data * strategy.context
    shared = [max(strategy.expert, replicas if strategy.zero >= least else 1) for least in (3, 2, 1)]
    return [strategy.tensor * each for each in shared]
