"""The dynamic program with replicated stages, each on one or several interchangeable devices.

    best[n][I] = min over classes c, numbers r of devices of c in n, ideals I' within I of
                 max(best[n less r of c][I'], load of I less I' on each of r devices)

A group is a set of operators that must share a device. A split gives each group a device. An ideal I is a set of groups
that contains all predecessors of its members. A class has interchangeable devices. n has the number of devices of each
class in use. best[n][I] is the least largest load of stages with the groups of I on these devices.

Each of r replicas has 1/r of the stage's times and transfers. The time to reduce the stage's gradients is added to the
work. If reductions overlap work, the maximum of the two times counts instead. [Tarnawski et al., NeurIPS 2020,
extension to replication; Harlap et al., PipeDream, 2018, for chains] Replicas are accelerators of the same kind and
capacity on which the same operators are allowed. A stage on a host has no replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain, islice, product
from math import ldexp
from typing import cast

import numpy as np

from tessel_core.control import Control
from tessel_core.costs.reductions import GroupReductions, ReductionTime
from tessel_core.model import Placement, PlacementReport, Replication, Status
from tessel_core.placement.answer import answer, answer_split, infeasible
from tessel_core.placement.bounds import highest_load
from tessel_core.placement.chain import Chains, ChainSearch, Counts, FoldOf, Stage, best_of, fewer
from tessel_core.placement.groups import (
    coarse_pipeline,
    contracted_operators,
    group_gradients,
    held_bytes,
    kept_further,
    nets_of,
    pipeline_of,
    sums_of,
)
from tessel_core.placement.ideals import Bits, Ideals, sums_over
from tessel_core.placement.pipeline import Best, Floats, Pipeline, Split, within_memory
from tessel_core.placement.problem import PlacementProblem
from tessel_core.placement.rebalance import evenest
from tessel_core.placement.rescaling import largest, near, rescaled
from tessel_core.placement.shortage import devices_text, in_flight_text, least_bytes, of_memory, pins, too_large
from tessel_core.placement.steps import MAX_KEPT_PAIRS, Fold, Rows, StageLoads, Steps

ReductionOf = Callable[[Stage], ReductionTime]
"""Function from a stage to the time to reduce gradients over the devices of the stage."""
FREE = ReductionTime(0.0, 0.0)


class ReplicaLoads(StageLoads):
    """Loads of one replica of the stages between pairs of ideals, including the time to reduce gradients."""

    def __init__(
        self, pipeline: Pipeline, ideals: Ideals, gradients: Floats, time: ReductionTime, *, overlapped: bool
    ) -> None:
        super().__init__(pipeline, ideals)
        self._gradients, self._time, self._overlapped = gradients, time, overlapped

    def work(self, kind: int, sources: Rows, targets: Rows, position: int = 1) -> Floats:
        """Return the times of the stages with their reductions of gradients, shaped (targets, sources)."""
        work = super().work(kind, sources, targets, position)
        amount = np.subtract.outer(self._gradients[targets], self._gradients[sources])
        reduction = np.where(amount > 0, self._time.latency + amount * self._time.per_byte, 0.0)
        return np.maximum(work, reduction) if self._overlapped else work + reduction


class ReplicaSearch(ChainSearch):
    """A search for the chain of least largest load, with one or several devices of a class per stage.

    The state of a chain has the number of devices of each class in use. If the memory of a stage depends on its
    position, the state also has the number of stages so far. A complete chain always ends with the largest possible
    number. So a chain of fewer stages starts with a number above 0, as if it had empty stages before the others.
    """

    def __init__(self, chains: ReplicatedChains, bits: Bits) -> None:
        ideals = Ideals.of(chains.pipeline, bits, chains.priced.work)
        super().__init__(chains.pipeline, ideals, chains.priced)
        self._chains = chains
        self._most_stages = min(chains.pipeline.stages, len(chains.pipeline.members)) if chains.by_position else 0
        self._ideals_of = [ideals.costing(part) for part in chains.parts]
        self._gradients = sums_over(ideals.bits, chains.gradients[None, :])[0]

    @property
    def _end(self) -> Counts:
        return (*self._counts, self._most_stages)

    def _states(self) -> Iterator[Counts]:
        return product(*(range(count + 1) for count in self._end))

    def _begins(self, used: Counts) -> bool:
        return self._chains.by_position or not any(used)

    def _in_use(self, used: Counts) -> Counts:
        return used[:-1]

    def _position(self, used: Counts) -> int:
        return self._most_stages - used[-1] + 1

    def _last(self, used: Counts) -> Iterator[Stage]:
        if self._chains.by_position and not used[-1]:
            return
        before = fewer(used, len(self._counts), 1) if self._chains.by_position else used
        for kind, count in enumerate(self._in_use(used)):
            for replicas in range(1, min(count, self._chains.most_replicas[kind]) + 1):
                yield Stage(kind, replicas, fewer(before, kind, replicas))

    def _steps(self, rows: Rows, limit: float, fold: FoldOf) -> Callable[[Stage], Steps]:
        known: dict[tuple[int, ReductionTime], Steps] = {}

        def steps(stage: Stage) -> Steps:
            key = stage.replicas, self._chains.reduction(stage)
            if key not in known:
                known[key] = self._made(*key, rows, limit, fold(stage.replicas))
            return known[key]

        return steps

    def _made(self, replicas: int, time: ReductionTime, rows: Rows, limit: float, fold: Fold) -> Steps:
        part, ideals = self._chains.parts[replicas - 1], self._ideals_of[replicas - 1]
        loads = None
        if time != FREE and self._gradients[-1] > 0:
            loads = ReplicaLoads(part, ideals, self._gradients, time, overlapped=self._chains.overlapped)
        # At the same load, r replicas together do r times the work of one device.
        price = tuple(replicas * each for each in self._priced.price)
        priced, most_kept = replace(self._priced, price=price), MAX_KEPT_PAIRS // len(self._chains.parts)
        return Steps(part, ideals, priced, rows, limit, fold, loads, most_kept)


@dataclass(frozen=True)
class ReplicatedChains(Chains):
    """The chains of a pipeline with one or several devices of a class per stage."""

    parts: tuple[Pipeline, ...]
    """At index r - 1, the pipeline with the costs of one of r replicas.

    It does not support groups that exceed the memory.
    """
    gradients: Floats
    """Gradient bytes of each group, shaped (groups,)."""
    reduction: ReductionOf
    least: ReductionOf
    """Function from a stage to a lower bound on its reduction time, over any devices of its class."""
    overlapped: bool

    @cached_property
    def by_position(self) -> bool:
        """Whether the position of a stage affects the bytes that it holds, or its load if loads are bytes."""
        capacity = min(each.capacity for each in self.pipeline.classes)
        binds = self.pipeline.most_memory.sum() > capacity
        in_bytes = any(each.loads_are_bytes for each in self.pipeline.classes)
        return bool(self.pipeline.further_at(self.pipeline.stages) and (binds or in_bytes))

    @property
    def most_replicas(self) -> tuple[int, ...]:
        """Largest number of devices per stage, for each class."""
        return tuple(len(each.devices) if each.pays else 1 for each in self.pipeline.classes)

    @cached_property
    def bound(self) -> float:
        """Lower bound on the largest load:

        from the work spread over all devices, and from the least load of each group alone.
        """
        return max(self.priced.average, float(self._alone.max()))

    @property
    def _alone(self) -> Floats:
        """Least load of each group alone in a stage without transfers, shaped (groups,)."""
        least = np.full(len(self.gradients), np.inf)
        for stage in self._stages(first_only=True):
            work, time = self.parts[stage.replicas - 1].classes[stage.kind].time, self.least(stage)
            seconds = np.array([time.seconds(float(amount)) for amount in self.gradients])
            least = np.minimum(least, np.maximum(work, seconds) if self.overlapped else work + seconds)
        return least

    @property
    def highest(self) -> float:
        """Upper bound on the load of a stage: all work on one device, and the slowest reduction of all gradients."""
        total = float(self.gradients.sum())
        slowest = max(self.reduction(stage).seconds(total) for stage in self._stages())
        return highest_load(self.pipeline) + slowest

    def _stages(self, *, first_only: bool = False) -> Iterator[Stage]:
        """Yield a stage for each class, number of earlier devices, and number of replicas.

        With `first_only`, a stage always starts at the first device of its class.
        """
        none = (0,) * len(self.pipeline.classes)
        for kind, most in enumerate(self.most_replicas):
            for first in range(1 if first_only else most):
                for replicas in range(1, most - first + 1):
                    yield Stage(kind, replicas, fewer(none, kind, -first))

    def search(self, bits: Bits) -> ChainSearch:
        """Return the search over chains of the given ideals."""
        return ReplicaSearch(self, bits)

    @property
    def largest(self) -> float:
        """Largest time or cost of a single group or net."""
        return largest(self.pipeline)

    def measured(self, split: Split) -> Split:
        """Return the split with its load, which is the largest load of a stage."""
        return replace(split, load=max(map(self._load(split), sorted(set(split.device_of)))))

    def _load(self, split: Split) -> Callable[[int], float]:
        """Return a function from the first device of a stage to the stage's load."""
        sets = {devices[0]: devices for devices in split.replicas}
        on = np.array(split.device_of)

        def load(device: int) -> float:
            kind = next(i for i, each in enumerate(self.pipeline.classes) if device in each.devices)
            replicas = len(sets.get(device, (device,)))
            part = self.parts[replicas - 1]
            work = float(part.classes[kind].time[on == device].sum())
            crossed = (net.cost for net in part.nets if 0 < sum(on[list(net.groups)] == device) < len(net.groups))
            before = (self.pipeline.classes[kind].devices.index(device),) * len(self.pipeline.classes)
            time = self.reduction(Stage(kind, replicas, before))
            reduction = time.seconds(float(self.gradients[on == device].sum()))
            moved = sum(crossed) if part.classes[kind].pays else 0.0
            return moved + (max(work, reduction) if self.overlapped else work + reduction)

        return load

    def near(self, load: float, exponent: int) -> ReplicatedChains:
        """Return the chains with times in units of 2^exponent, without the groups that take longer than `load`."""

        def scaled(reduction_of: ReductionOf) -> ReductionOf:
            def scaled_time(stage: Stage) -> ReductionTime:
                time = reduction_of(stage)
                return ReductionTime(ldexp(time.latency, -exponent), ldexp(time.per_byte, -exponent))

            return scaled_time

        return replace(
            self,
            pipeline=near(self.pipeline, load * max(self.most_replicas), exponent),
            parts=tuple(near(part, load, exponent) for part in self.parts),
            reduction=scaled(self.reduction),
            least=scaled(self.least),
        )


