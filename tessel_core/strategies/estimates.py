"""Estimate step times and memory of strategies, so that a search can begin with strategies that are probably fast.

For each kind of recomputation and each number of devices that share experts, the block engine computes the costs of one
stage with all layers, for the smallest and the largest micro-batch. An estimate interpolates between these costs and
divides them by the degrees of parallelism. Estimates only decide the order of the search and prove nothing. The search
still computes a bound or the time of every configuration.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessel_core.errors import InputError
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.ir.transforms.expansion import DATA, REPLICAS
from tessel_core.strategies.block_engine import BlockEngine
from tessel_core.strategies.evaluation import Configuration
from tessel_core.strategies.families import Spec
from tessel_core.strategies.strategy import Strategy

_WITHIN_NODE, _ACROSS_NODES = 0.04, 0.4
"""Estimated communication time as a fraction of a layer's time: within a node, and across nodes.

The fraction counts once per doubling of the number of devices that divide the layer.
"""


@dataclass(frozen=True, slots=True)
class _Whole:
    """Costs of all layers on one device, for micro-batches of one size."""

    seconds: float
    """Seconds of a micro-batch without adding gradients."""
    adding: float
    """Seconds to add the gradients of a micro-batch."""
    held: float
    """Bytes of a micro-batch between its forward and its backward."""
    running: float
    """Bytes that the running micro-batch needs besides `held`."""
    parts: tuple[float, float, float]
    """Bytes of weights, gradients and the optimizer's state."""

    def between(self, other: _Whole, share: float) -> _Whole:
        """Return the costs at a share of the way to those of another micro-batch."""
        names = "seconds", "adding", "held", "running"
        found = {name: (1 - share) * getattr(self, name) + share * getattr(other, name) for name in names}
        return replace(self, **found)


class Estimates:
    """Estimates strategies of one network, whose micro-batches have `fewest` to `most` samples."""

    def __init__(self, engine: BlockEngine, spec: Spec, devices: int, fewest: int, most: int) -> None:
        self._engine, self._spec, self._devices = engine, spec, devices
        self._fewest, self._most = fewest, most
        self._node = max(Counter(each.node for each in engine.table.mesh.devices).values())
        self._known: dict[tuple[Recompute, int, int], _Whole | None] = {}

    def ordered(self, every: Sequence[Strategy], room: float) -> list[Strategy]:
        """Return the strategies that probably fit into `room` bytes, those with the shortest steps first."""
        found = list[tuple[float, int, int]]()
        for number, each in enumerate(every):
            try:
                found += [(seconds, each.micro_batches, number) for seconds in self._seconds(each, room)]
            except InputError:  # The mesh has different kinds of devices at one position of the pipeline.
                continue
        return [every[number] for *_, number in sorted(found)]

    def _seconds(self, strategy: Strategy, room: float) -> list[float]:
        """Return a list with the estimated seconds of a step, or an empty list if the strategy probably does not fit.

        Raises InputError in the cases of `Wiring.classes`.
        """
        whole, alone = self._whole(strategy, strategy.expert), self._whole(strategy, 1)
        if whole is None or alone is None:
            return []
        sharing, devices = strategy.tensor * strategy.context, strategy.pipeline
        own = [_own(*both, strategy) / devices for both in zip(whole.parts, alone.parts, strict=True)]
        replicas = strategy.data * strategy.context
        in_flight = min(strategy.micro_batches, devices)
        held = whole.held * in_flight / devices + whole.running
        shared = [each / (strategy.tensor * devices * replicas) for each in alone.parts]
        static = sum(shared[i] if strategy.zero >= least else own[i] for i, least in enumerate((3, 2, 1)))
        if static + held / sharing > room:
            return []
        inside = min(sharing, self._node)
        talking = _WITHIN_NODE * math.log2(inside) + _ACROSS_NODES * math.log2(sharing / inside)
        work = whole.seconds / sharing * (1 + talking)
        runs = strategy.micro_batches + (devices - 1) / strategy.stages_per_device
        adding = alone.adding * (shared[1] if strategy.zero > 1 else own[1]) / alone.parts[1] if alone.parts[1] else 0.0
        return [runs * max(work / devices + adding, self._exchanging(strategy, own))]

    def _exchanging(self, strategy: Strategy, own: Sequence[float]) -> float:
        """Return the seconds per micro-batch in which replicas gather weights and scatter gradients.

        These transfers overlap with computation.
        """
        if not strategy.scatters_at_once:
            return 0.0
        wiring, over = self._engine.table.wiring(strategy), REPLICAS if strategy.context > 1 else DATA
        weights, gradients = map(round, own[:2])
        gather = 2 * wiring.collective(0, "allgather", over, weights) if strategy.zero == 3 else 0.0
        return gather + wiring.collective(0, "reduce_scatter", over, gradients)

    def _whole(self, strategy: Strategy, expert: int) -> _Whole | None:
        """Return the costs of all layers on one of `expert` devices that share experts; None if that is impossible."""
        rows = self._spec.batch // (strategy.data * strategy.micro_batches)
        key = strategy.recompute, expert, rows
        if key not in self._known:
            ends = [self._simulated(strategy.recompute, expert, each) for each in (self._fewest, self._most)]
            share = (rows - self._fewest) / max(1, self._most - self._fewest)
            few, many = ends
            self._known[key] = None if few is None or many is None else few.between(many, share)
        return self._known[key]

    def _simulated(self, recompute: Recompute, expert: int, rows: int) -> _Whole | None:
        # With two micro-batches, gradients stay in memory between them and so count as static memory.
        usual = Strategy(self._devices, micro_batches=2, recompute=recompute, expert=expert)
        spec = self._engine.table.family.with_batch(self._spec, 2 * self._devices * rows)
        return self._engine.table.once(("estimate", usual, rows), lambda: self._one_stage(Configuration(spec, usual)))

    def _one_stage(self, asked: Configuration) -> _Whole | None:
        try:
            stage = self._engine.staged(asked).stages[0]
        except InputError:
            return None
        running = max(stage.peak) - stage.held
        return _Whole(sum(stage.seconds[:3]), stage.seconds[3], stage.held, running, stage.parts)


def _own(shared: float, alone: float, strategy: Strategy) -> float:
    """Return the bytes of one device of those that share tensors and experts.

    `alone` are the bytes if experts are not shared, and `shared` those if the strategy's devices share them.
    """
    if strategy.expert == 1:
        return alone / strategy.tensor
    experts = (alone - shared) / (strategy.expert - 1)
    return (shared - experts) / strategy.tensor + experts
