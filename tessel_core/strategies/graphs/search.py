"""Find the fastest strategy of an operator graph. Each configuration is placed and timed, or ruled out by bounds.

A configuration has the placement with the smallest largest load. Its step takes at least this load for each
micro-batch. It is ruled out if another strategy is at least as fast as this bound, and needs no more memory than the
configuration's weights alone. The fastest placements are then improved by moves of single groups of operators.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import islice

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.model import Device
from tessel_core.placement.problem import placement_problem
from tessel_core.planning.joint import moves
from tessel_core.scheduling import DEFAULT_SCHEDULER, find_scheduler
from tessel_core.strategies.graphs.pipelines import Pipeline, PlacementSearch
from tessel_core.strategies.graphs.question import LIST_ORDER, GraphConfiguration, GraphQuestion, GraphStrategy
from tessel_core.strategies.graphs.timing import PlacedCandidate, StepTimer
from tessel_core.strategies.recommendation import TOO_LARGE, Candidate, Recommendation
from tessel_core.strategies.searched_order import SEARCH_SECONDS, SEARCHED_PIPELINES, SearchedOrder
from tessel_core.units import TICKS_PER_SECOND, counted

GraphRecommendation = Recommendation[GraphQuestion]
IMPROVEMENT_SECONDS = 5.0
"""Time limit for moves of operators."""
IMPROVED_STRATEGIES = 3
"""Moves of operators are tried for this many of the fastest strategies."""
MAX_MOVES = 100
"""Largest number of moves that are tried from one placement."""
_SAME = 1e-9
"""Steps that differ by less than this fraction count as equal, because times are rounded to nanoseconds."""
UNEQUAL = "replicas of the pipeline would have different devices"


def recommend_graph(question: GraphQuestion, control: Control | None = None) -> GraphRecommendation:
    """Place and time every configuration of the question, or rule it out, and return the recommendation.

    If `control` stops, return the best strategy so far.

    Raises InputError if no configuration divides the micro-batches, if there are too many configurations, and if none
    has a plan, for example because the costs of the graph on the mesh cannot be derived.
    """
    search = _Search(question, Control() if control is None else control)
    search.run()
    search.add_all_placements()
    search.improve()
    return search.recommendation


@dataclass(frozen=True, slots=True)
class _Least:
    """Lower bounds for a configuration that need no placement."""

    seconds: float
    bytes: float


class _Search:
    def __init__(self, question: GraphQuestion, control: Control) -> None:
        self._question, self._control = question, control
        self._placements, self._timer = PlacementSearch(question, control), StepTimer(question)
        self._graph = placement_problem(question.graph, question.mesh, question.costs).graph
        self._timed, self._reasons = list[PlacedCandidate](), Counter[str]()
        self._errors = list[InputError]()
        self._too_large = list[tuple[float, GraphConfiguration]]()
        self._bound, self._seen, self._ruled_out, self._more, self._unfinished = math.inf, 0, 0, 0, 0

    @property
    def recommendation(self) -> GraphRecommendation:
        """The result so far."""
        timed = sorted(self._timed, key=lambda each: (each.outcome.latency, each.peak))
        size = len(self._question.configurations) + self._more
        seen = self._seen == size - self._more
        bound = min(self._bound, timed[0].outcome.latency) if seen and timed else None
        nearest = None if timed else self._nearest
        reasons = dict(self._reasons.most_common())
        return Recommendation(
            self._question, tuple(timed), size, self._ruled_out, reasons, nearest, bound, seen and not self._unfinished
        )

    @property
    def _nearest(self) -> tuple[GraphStrategy, float] | None:
        """The strategy that lacks the least memory, and the bytes that its fullest device needs.

        Most configurations are refused by a lower bound of these bytes. They are placed until no other bound is lower.
        """
        nearest, least = None, math.inf
        for bound, configuration in sorted(self._too_large, key=lambda pair: pair[0]):
            if nearest is not None and (bound >= least or self._control.stopped):
                break
            found = None if self._control.stopped else self._placements.pipelines(configuration)
            needed = bound if found is None else max(bound, found.needed)
            if needed < least and (found is None or not found.reason):
                nearest, least = self._question.strategy_of(configuration), needed
        return None if nearest is None else (nearest, least)

    def run(self) -> None:
        """Place and time the configurations, those with the smallest bounds first.

        Of those with equal bounds, short pipelines come first, and chosen replicas after pure data parallelism.
        """
        every = [(self._least(each), each) for each in self._question.configurations]
        for least, configuration in sorted(
            every, key=lambda pair: (pair[0].seconds, pair[1].pipeline if pair[1].replicas else 1)
        ):
            try:
                self._judge(configuration, least)
            except InputError as error:  # Some of the devices cannot run the graph, or the graph has no plan on them.
                self._errors.append(error)
                self._reasons[error.why] += 1
            if self._control.stopped:
                return
            self._seen += 1
            self._report(f"{self._seen} of {len(every)} configurations")
        if len(self._errors) == len(every):
            raise self._errors[0]

    def _judge(self, configuration: GraphConfiguration, least: _Least) -> None:
        """Time one configuration, rule it out, or count why it is impossible."""
        pipelines = self._question.pipelines_of(configuration)
        kinds = {tuple((d.kind, d.memory_capacity) for d in self._devices(each)) for each in pipelines}
        if len(kinds) > 1:
            self._reasons[UNEQUAL] += 1
            return
        limits = [each.memory_capacity for each in self._devices(pipelines[0])]
        if least.bytes > max(math.inf if each is None else each for each in limits):
            self._refuse(configuration, least.bytes)
            return
        if self._is_beaten(least):
            self._bound = min(self._bound, least.seconds)
            self._ruled_out += 1
            return
        found, micro_batches = self._placements.pipelines(configuration), self._micro_batches(configuration)
        if not found.finished:
            self._bound = min(self._bound, max(least.seconds, found.least_load * micro_batches))
            self._unfinished += 1
            return
        if not found.found:
            self._refuse(configuration, found.needed or least.bytes, found.reason)
            return
        bound = max(least.seconds, found.least_load * micro_batches)
        self._bound = min(self._bound, bound)
        if self._is_beaten(_Least(bound, least.bytes)):
            self._ruled_out += 1
            return
        timed = [each for each in (self._time(configuration, pipeline) for pipeline in found.found) if each]
        if timed:
            self._timed.append(min(timed, key=lambda each: (each.outcome.latency, each.peak)))
        else:
            self._refuse(configuration, least.bytes, "no order of its micro-batches was found within memory")

    def _time(self, configuration: GraphConfiguration, pipeline: Pipeline) -> PlacedCandidate | None:
        """Return the step of a placed pipeline. None if no order within memory was found.

        If the published order does not suit the stages or exceeds the memory, a list schedule takes its place.
        """
        placed = self._timer.placed(configuration, pipeline)
        order = find_scheduler(configuration.schedule)
        suits = not any(order.why_not(plan, placed.micro_batches) for plan in placed.plans)
        timed = placed.timed(order.name, self._control) if suits else None
        return placed.timed(LIST_ORDER, self._control) if timed is None and order.name != LIST_ORDER else timed

    def add_all_placements(self) -> None:
        """Time all placements of pipelines that have few. Each counts as a configuration of its own."""
        chosen = [each for each in self._question.configurations if not each.replicas and self._question.alike]
        for configuration in chosen:
            micro_batches = self._micro_batches(configuration)
            self._report(f"all placements on {counted(configuration.devices, 'device')}")
            for pipeline in self._placements.every(configuration):
                if self._control.stopped:
                    return
                placement = pipeline.placement
                lasting = max(sum(placement.lasting_bytes[i] for i in on) for on in placement.operators_on)
                if not self._is_beaten(_Least(pipeline.load * micro_batches * (1 - _SAME), lasting)):
                    timed = self._time(configuration, pipeline)
                    self._timed += [] if timed is None else [timed]
                    self._more += timed is not None
                    self._bound = min(self._bound, pipeline.load * micro_batches)

    def improve(self) -> None:
        """Move single groups of operators to neighbouring stages of the fastest strategies while steps get shorter."""
        control = self._control.part(IMPROVEMENT_SECONDS)
        ranked = sorted(range(len(self._timed)), key=lambda i: self._timed[i].outcome.latency)
        for i in ranked[:IMPROVED_STRATEGIES]:
            while (better := self._moved(self._timed[i], control)) is not None:
                self._timed[i] = better
                self._report("operators moved")

    def _moved(self, candidate: PlacedCandidate, control: Control) -> PlacedCandidate | None:
        """Return a faster candidate that differs by one move. None if none of the first `MAX_MOVES` moves gives one."""
        pipeline, micro_batches = candidate.pipeline, candidate.strategy.micro_batches
        problem, best = pipeline.problem, candidate.outcome.latency
        if problem.layout is not None:
            return None
        for _, assignment in islice(moves(problem, pipeline.placement), MAX_MOVES):
            if control.stopped:
                return None
            placement = problem.placement(assignment)
            load = problem.measure(placement)
            if load * (micro_batches - 1) >= best or problem.violations(placement):
                continue
            timed = self._time(candidate.placed.configuration, replace(pipeline, placement=placement))
            if timed is not None and timed.outcome.latency < best * (1 - _SAME):
                return timed
        return None

    def _least(self, configuration: GraphConfiguration) -> _Least:
        """Return work and weights spread evenly over all devices, or the longest operator if it takes longer."""
        devices, micro_batches = configuration.devices, self._micro_batches(configuration)
        most = devices if configuration.replicas != 1 else 1
        seconds = max(sum(self._times) / devices, max(self._times) / most) * micro_batches
        return _Least(seconds, sum(self._graph.lasting_bytes(1, most)) / configuration.pipeline)

    @cached_property
    def _times(self) -> list[float]:
        """Seconds of each operator on its fastest kind of device."""
        kinds = {device.kind for device in self._question.mesh.devices}
        known = ([each.time_on(kind) for kind in kinds] for each in self._graph.operators)
        return [min((time for time in times if time is not None), default=0.0) for times in known]

    def _micro_batches(self, configuration: GraphConfiguration) -> int:
        return self._question.micro_batches // configuration.data

    def _devices(self, numbers: Sequence[int]) -> list[Device]:
        return [self._question.mesh.devices[i] for i in numbers]

    def _is_beaten(self, least: _Least) -> bool:
        """Return whether some strategy is at least as fast as a bound, and needs no more memory than another."""
        return any(c.outcome.latency <= least.seconds and c.peak <= least.bytes for c in self._timed)

    def _refuse(self, configuration: GraphConfiguration, needed: float, reason: str = "") -> None:
        """Count an impossible configuration. Without another reason, it needs at least `needed` bytes per device."""
        self._reasons[reason or TOO_LARGE] += 1
        if not reason:
            self._too_large.append((needed, configuration))

    def _report(self, phase: str) -> None:
        best = min((each.outcome.latency for each in self._timed), default=None)
        self._control.report(phase, None if best is None else Fraction(best), None)


@dataclass(frozen=True)
class SearchedStep(SearchedOrder):
    """A placed pipeline in two orders: the one with which it was timed, and the one that a search found."""

    found: PlacedCandidate
    """The candidate in the faster order."""

    @property
    def latency(self) -> float:
        """Seconds of a step in the faster order."""
        return self.found.outcome.latency

    @property
    def shorter(self) -> Candidate:
        """The candidate in the faster order."""
        return self.found

    @property
    def bound(self) -> float:
        """Lower bound of the step time in seconds. It holds for all orders of these stages that fit into memory."""
        return self.bound_s

    @property
    def is_shorter(self) -> bool:
        """Whether the search found an order with a shorter step."""
        return self.found.outcome.latency < self.candidate.outcome.latency

    @property
    def proved(self) -> bool:
        """Whether the lower bound proves that no order of these stages that fits into memory has a shorter step."""
        return self.latency <= self.bound * (1 + _SAME)


def searched_steps(
    found: GraphRecommendation, control: Control, seconds: float = SEARCH_SECONDS
) -> tuple[SearchedStep, ...]:
    """Search for orders of the pipelines whose steps could become the shortest. Return them, shortest step first.

    If `control` stops, return the results so far.
    """
    placed = placed_candidates(found)
    best = placed[0].outcome.latency if placed else 0.0
    promising = sorted((each for each in placed[1:] if each.step_bound < best), key=lambda each: each.step_bound)
    steps, chosen = list[SearchedStep](), [*placed[:1], *promising][:SEARCHED_PIPELINES]
    for number, candidate in enumerate(chosen, 1):
        if control.stopped:
            break
        control.report(f"order of pipeline {number} of {len(chosen)} searched", None, None)
        steps.append(_searched(candidate, control, seconds))
    return tuple(sorted(steps, key=lambda each: each.latency))


def _searched(candidate: PlacedCandidate, control: Control, seconds: float) -> SearchedStep:
    """Search for an order of a candidate, unless its own is proved the shortest. Return the shorter step."""
    bound, best = candidate.step_bound, candidate
    if bound < candidate.outcome.latency * (1 - _SAME):
        other = candidate.placed.timed(DEFAULT_SCHEDULER, control, seconds)
        if other is not None:
            bound = max(bound, other.step_bound)
            best = min(candidate, other, key=lambda each: each.outcome.latency)
    before, after = (each.schedule.makespan / TICKS_PER_SECOND["ns"] for each in (candidate, best))
    return SearchedStep(candidate, best.report, before, after, min(bound, best.outcome.latency), best)


def placed_candidates(found: GraphRecommendation) -> list[PlacedCandidate]:
    """Return the candidates of a recommendation for a graph, fastest first."""
    return [each for each in found.candidates if isinstance(each, PlacedCandidate)]