def solve_replicated(
    problem: PlacementProblem, most_ideals: int, without: PlacementSearch, control: Control
) -> PlacementReport:
    """Return the report on the contiguous placement of least largest load, with one or several devices per stage.

    The search counts reductions and transfers over the fastest links, which gives a bound for every placement. If the
    split that it finds does not meet the bound, the report has the best of these placements:

    - the split itself;
    - the same stages, with the devices of each stage on few nodes;
    - a chain on the devices in their order;
    - pure data parallelism;
    - the placement of `without`, which has no replicas.
    """
    pipeline = pipeline_of(problem)
    chains = _chains(problem, pipeline, _least_over(problem, pipeline))
    if not np.any([part.supported for part in chains.parts], axis=(0, 1)).all():
        return _explained(problem, chains, most_ideals, control)
    best = rescaled(chains, None, lambda asked, beaten: best_of(asked, most_ideals, control, beaten))
    if not best.complete and not control.stopped:
        pipeline, best = _coarsely(problem, pipeline, best, most_ideals, control)
    apart = _are_kinds_apart(problem, pipeline)
    if best.split is None and best.complete and not apart:
        return _explained(problem, chains, most_ideals, control)
    reason = "the bound holds for the fastest links between any devices"
    if control.stopped and not best.complete:
        reason = "the time limit came before the proof"
    elif not best.complete:
        reason = f"there are more than {most_ideals:,} possible cuts"
    if apart:
        best = replace(best, bound=min(best.bound, chains.priced.average))
        reason = "the search considered only replicas with the same memory and the same allowed operators"
    report = answer_split(problem, pipeline, best, control, reason)
    if report.status is Status.PROVED_OPTIMAL:
        return _evened(problem, chains, pipeline, report, control)
    candidates = [report.solution, all_on_all(problem)]
    if best.split is not None:
        candidates.append(_packed(problem, pipeline, best.split))
    if not control.stopped:
        candidates.append(without(replace(problem, replication=None), control).solution)
        in_order = best_of(_chains(problem, pipeline, _in_order(problem, pipeline)), most_ideals, control)
        if in_order.split is not None:
            candidates.append(pipeline.placement(problem, in_order.split.device_of, in_order.split.replicas))
    placements = [problem.placement(each.assignment) for each in candidates if each is not None]
    valid = [each for each in placements if not problem.violations(each)]
    least = min(valid, key=problem.measure, default=None)
    return answer(problem, least, best.bound, reason, control, complete=best.complete)


