"""The time and memory of many configurations of a family on one mesh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tessel_core.control import Control
from tessel_core.errors import InputError
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

NOT_REACHED = "the sweep was stopped before its turn"
_TIMED_AT_ONCE = 2048
"""Configurations whose orders are timed together; a stop waits for them."""


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
    """Return the result of each configuration; those that are not reached when `control` stops say so.

    Configurations are timed by blocks of layers (`block_engine.py`).  Every operation is simulated under DistIR's
    semantics, without overlap, where transfers share an uplink, on a mesh of unequal devices or links, and for orders
    that run two copies of the network.

    Raises InputError for semantics that know no sharing of links.
    """
    check_semantics(semantics.compat, link_sharing=link_sharing)
    control = Control() if control is None else control
    evaluator = _Evaluator(family, mesh, semantics, overlap, link_sharing and mesh.node_uplink is not None)
    found = [StrategyResult(float("nan"), (), NOT_REACHED)] * len(configurations)
    waiting, alone = list[tuple[int, Staged]](), list[int]()
    for i, each in enumerate(configurations):
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
        if len(waiting) >= _TIMED_AT_ONCE:
            _time(waiting, found)
            waiting = []
    _time(waiting, found)
    for i in alone:
        if control.stopped:
            return found
        found[i] = evaluator.alone(configurations[i])
    return found


def evaluate_quickly(family: Family, asked: Configuration, mesh: DeviceMesh) -> StrategyResult | None:
    """Return the result by the default semantics with overlap, of a configuration that can be.

    One rank is simulated for all at its place of the pipeline, operation by operation where that takes seconds, else by
    blocks.  None where devices or links of the mesh differ.
    """
    return confirmed(family, asked, mesh) or evaluate(family, [asked], mesh)[0] if nodes_of(mesh) is not None else None


def confirmed(family: Family, asked: Configuration, mesh: DeviceMesh, most: int = 4000) -> StrategyResult | None:
    """Return the result of every operation of one rank for each place of the pipeline.

    None where more than `most` layers would be simulated, counted once for each micro-batch, or the mesh has unequal
    devices or links.
    """
    evaluator = _Evaluator(family, mesh, Semantics.DEFAULT, overlap=True, link_sharing=False)
    return evaluator.alone(asked) if evaluator.by_places and simulated_layers(asked) <= most else None


def simulated_layers(asked: Configuration) -> int:
    """Return the number of layers, counted once for each micro-batch, that a simulation of one rank takes."""
    few = _few(asked)
    return asked.spec.layers * (sum(few) if few else asked.strategy.micro_batches)


def _time(waiting: Sequence[tuple[int, Staged]], found: list[StrategyResult]) -> None:
    """Put the results of configurations at their places."""
    results = timed([staged for _, staged in waiting])
    for (i, _), result in zip(waiting, results, strict=True):
        found[i] = result


_FEW = (1, 2, 3)
"""How often few micro-batches fill the pipeline, besides once for each stage of a device."""
_WORTH = 2
"""How many times more micro-batches there are than the most of the few."""
_STRAIGHT = 1e-3
"""Relative distance of three points from a line."""


def _few(asked: Configuration) -> tuple[int, ...]:
    """Return the few numbers of micro-batches that may say the time of more; empty where they do not."""
    strategy = asked.strategy
    few = tuple(strategy.pipeline * (times + strategy.stages_per_device) for times in _FEW)
    return few if strategy.schedule in BASELINES and strategy.micro_batches >= _WORTH * few[-1] else ()


class _Evaluator:
    def __init__(
        self, family: Family, mesh: DeviceMesh, semantics: Semantics, overlap: bool, link_sharing: bool
    ) -> None:
        self._family, self._mesh, self._semantics = family, mesh, semantics
        self._overlap, self._link_sharing = overlap, link_sharing
        self.by_places = semantics is Semantics.DEFAULT and not link_sharing and nodes_of(mesh) is not None
        """Whether one rank stands for all that do the same."""
        self._room = least_room(mesh)
        self._engines: dict[Spec, BlockEngine] = {}
        self._latest: dict[bool, BlockTable] = {}

    def has_blocks(self, each: Configuration) -> bool:
        """Whether a configuration is timed by blocks."""
        return self.by_places and self._overlap and each.strategy.form.copies == 1

    def staged(self, each: Configuration) -> Staged | StrategyResult:
        """Return the stages of a configuration, or the result that says why it has none."""
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
        """Simulate every operation of a configuration, of one rank for all where they do the same."""
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
        """Return the result from those of fewer micro-batches; None where each more does not add as much.

        Published orders repeat once the pipeline is full, so times and peaks lie on a line.  Three numbers of
        micro-batches, multiples of the places as interleaving needs them, say whether they do.
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
        if not np.allclose(one + slope * (second - first), two, rtol=_STRAIGHT):
            return None
        last = three + slope * (strategy.micro_batches - third)
        ends, peaks = last[:place].tolist(), [round(peak) for peak in last[place:].tolist()]
        return self._outcome_of_places(each, ends, peaks)

    def _one_rank(self, each: Configuration, trace: Trace) -> StrategyResult:
        return self._outcome_of_places(each, list(trace.device_end), list(trace.peak_memory))

    def _outcome_of_places(self, each: Configuration, ends: list[float], peaks: list[int]) -> StrategyResult:
        """Return the result of all ranks from one for each place of the pipeline."""
        held = tuple(peaks)
        reason = shortage(self._ranks(each).spread(held), self._mesh) if max(held) > self._room else ""
        return StrategyResult(max(ends), held, reason, tuple(ends))

    def _ranks(self, each: Configuration) -> Ranks:
        return each.strategy.ranks(self._semantics)
