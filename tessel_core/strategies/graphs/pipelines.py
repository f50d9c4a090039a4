"""Placements of one pipeline of an operator graph, with the smallest largest load of a device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, islice, product

from tessel_core.control import Control
from tessel_core.costs.costed import CostOptions
from tessel_core.costs.reductions import ReplicaOptions
from tessel_core.model import Communication, Placement, PlacementReport, Status
from tessel_core.model.in_flight import ONE_F_ONE_B
from tessel_core.placement import PlacementProblem, default_placer, find_placer, solve_placement
from tessel_core.placement.groups import pipeline_of
from tessel_core.placement.pipeline import Groups
from tessel_core.placement.problem import placement_problem
from tessel_core.strategies.graphs.question import GraphConfiguration, GraphQuestion

PLACEMENT_SECONDS = 10.0
"""Time limit of one placement search. The exact search of a chain takes less for almost all graphs."""
LAYOUT_SECONDS = 1.0
"""Time limit of the placement search for several stages per device, which proves its answer less often."""
MAX_PLACEMENTS, MAX_GROUPS = 300, 12
"""If a pipeline has at most this many placements, and the graph this many groups, all placements are timed."""
MANY_DEVICES = "a stage would have more devices than its pipeline has samples"
FEWER_IN_FLIGHT = (2, 1)
"""Micro-batches that each stage holds, to try in turn if no placement has room for those of 1F1B."""


@dataclass(frozen=True)
class Pipeline:
    """A placement of one pipeline, on a mesh of only its devices."""

    problem: PlacementProblem
    placement: Placement
    costs: CostOptions
    """Cost options of the problem, with the number of micro-batches in flight that the placement has room for."""
    replicas: ReplicaOptions | None
    bound: float
    """Lower bound of the largest load, over all placements that the search considered."""

    @cached_property
    def load(self) -> float:
        """Largest load of a device in seconds per micro-batch."""
        return self.problem.measure(self.placement)

    @property
    def proved(self) -> bool:
        """Whether no such placement has a smaller largest load."""
        return self.load <= self.bound * (1 + 1e-9)


@dataclass(frozen=True)
class Pipelines:
    """The placements found for a configuration."""

    found: tuple[Pipeline, ...]
    least_load: float
    """Lower bound of the largest load in seconds per micro-batch, for every placement of the configuration."""
    needed: float = 0.0
    """If none fits, bytes that the fullest device needs in the placement that comes closest, or a lower bound."""
    reason: str = ""
    """Why there is none. Empty if the memory is the reason, or if the search did not finish."""
    finished: bool = True
    """Whether the search found a placement, or proved that there is none."""


class PlacementSearch:
    """Placement searches for a question. Configurations with equal pipelines share them."""

    def __init__(self, question: GraphQuestion, control: Control) -> None:
        self._question, self._control = question, control.quiet()
        self._known: dict[object, PlacementReport] = {}

    def pipelines(self, asked: GraphConfiguration) -> Pipelines:
        """Return placements for a configuration.

        If none has room for the micro-batches in flight of 1F1B, fewer micro-batches in flight are tried.
        """
        if asked.replicas > 1:
            return self._replicated(asked)
        search = self._alone if asked.replicas else self._chosen
        for rule in (ONE_F_ONE_B, *FEWER_IN_FLIGHT):
            found = search(asked, self._costs(asked, rule))
            if found.found or not found.finished or found.least_load < math.inf:
                break
        return found

    def _alone(self, asked: GraphConfiguration, costs: CostOptions) -> Pipelines:
        """Return the placement without replicas."""
        problem = self._problem(asked, costs)
        report = self._solved(problem, LAYOUT_SECONDS if asked.layout else PLACEMENT_SECONDS)
        if report.solution is None:
            return _none(report)
        placement, bound = problem.placement(report.solution.assignment, report.solution.stages), _bound(report)
        return Pipelines((Pipeline(problem, placement, costs, None, bound),), bound)

    def _chosen(self, asked: GraphConfiguration, costs: CostOptions) -> Pipelines:
        """Return placements whose replicas the search chooses.

        Gradients are reduced once per step. The placement for a reduction after every micro-batch is tried too, because
        it has fewer gradients to reduce.
        """
        once, most = self._once(asked), self._question.samples(asked.data)
        problem = self._problem(asked, costs, once)
        report = self._solved(problem, PLACEMENT_SECONDS)
        often = self._solved(self._problem(asked, costs, ReplicaOptions(reduce_every=1)), PLACEMENT_SECONDS)
        if report.solution is None and often.solution is None:
            return _none(report)
        bound = _bound(report)
        placements = [problem.placement(each.solution.assignment) for each in (report, often) if each.solution]
        fitting = [each for each in placements if max(map(len, each.assignment)) <= most]
        found = _distinct(Pipeline(problem, each, costs, once, bound) for each in fitting)
        return Pipelines(found, bound, reason="" if found else MANY_DEVICES)

    def _replicated(self, asked: GraphConfiguration) -> Pipelines:
        """Return chains of positions with the same number of devices each.

        A chain is first placed without limits on memory, because each of r replicas holds only 1 / r of the
        activations. If it does not fit then, it is placed as if one device held them all.
        """
        once, needed, bound = self._once(asked), list[float](), math.inf
        # On several nodes, a replica may be nearer to its neighbours than the devices of the chain are to each other.
        loaded = self._question.communication is Communication.BLOCKING and not self._question.alike
        for rule in (ONE_F_ONE_B, *FEWER_IN_FLIGHT):
            costs = self._costs(asked, rule)
            problem, chain = self._problem(asked, costs, once), self._problem(asked, costs, count=asked.pipeline)
            for each in (_without_limits(chain), chain):
                report = self._solved(each, PLACEMENT_SECONDS)
                bound = min(bound, 0.0 if loaded else _bound(report) / asked.replicas)
                if report.solution is not None:
                    placement = problem.placement(_spread(report.solution.assignment, asked.replicas))
                    needed.append(max(placement.memory))
                    if not problem.violations(placement):
                        return Pipelines((Pipeline(problem, placement, costs, once, bound),), bound)
        if not needed:
            return _none(report)
        return Pipelines((), math.inf, min(needed))

    def every(self, asked: GraphConfiguration) -> tuple[Pipeline, ...]:
        """Return all contiguous placements of a configuration whose replicas the search chooses.

        The result is empty if there are more than `MAX_PLACEMENTS`, or if the graph has more than `MAX_GROUPS` groups.
        All devices of the mesh must be alike.
        """
        once, found = self._once(asked), list[Pipeline]()
        bound = self.pipelines(asked).least_load
        for rule in (ONE_F_ONE_B, FEWER_IN_FLIGHT[-1]):
            costs = self._costs(asked, rule)
            problem = self._problem(asked, costs, once)
            if len(pipeline_of(problem).members) > MAX_GROUPS:
                return ()
            assignments = list(islice(_assignments(problem, self._question.samples(asked.data)), MAX_PLACEMENTS + 1))
            if len(assignments) > MAX_PLACEMENTS:
                return ()
            placements = map(problem.placement, assignments)
            valid = (each for each in placements if not problem.violations(each))
            found += [Pipeline(problem, each, costs, once, bound) for each in valid]
        return _distinct(found)

    def _once(self, asked: GraphConfiguration) -> ReplicaOptions:
        """Return the options of stages whose gradients are reduced once per step."""
        return ReplicaOptions(reduce_every=self._question.micro_batches // asked.data)

    def _costs(self, asked: GraphConfiguration, rule: str | int) -> CostOptions:
        return replace(self._question.costs, in_flight=rule, micro_batches=self._question.micro_batches // asked.data)

    def _problem(
        self, asked: GraphConfiguration, costs: CostOptions, replicas: ReplicaOptions | None = None, count: int = 0
    ) -> PlacementProblem:
        """Return the problem on the first pipeline of a configuration.

        With `count`, it has only this many devices of the pipeline, at even distances.
        """
        devices = self._question.pipelines_of(asked)[0]
        mesh = self._question.mesh.part(devices[:: len(devices) // count] if count else devices)
        terms = (self._question.graph, mesh, costs, self._question.communication)
        return placement_problem(*terms, replicas=replicas, layout=asked.layout)

    def _solved(self, problem: PlacementProblem, seconds: float) -> PlacementReport:
        """Return the report of a placement search. Numbers of micro-batches without effect on the memory are equal."""
        enough = 2 * len(problem.devices) * (problem.layout.stages_per_device if problem.layout else 1)
        known = problem.for_micro_batches(min(problem.in_flight.micro_batches, enough))
        key = known.graph.operators, known.devices, known.transfers, known.layout, known.in_flight, known.replication
        if key not in self._known:
            name = default_placer(known)
            config = find_placer(name).config(time_limit=seconds)
            self._known[key] = solve_placement(name, known, config, self._control)
        return self._known[key]


def _assignments(problem: PlacementProblem, most: int) -> Iterator[list[tuple[int, ...]]]:
    """Yield the devices of each operator for all chains of stages with at most `most` devices each."""
    pipeline, room = pipeline_of(problem), len(problem.devices)
    group_of = {operator: g for g, members in enumerate(pipeline.members) for operator in members}
    operators = range(len(problem.graph.operators))
    for stages in range(1, min(room, len(pipeline.members)) + 1):
        for stage_of in _monotone(pipeline.predecessors, stages):
            for sizes in product(range(1, min(most, room) + 1), repeat=stages):
                if sum(sizes) <= room:
                    ends = list(accumulate(sizes))
                    sets = [tuple(range(end - size, end)) for end, size in zip(ends, sizes, strict=True)]
                    yield [sets[stage_of[group_of[i]]] for i in operators]


def _monotone(predecessors: Groups, stages: int, begun: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Yield the stage of each group. No stage is empty, and no group is in an earlier stage than a predecessor."""
    if len(begun) == len(predecessors):
        if len(set(begun)) == stages:
            yield begun
        return
    first = max((begun[each] for each in predecessors[len(begun)]), default=0)
    for stage in range(first, stages):
        yield from _monotone(predecessors, stages, (*begun, stage))