def _evened(
    problem: PlacementProblem, chains: ReplicatedChains, pipeline: Pipeline, report: PlacementReport, control: Control
) -> PlacementReport:
    """Return the report with a placement of more even loads and the same objective, if there is one."""
    if report.solution is None or control.stopped or pipeline is not chains.pipeline:
        return report
    sets = [report.solution.assignment[members[0]] for members in pipeline.members]
    split = Split(float(report.objective or 0), tuple(devices[0] for devices in sets))
    even_split = evenest(chains, split, control)
    if even_split is None:
        return report
    even = pipeline.placement(problem, even_split.device_of, even_split.replicas)
    return replace(report, solution=even) if problem.measure(even) <= (report.objective or 0) else report


def _packed(problem: PlacementProblem, pipeline: Pipeline, split: Split) -> Placement:
    """Return the placement of a split, with the devices of each stage on few nodes.

    Stages with many devices come first. A stage gets devices of the node with the fewest free devices that are enough,
    or of several nodes if no node has enough.
    """
    mesh, sets, place = problem.transfers.mesh, {each[0]: each for each in split.replicas}, dict[int, tuple[int, ...]]()
    for each in pipeline.classes:
        nodes: dict[int, list[int]] = {}
        for device in each.devices:
            nodes.setdefault(0 if mesh is None else mesh.devices[device].node, []).append(device)
        stages = [sets.get(device, (device,)) for device in sorted(set(split.device_of) & set(each.devices))]
        for stage in sorted(stages, key=len, reverse=True):
            room = [free for free in nodes.values() if len(free) >= len(stage)]
            order = [min(room, key=len)] if room else sorted(nodes.values(), key=len, reverse=True)
            taken = tuple(islice(chain.from_iterable(order), len(stage)))
            place[stage[0]] = tuple(sorted(taken))
            for free in nodes.values():
                free[:] = [device for device in free if device not in taken]
    on = tuple(place[device][0] for device in split.device_of)
    return pipeline.placement(problem, on, tuple(place.values()))


