"""Many configurations of a family on one mesh: those that share a structure at once, the others one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.model import DeviceMesh
from tessel_core.scheduling import BASELINES
from tessel_core.simulation.costs import MeshCosts
from tessel_core.simulation.simulator import check_semantics
from tessel_core.simulation.trace import Trace, shortage
from tessel_core.strategies.amounts import Amounts, Bytes, CostTable, Seconds, Sizes
from tessel_core.strategies.families import ExampleFamily, Family, Spec
from tessel_core.strategies.layers import Structure, structure_of
from tessel_core.strategies.orders import LOOP, IssueOrder, issue_order
from tessel_core.strategies.overlapped import evaluate_streams
from tessel_core.strategies.places import Places, nodes_of, places_of
from tessel_core.strategies.ranks import Ranks
from tessel_core.strategies.strategy import Semantics, Strategy, simulate_places, simulate_strategy, why_not

NOT_REACHED = "the sweep was stopped before its turn"


@dataclass(frozen=True, slots=True)
class Configuration:
    """A network's sizes and how it is spread."""

    spec: Spec
    strategy: Strategy
    micro_batch_size: int | None = None
    """Samples, where these were asked for instead of the number of micro-batches, which may not come out even."""

    @property
    def objection(self) -> str:
        """Why its batch does not come out as micro-batches of the size asked for; empty where it does."""
        size, replicas = self.micro_batch_size, self.strategy.data
        if size is None or size * replicas * self.strategy.micro_batches == self.spec.batch:
            return ""
        return f"a batch of {self.spec.batch} does not divide among {replicas} replicas into micro-batches of {size}"


@dataclass(frozen=True, slots=True)
class StrategyResult:
    """The result of one configuration; where nothing was simulated times are NaN and peaks empty."""

    latency: float
    """Seconds of one step."""
    peaks: tuple[int, ...]
    """Bytes that the devices of each place in the pipeline hold at most."""
    reason: str
    """Why it is infeasible, as one sentence; empty where it is not."""
    ends: tuple[float, ...] = ()
    """Seconds until the devices of each place in the pipeline are done."""


_MOST_AT_ONCE = 256
"""Configurations: with more, arrays grow faster than calls become fewer."""
_MOST_LAYERS = 100_000
"""Layers times micro-batches that are evaluated at once; each takes some 200 bytes.  A stop waits
for them: about a second of work, and four times as many are no faster."""


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
    """The outcome of each; those that are not reached when `control` stops say so.

    Under DistIR's semantics, without overlap, and where transfers share an uplink, every configuration is simulated
    operation by operation.  Raises InputError for semantics that know no sharing.
    """
    check_semantics(semantics.compat, link_sharing=link_sharing)
    control = Control() if control is None else control
    evaluator = _Evaluator(family, mesh, semantics, overlap, link_sharing and mesh.node_uplink is not None)
    found = [StrategyResult(float("nan"), (), NOT_REACHED)] * len(configurations)
    groups: dict[Hashable, list[_Member]] = defaultdict(list)
    alone = list[int]()
    for i, each in enumerate(configurations):
        if control.stopped:
            return found
        reason = each.objection or why_not(family, each.spec, each.strategy, mesh, semantics)
        if reason:
            found[i] = StrategyResult(float("nan"), (), reason)
        elif (places := evaluator.places(each)) is None:
            alone.append(i)
        else:
            groups[evaluator.key(each)].append(_Member(i, each, places))
    for every in groups.values():
        for members in _at_once(every):
            if control.stopped:
                return found
            for member, outcome in zip(members, evaluator.together(members), strict=True):
                found[member.number] = outcome
    for i in alone:
        if control.stopped:
            return found
        found[i] = evaluator.alone(configurations[i])
    return found


def evaluate_quickly(family: Family, asked: Configuration, mesh: DeviceMesh) -> StrategyResult | None:
    """The outcome without a simulation of every operation; None where groups lie too differently for that.

    It is that of the operation-by-operation simulation, by the default semantics with overlap.
    """
    evaluator = _Evaluator(family, mesh, Semantics.DEFAULT, overlap=True, link_sharing=False)
    places = evaluator.places(asked)
    if places is not None:
        return evaluator.together([_Member(0, asked, places)])[0]
    return evaluator.alone(asked) if evaluator.by_places else None


@dataclass(frozen=True, slots=True)
class _Member:
    """One of those that are evaluated together."""

    number: int
    """Its place among all configurations."""
    asked: Configuration
    places: Places


def _at_once(every: Sequence[_Member]) -> Iterator[Sequence[_Member]]:
    """Split the members into parts of like numbers of micro-batches."""
    ordered = sorted(every, key=lambda each: each.asked.strategy.micro_batches)
    most = ordered[-1].asked
    room = _MOST_LAYERS // (most.spec.layers * most.strategy.micro_batches)
    step = max(1, min(_MOST_AT_ONCE, room))
    return (ordered[i : i + step] for i in range(0, len(ordered), step))


_FEW = (1, 2, 3)
"""How often few micro-batches fill the pipeline, besides once for each stage of a device."""
_WORTH = 2
"""How many times more micro-batches there are than the most of the few."""
_STRAIGHT = 1e-3
"""Relative distance of three points from a line."""


