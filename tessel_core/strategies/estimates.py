"""Estimate step times and memory of strategies, so that a search can begin with strategies that are probably fast.

For each kind of recomputation, the block engine computes the costs of one stage with all layers. An estimate divides
these costs by the degrees of parallelism. Estimates only decide the order of the search and prove nothing. The search
still computes a bound or the time of every configuration.
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
"""Estimated communication time as a fraction of a layer's time: within a node, and across nodes.

The fraction counts once per doubling of the number of devices that divide the layer.
"""


class Estimates:
    """Estimates strategies of one network from the costs of a micro-batch of `rows` samples."""

    def __init__(self, engine: BlockEngine, spec: Spec, devices: int, rows: int) -> None:
        self._engine, self._batch, self._rows = engine, spec.batch, rows
        # With two micro-batches, gradients stay in memory between them. So they count as memory of the whole step.
        self._spec = engine.table.family.with_batch(spec, 2 * devices * rows)
        self._usual = Strategy(devices, micro_batches=2)
        self._node = max(Counter(each.node for each in engine.table.mesh.devices).values())
        self._known: dict[Recompute, StageCosts | None] = {}

    def promising(self, every: Sequence[Strategy], room: float, most: int) -> list[Strategy]:
        """Return up to `most` strategies that probably fit into `room` bytes, shortest estimated step first."""
        found = list[tuple[float, int, int]]()
        for number, each in enumerate(every):
            try:
                found += [(seconds, each.micro_batches, number) for seconds in self._seconds(each, room)]
            except InputError:  # The mesh has different kinds of devices at one position of the pipeline.
                continue
        return [every[number] for *_, number in sorted(found)[:most]]

    def _seconds(self, strategy: Strategy, room: float) -> list[float]:
        """Return a list with the estimated seconds of a step, or an empty list if the strategy probably does not fit.

        Raises InputError in the cases of `Wiring.classes`.
        """
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
        """Return the seconds per micro-batch in which replicas gather weights and scatter gradients.

        These transfers overlap with computation.
        """
        if not strategy.scatters_at_once:
            return 0.0
        wiring, over = self._engine.table.wiring(strategy), REPLICAS if strategy.context > 1 else DATA
        parts = strategy.tensor * strategy.pipeline * strategy.expert
        weights, gradients = (round(each / parts) for each in whole.parts[:2])
        gather = 2 * wiring.collective(0, "allgather", over, weights) if strategy.zero == 3 else 0.0
        return gather + wiring.collective(0, "reduce_scatter", over, gradients)

    def _whole(self, recompute: Recompute) -> StageCosts | None:
        """Return the costs of one stage with all layers. None if such a stage is impossible."""
        if recompute not in self._known:
            try:
                asked = Configuration(self._spec, replace(self._usual, recompute=recompute))
                self._known[recompute] = self._engine.staged(asked).stages[0]
            except InputError:
                self._known[recompute] = None
        return self._known[recompute]


def _apart(strategy: Strategy) -> list[int]:
    """Return three numbers of devices: those among which weights, gradients and optimizer state are divided.

    The numbers assume that most weights belong to experts.
    """
    replicas = strategy.data * strategy.context
    shared = [max(strategy.expert, replicas if strategy.zero >= least else 1) for least in (3, 2, 1)]
    return [strategy.tensor * each for each in shared]