def _coarsely(
    problem: PlacementProblem, pipeline: Pipeline, fine: Best, most_ideals: int, control: Control
) -> tuple[Pipeline, Best]:
    """Return a pipeline and its best split, for a problem with too many ideals.

    The pipeline has fewer groups: those without cost are merged into neighbours. If merged groups keep their memory,
    the result is a restriction of the problem. If merged groups hold no memory, the result is a
    relaxation. A split that meets the bound of
    the relaxation is optimal. If the known split `fine` is better, the result is `pipeline` with `fine`.
    """
    coarse = coarse_pipeline(problem, keep_memory=True)
    if len(coarse.members) == len(pipeline.members):
        return pipeline, fine
    restricted = best_of(_chains(problem, coarse, _least_over(problem, coarse)), most_ideals, control)
    relaxed = _chains(problem, coarse, _least_over(problem, coarse), contracted_operators(problem))
    bound = max(fine.bound, best_of(relaxed, most_ideals, control, restricted.split).bound)
    if restricted.split is None or (fine.split is not None and fine.split.load < restricted.split.load):
        return pipeline, Best(fine.split, bound, fine.split is not None)
    return coarse, Best(restricted.split, bound, True)


PlacementSearch = Callable[[PlacementProblem, Control], PlacementReport]


def all_on_all(problem: PlacementProblem) -> Placement | None:
    """Return pure data parallelism: every operator on all accelerators of the kind on which it is fastest.

    Return None if no kind of accelerator supports all operators. The placement may exceed the memory or break other
    rules.
    """
    by_kind: dict[str, list[int]] = {}
    for i, device in enumerate(problem.devices):
        if not device.is_host:
            by_kind.setdefault(device.kind, []).append(i)
    count = len(problem.graph.operators)
    able = (
        tuple(devices)
        for kind, devices in by_kind.items()
        if all(each.time_on(kind) is not None for each in problem.graph.operators)
    )
    return min((problem.placement((devices,) * count) for devices in able), key=problem.measure, default=None)


def _chains(
    problem: PlacementProblem, pipeline: Pipeline, reduction: _Reductions, light: frozenset[int] = frozenset()
) -> ReplicatedChains:
    """Build the chains with replicas. Operators in `light` count as if they held no memory."""
    replication = _replication(problem)
    most = max(len(each.devices) for each in pipeline.classes if each.pays or each is pipeline.classes[0])
    parts = tuple(within_memory(_part(problem, pipeline, r, reduction.choose, light)) for r in range(1, most + 1))
    return ReplicatedChains(
        pipeline,
        parts,
        group_gradients(problem, pipeline.members, light),
        reduction.time_of,
        _least_over(problem, pipeline).time_of,
        replication.overlapped,
    )


@dataclass(frozen=True)
class _Reductions:
    """Times of reductions in a search. For transfers, `choose` selects one cost from the costs of all links."""

    time_of: ReductionOf
    choose: Callable[[Iterable[float]], float]


