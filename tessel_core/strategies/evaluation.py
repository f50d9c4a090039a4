"""Evaluate the time and memory of many configurations of one family on one mesh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.ir.builder import collection_paused
from tessel_core.model import DeviceMesh
from tessel_core.scheduling import BASELINES
from tessel_core.simulation.simulator import check_semantics
from tessel_core.simulation.trace import Trace, shortage
from tessel_core.strategies.block_engine import BlockEngine, Staged, least_room, timed
from tessel_core.strategies.blocks import BlockTable
from tessel_core.strategies.configuration import Configuration, StrategyResult
from tessel_core.strategies.families import Family, Spec
from tessel_core.strategies.ranks import Ranks
from tessel_core.strategies.strategy import Semantics, simulate_places, simulate_strategy, why_not
from tessel_core.strategies.wiring import nodes_of

__all__ = (
    "NOT_REACHED",
    "Configuration",
    "StrategyResult",
    "confirmed",
    "evaluate",
    "evaluate_quickly",
    "simulated_layers",
)

NOT_REACHED = "the evaluation was stopped before this configuration"
_TIMED_AT_ONCE = 2048
"""Number of configurations whose times are computed together.

`control` can stop the evaluation only between such groups.
"""


def evaluate(
    family: Family,
    configurations: Sequence[Configuration],
    mesh: DeviceMesh,
    semantics: Semantics = Semantics.DEFAULT,
    control: Control | None = None,
    *,
    overlap: bool = True,
    link_sharing: bool = False,
) -> list[StrategyResult]:
    """Return the result of each configuration. If `control` stops, the remaining results have the reason `NOT_REACHED`.

    Times are computed from blocks of layers (`block_engine.py`). In these cases every operation is simulated instead:
    DistIR's semantics, no overlap, transfers that share an uplink, a mesh with different devices or links, and orders
    that run two copies of the network.

    Raises InputError if `link_sharing` is set but the semantics do not support it.
    """
    check_semantics(semantics.compat, link_sharing=link_sharing)
    control = Control() if control is None else control
    evaluator = _Evaluator(family, mesh, semantics, overlap, link_sharing and mesh.node_uplink is not None)
    found = [StrategyResult(float("nan"), (), NOT_REACHED)] * len(configurations)
    alone = list[int]()
    for first in range(0, len(configurations), _TIMED_AT_ONCE):
        waiting = list[tuple[int, Staged]]()
        with collection_paused():
            for i, each in enumerate(configurations[first : first + _TIMED_AT_ONCE], first):
                if control.stopped:
                    return found
                reason = each.objection or why_not(family, each.spec, each.strategy, mesh, semantics)
                if reason:
                    found[i] = StrategyResult(float("nan"), (), reason)
                elif not evaluator.has_blocks(each):
                    alone.append(i)
                else:
                    staged = evaluator.staged(each)
                    if isinstance(staged, StrategyResult):
                        found[i] = staged
                    else:
                        waiting.append((i, staged))
            _time(waiting, found)
    for i in alone:
        if control.stopped:
            return found
        found[i] = evaluator.alone(configurations[i])
    return found


def evaluate_quickly(family: Family, asked: Configuration, mesh: DeviceMesh) -> StrategyResult | None:
    """Return the result of a possible configuration under the default semantics, with overlap.

    One rank at each position of the pipeline is simulated in place of all ranks there. Every operation is simulated if
    that takes at most some seconds. Otherwise times are computed from blocks of layers. Return None if the mesh has
    different devices or links.
    """
    return confirmed(family, asked, mesh) or evaluate(family, [asked], mesh)[0] if nodes_of(mesh) is not None else None


def confirmed(family: Family, asked: Configuration, mesh: DeviceMesh, most: int = 4000) -> StrategyResult | None:
    """Return the result of simulating every operation, for one rank at each position of the pipeline.

    Return None if more than `most` layers would be simulated, counted once per micro-batch, or if the mesh has
    different devices or links.
    """
    evaluator = _Evaluator(family, mesh, Semantics.DEFAULT, overlap=True, link_sharing=False)
    return evaluator.alone(asked) if evaluator.by_places and simulated_layers(asked) <= most else None


def simulated_layers(asked: Configuration) -> int:
    """Return the number of layers that `confirmed` simulates. Each layer counts once per micro-batch."""
    few = _few(asked)
    return asked.spec.layers * (sum(few) if few else asked.strategy.micro_batches)


def _time(waiting: Sequence[tuple[int, Staged]], found: list[StrategyResult]) -> None:
    """Compute the times of the waiting configurations, and write each result to its position in `found`."""
    results = timed([staged for _, staged in waiting])
    for (i, _), result in zip(waiting, results, strict=True):
        found[i] = result


_EXTRA_FILLINGS = (1, 2, 3)
"""Each of the three small numbers of micro-batches is devices x (stages per device + one of these)."""
_MIN_EXTRAPOLATION = 2
"""Extrapolate only to at least this multiple of the largest simulated number of micro-batches."""
_LINE_TOLERANCE = 1e-3
"""Extrapolate only if three results differ from a line by at most this fraction."""


def _few(asked: Configuration) -> tuple[int, ...]:
    """Return three small numbers of micro-batches from which to extrapolate, or () if the order does not allow it."""
    strategy = asked.strategy
    few = tuple(strategy.pipeline * (times + strategy.stages_per_device) for times in _EXTRA_FILLINGS)
    return few if strategy.schedule in BASELINES and strategy.micro_batches >= _MIN_EXTRAPOLATION * few[-1] else ()


class _Evaluator:
    def __init__(
        self, family: Family, mesh: DeviceMesh, semantics: Semantics, overlap: bool, link_sharing: bool
    ) -> None:
        self._family, self._mesh, self._semantics = family, mesh, semantics
        self._overlap, self._link_sharing = overlap, link_sharing
        self.by_places = semantics is Semantics.DEFAULT and not link_sharing and nodes_of(mesh) is not None
        """Whether one rank is simulated in place of all ranks at its position of the pipeline."""
        self._room = least_room(mesh)
        self._engines: dict[Spec, BlockEngine] = {}
        self._latest: dict[bool, BlockTable] = {}

    def has_blocks(self, each: Configuration) -> bool:
        """Return whether the time of a configuration is computed from blocks."""
        return self.by_places and self._overlap and each.strategy.form.copies == 1

    def staged(self, each: Configuration) -> Staged | StrategyResult:
        """Return the stages of a configuration, or a result with the reason why it has none."""
        spec = self._family.with_batch(each.spec, 1)
        if spec not in self._engines:
            training = self._family.optimizer(spec) is not None
            table = BlockTable(self._family, spec, self._mesh, self._latest.get(training))
            self._latest[training] = table
            self._engines[spec] = BlockEngine(table)
        try:
            return self._engines[spec].staged(each)
        except InputError as error:
            return StrategyResult(float("nan"), (), str(error))

    def alone(self, each: Configuration) -> StrategyResult:
        """Return the result of simulating every operation.

        With `by_places`, one rank per position of the pipeline is simulated.
        """
        try:
            asked = self._family, each.spec, each.strategy, self._mesh, self._semantics
            if self.by_places:
                return self._of_few(each) or self._one_rank(each, self._places_trace(each))
            found = simulate_strategy(*asked, overlap=self._overlap, link_sharing=self._link_sharing)
        except InputError as error:
            return StrategyResult(float("nan"), (), str(error))
        ranks, trace = self._ranks(each), found.trace
        peaks, ends = [0] * each.strategy.pipeline, [0.0] * each.strategy.pipeline
        for worker, peak, end in zip(trace.devices, trace.peak_memory, trace.device_end, strict=True):
            place = ranks.coordinate(worker, "pipeline")
            peaks[place], ends[place] = max(peaks[place], peak), max(ends[place], end)
        return StrategyResult(trace.latency, tuple(peaks), found.shortage, tuple(ends))

    def _places_trace(self, each: Configuration) -> Trace:
        return simulate_places(self._family, each.spec, each.strategy, self._mesh, overlap=self._overlap)

    def _of_few(self, each: Configuration) -> StrategyResult | None:
        """Return a result that is extrapolated from fewer micro-batches. None if their results do not lie on a line.

        A published order repeats once the pipeline is full, so every further micro-batch adds the same time. Three
        numbers of micro-batches show whether times and peaks lie on a line. They are multiples of the pipeline's
        length, because interleaved orders need this.
        """
        strategy, place, few = each.strategy, each.strategy.pipeline, _few(each)
        if not few:
            return None
        rows = each.spec.batch // strategy.micro_batches
        found = []
        for count in few:
            spec = self._family.with_batch(each.spec, rows * count)
            trace = self._places_trace(Configuration(spec, replace(strategy, micro_batches=count)))
            found.append(np.array([*trace.device_end, *trace.peak_memory], float))
        (one, two, three), (first, second, third) = found, few
        slope = (three - two) / (third - second)
        if not np.allclose(one + slope * (second - first), two, rtol=_LINE_TOLERANCE):
            return None
        last = three + slope * (strategy.micro_batches - third)
        ends, peaks = last[:place].tolist(), [round(peak) for peak in last[place:].tolist()]
        return self._outcome_of_places(each, ends, peaks)

    def _one_rank(self, each: Configuration, trace: Trace) -> StrategyResult:
        return self._outcome_of_places(each, list(trace.device_end), list(trace.peak_memory))

    def _outcome_of_places(self, each: Configuration, ends: list[float], peaks: list[int]) -> StrategyResult:
        """Return the result of all ranks. `ends` and `peaks` are those of one rank at each position of the pipeline."""
        held = tuple(peaks)
        reason = shortage(self._ranks(each).spread(held), self._mesh) if max(held) > self._room else ""
        return StrategyResult(max(ends), held, reason, tuple(ends))

    def _ranks(self, each: Configuration) -> Ranks:
        return each.strategy.ranks(self._semantics)