def _bound(report: PlacementReport) -> float:
    """Return the proved lower bound of the largest load."""
    return float(report.bound or 0)


def _none(report: PlacementReport) -> Pipelines:
    """Return that there is no placement, with the memory that would be enough if it is known."""
    if report.status is not Status.INFEASIBLE:
        return Pipelines((), _bound(report), finished=False)
    relaxed = report.relaxed_solution
    needed = float(report.least_memory or (max(relaxed.memory) if relaxed is not None else 0))
    return Pipelines((), math.inf, needed, "" if needed else report.reason)


def _distinct(found: Iterable[Pipeline]) -> tuple[Pipeline, ...]:
    """Return the first pipeline with each assignment."""
    first: dict[tuple[tuple[int, ...], ...], Pipeline] = {}
    for each in found:
        first.setdefault(each.placement.assignment, each)
    return tuple(first.values())


def _without_limits(problem: PlacementProblem) -> PlacementProblem:
    return replace(problem, devices=tuple(replace(each, memory_capacity=None) for each in problem.devices))


def _spread(assignment: Sequence[tuple[int, ...]], count: int) -> list[tuple[int, ...]]:
    """Return `count` neighbouring devices for each device of an assignment."""
    return [tuple(range(on[0] * count, (on[0] + 1) * count)) for on in assignment]