def _least_over(problem: PlacementProblem, pipeline: Pipeline) -> _Reductions:
    """Return lower bounds:

    the least reduction time over any devices of the class, and transfers over the fastest links.
    """
    reductions = _group_reductions(problem)

    @cache
    def least(kind: int, replicas: int) -> ReductionTime:
        return FREE if replicas == 1 else reductions.least_time(pipeline.classes[kind].devices, replicas)

    return _Reductions(lambda stage: least(stage.kind, stage.replicas), min)


def _in_order(problem: PlacementProblem, pipeline: Pipeline) -> _Reductions:
    """Return the times of reductions over consecutive devices of a class, and of transfers over the slowest links."""
    reductions = _group_reductions(problem)

    def time_of(stage: Stage) -> ReductionTime:
        first = stage.before[stage.kind]
        devices = pipeline.classes[stage.kind].devices[first : first + stage.replicas]
        return FREE if len(devices) == 1 else reductions.time_of(devices)

    return _Reductions(time_of, max)


def _replication(problem: PlacementProblem) -> Replication:
    assert problem.replication is not None, "the problem asks for replicas"
    return problem.replication


def _group_reductions(problem: PlacementProblem) -> GroupReductions:
    return cast(GroupReductions, _replication(problem).reductions)


def _part(
    problem: PlacementProblem,
    pipeline: Pipeline,
    replicas: int,
    choose: Callable[[Iterable[float]], float],
    light: frozenset[int] = frozenset(),
) -> Pipeline:
    """Return the pipeline with the costs of one of `replicas` replicas. `choose` is as in `_Reductions`.

    Operators in `light` count as if they held no memory.
    """
    holds = np.array([i not in light for i in range(len(problem.graph.operators))], dtype=np.float64)
    memory = sums_of(pipeline.members, held_bytes(problem, replicas) * holds)
    kept = sums_of(pipeline.members, kept_further(problem, replicas) * holds)
    classes = tuple(
        replace(each, time=each.time / replicas, backward=each.backward / replicas) for each in pipeline.classes
    )
    costs = problem.transfers.loads(problem.graph, choose, replicas)
    known = {net.groups: net for net in nets_of(problem, pipeline.members, costs)}
    nets = tuple(known.get(net.groups, replace(net, cost=0.0, backward=0.0)) for net in pipeline.nets)
    return replace(pipeline, memory=memory, kept=kept, classes=classes, nets=nets)


def _are_kinds_apart(problem: PlacementProblem, pipeline: Pipeline) -> bool:
    """Return whether devices of one kind are in several classes. The search never puts such devices into one stage."""
    kinds = [problem.devices[each.devices[0]].kind for each in pipeline.classes if each.pays]
    return len(set(kinds)) < len(kinds)


def _explained(
    problem: PlacementProblem, chains: ReplicatedChains, most_ideals: int, control: Control
) -> PlacementReport:
    """Return the report on a problem without a placement, with the least memory that would be enough if known."""
    pipeline = chains.pipeline
    whole = of_memory(problem, pipeline)
    numbers = range(1, len(chains.parts) + 1)
    parts = tuple(of_memory(problem, _part(problem, pipeline, replicas, min)) for replicas in numbers)
    nothing = np.zeros(len(pipeline.members))
    in_bytes = ReplicatedChains(whole, parts, nothing, lambda stage: FREE, lambda stage: FREE, overlapped=False)
    held = best_of(in_bytes, most_ideals, control)
    least = least_bytes(held.split.load, held.bound) if held.split is not None and held.complete else None
    limited = any(device.memory_capacity is not None for device in problem.accelerators)
    room = "have room for no" if limited else "can be given no"
    reason = f"{devices_text(problem, of_memory=limited)} {room} stages that follow the flow, replicated or not"
    more = pins(problem) + (in_flight_text(problem) if limited else "")
    reason = _too_large(problem, chains) or reason + more
    return infeasible(problem, reason, least if limited else None)


def _too_large(problem: PlacementProblem, chains: ReplicatedChains) -> str:
    """Return a clause about the first group that fits on no device, with any number of replicas, or an empty string."""
    homeless = np.flatnonzero(~np.any([part.supported for part in chains.parts], axis=(0, 1)))
    if not len(homeless):
        return ""
    group = int(homeless[0])
    kinds = np.flatnonzero(chains.pipeline.supported[:, group])
    kind = max(kinds, key=lambda each: chains.pipeline.classes[each].capacity)
    replicas, device = chains.most_replicas[kind], problem.devices[chains.pipeline.classes[kind].devices[0]]
    held = float(chains.parts[replicas - 1].memory[group])
    shared = f" as one of {replicas} replicas" if replicas > 1 else ""
    return too_large(problem, chains.pipeline.members[group], held, device) + shared