class _Evaluator:
    def __init__(
        self, family: Family, mesh: DeviceMesh, semantics: Semantics, overlap: bool, link_sharing: bool
    ) -> None:
        self._family, self._mesh, self._semantics = family, mesh, semantics
        self._overlap, self._link_sharing = overlap, link_sharing
        self._exampled = family if isinstance(family, ExampleFamily) else None
        self._together = semantics is Semantics.DEFAULT and overlap and not link_sharing
        self._tables = {training: CostTable(MeshCosts(mesh, training=training)) for training in (False, True)}
        self._nodes = nodes_of(mesh)
        limits = [device.memory_capacity for device in mesh.devices]
        self._examples: dict[Spec, Spec] = {}
        self._alike: dict[Structure, int] = {}
        self._structural_keys: dict[Hashable, int] = {}
        self._limits = np.array([np.inf if limit is None else limit for limit in limits])

    def key(self, each: Configuration) -> Hashable:
        """A key that all configurations evaluated together share."""
        structure = self._structure(each)
        if structure not in self._alike:
            structural_key = tuple(stage.structural_key for stage in structure.stages)
            self._alike[structure] = self._structural_keys.setdefault(structural_key, len(self._structural_keys))
        return self._alike[structure], each.strategy.schedule, each.strategy.stages_per_device

    def places(self, each: Configuration) -> Places | None:
        """The places of its groups; None where it is simulated operation by operation."""
        strategy, exampled = each.strategy, self._exampled
        if not strategy.plain or exampled is None or not exampled.has_example(each.spec):
            return None
        if not self._together or self._nodes is None or strategy.form != LOOP or not self._order(each).in_turn:
            return None
        return places_of(self._nodes, self._ranks(each), strategy.stages_per_device > 1)

    def _structure(self, each: Configuration) -> Structure:
        spec, strategy, family = each.spec, each.strategy, self._exampled
        assert family is not None, "configurations of other families go one by one"
        example = self._examples.get(spec)
        if example is None:
            example = self._examples[spec] = family.example(spec, spec.layers)
        sharded, several = strategy.tensor > 1, strategy.micro_batches > 1
        return structure_of(family, example, sharded, strategy.recompute, strategy.stages, several)

    def _order(self, each: Configuration) -> IssueOrder:
        training, strategy = self._family.optimizer(each.spec) is not None, each.strategy
        shape = strategy.pipeline, strategy.micro_batches, training, strategy.stages_per_device
        return issue_order(strategy.schedule, *shape)

    def together(self, members: Sequence[_Member]) -> list[StrategyResult]:
        """Evaluate configurations of one key."""
        some = [each.asked for each in members]
        training = self._family.optimizer(some[0].spec) is not None
        amounts = Amounts(self._tables[training], tuple(map(self._sizes, some)), tuple(each.places for each in members))
        try:
            counts = {each.strategy.micro_batches: each for each in some}
            orders = {count: self._order(each) for count, each in counts.items()}
            return self._outcomes(some, *evaluate_streams([self._structure(each) for each in some], orders, amounts))
        except InputError as error:
            if len(members) == 1:
                return [StrategyResult(float("nan"), (), str(error))]
            return [outcome for each in members for outcome in self.together([each])]

    def _outcomes(self, members: Sequence[Configuration], end: Seconds, peak: Bytes) -> list[StrategyResult]:
        """Only those whose memory may not do are looked at device by device."""
        latency, peaks = end.max(axis=0).tolist(), peak.T
        tight = peaks.max(axis=1) > self._limits.min()
        outcomes = list[StrategyResult]()
        for i, each in enumerate(members):
            held = tuple(peaks[i].tolist())
            reason = shortage(self._ranks(each).spread(held), self._mesh) if tight[i] else ""
            outcomes.append(StrategyResult(latency[i], held, reason, tuple(end[:, i].tolist())))
        return outcomes

    @property
    def by_places(self) -> bool:
        """Whether one rank stands for all that do the same."""
        return self._semantics is Semantics.DEFAULT and not self._link_sharing and self._nodes is not None

    def alone(self, each: Configuration) -> StrategyResult:
        """Simulate one configuration operation by operation, one rank for all where they do the same."""
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
        """The outcome from those of fewer micro-batches, where each more adds as much; None where it does not.

        Published orders repeat once the pipeline is full, so times and peaks lie on a line.  Three numbers of
        micro-batches, multiples of the places as interleaving needs them, say whether they do.
        """
        strategy, place = each.strategy, each.strategy.pipeline
        few = [place * (times + strategy.stages_per_device) for times in _FEW]
        if strategy.schedule not in BASELINES or strategy.micro_batches < _WORTH * few[-1]:
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
        """What the places of a pipeline are for all of their ranks."""
        held = tuple(peaks)
        tight = max(held) > self._limits.min()
        reason = shortage(self._ranks(each).spread(held), self._mesh) if tight else ""
        return StrategyResult(max(ends), held, reason, tuple(ends))

    def _ranks(self, each: Configuration) -> Ranks:
        return each.strategy.ranks(self._semantics)

    def _sizes(self, each: Configuration) -> Sizes:
        spec, strategy = each.spec, each.strategy
        rows = spec.batch // (strategy.data * strategy.micro_batches)
        shares = strategy.data if strategy.zero else 1
        assert self._exampled is not None
        numbers = self._exampled.numbers(spec, rows, strategy.tensor)
        bucket = max(1, strategy.bucket_bytes)
        return Sizes(numbers, strategy.data, spec.dtype, strategy.micro_batches, bucket, shares)
