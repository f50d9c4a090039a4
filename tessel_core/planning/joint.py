"""Joint search for a placement and a schedule. It schedules several placements that are close to the best one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.model import (
    MAKESPAN,
    PERIOD,
    THROUGHPUT,
    LayoutShape,
    MicroBatchPlan,
    Placement,
    PlacementDevice,
    PlacementLoads,
    PlacementReport,
    ScheduleReport,
    StageLayout,
    Status,
)
from tessel_core.options import Option, check_options, option
from tessel_core.placement import PlacementProblem, default_placer, find_placer, solve_placement
from tessel_core.planning.plan import plan_of
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.units import TICKS_PER_SECOND

_LESS_MEMORY = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Capacities to try, as fractions of the largest memory that a device holds in the best placement."""

_LAYOUT_SECONDS = 5.0
"""Time limit in seconds of the placement search for each layout that was not requested.

If all layers are equal, the search proves its result in less time.
"""
_MAX_MOVES = 300
"""Largest number of candidates that differ from the best placement by one move."""


@dataclass(frozen=True, slots=True)
class JointConfig:
    """Limits of the joint search."""

    placements: int = option(6, Option("Placements", "Number of placements near the best that get a schedule", 1, 64))
    micro_batches: int = option(32, Option("Micro-batches", "Number of micro-batches in each schedule", 1, 10_000))
    time_limit: float = option(60.0, Option("Time limit", "For the whole search", 0.1, 86_400, "s"))
    workers: int = option(2, Option("Workers", "Solver threads. With 1, the same seed gives the same answer", 1, 64))
    seed: int = option(0, Option("Seed", "Seed of the solver's random choices", 0, 2**31 - 1))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A placement to schedule, and a short description of how it was found."""

    placement: Placement
    origin: str
    load: float
    """Largest load of a device, in the graph's unit."""
    bound: Fraction | None = None
    """Lower bound on the load of any placement in the same layout. None if the placement has no layout."""


@dataclass(frozen=True, slots=True)
class JointEntry:
    """A placement with its plan and its schedule."""

    candidate: Candidate
    plan: MicroBatchPlan
    report: ScheduleReport
    by_makespan: bool = False
    """Whether entries are ranked by makespan.

    This is so for layouts, because their periods are all close to one bound.
    """

    @property
    def period(self) -> Fraction | None:
        """Nanoseconds per micro-batch in the steady state, or None if no schedule repeats."""
        return self.report.period_per_micro_batch if self.report.solution is not None else None

    @property
    def rank(self) -> tuple[bool, Fraction, int, float]:
        """Sort key: the period (or the makespan if `by_makespan`), then makespan and load. No schedule comes last."""
        period, makespan = self.period, self.report.makespan
        if self.by_makespan and makespan is not None:
            return period is None, Fraction(makespan), makespan, self.candidate.load
        return period is None, period or Fraction(0), makespan or 0, self.candidate.load


def ranked(entries: Iterable[JointEntry]) -> tuple[JointEntry, ...]:
    """Return the entries in order of rank, the best first."""
    return tuple(sorted(entries, key=lambda entry: entry.rank))


@dataclass(frozen=True, kw_only=True)
class JointReport:
    """The result of a joint search. Its entries are sorted, the best first."""

    placement: PlacementReport
    """Report on the best placement, from which the other candidates were derived."""
    entries: tuple[JointEntry, ...]
    bound: Fraction | None
    """Lower bound on the nanoseconds per micro-batch of any schedule of any placement of the requested kind."""
    wall_s: float

    @property
    def best(self) -> JointEntry | None:
        """First entry with a schedule, or None if nothing could be scheduled."""
        return next((entry for entry in self.entries if entry.period is not None), None)

    @property
    def proved(self) -> bool:
        """Whether the best entry's period meets the bound, up to rounding.

        Durations of plans are whole nanoseconds. So a device's work differs from its load by at most half a nanosecond
        per block.
        """
        if self.best is None or self.best.period is None or self.bound is None:
            return False
        return self.best.period <= self.bound + Fraction(len(self.best.plan.blocks), 2)

    def placement_report(self, entry: JointEntry) -> PlacementReport:
        """Return a report on an entry's placement alone. It is proved optimal if its largest load meets the bound."""
        load, bound = Fraction(entry.candidate.load), entry.candidate.bound or self.placement.bound
        status = Status.PROVED_OPTIMAL if bound is not None and load <= bound else Status.FEASIBLE
        placement = entry.candidate.placement
        return replace(self.placement, solution=placement, objective=load, bound=bound, status=status)


@dataclass(frozen=True, slots=True)
class JointQuestion:
    """All inputs of a joint search. Besides these inputs, only the speed of the machine affects the result."""

    problem: PlacementProblem
    config: JointConfig
    split_weights: bool = False

    def solve(self, control: Control) -> JointReport:
        """Run `search_jointly`."""
        return search_jointly(self.problem, self.config, control, split_weights=self.split_weights)


def search_jointly(
    problem: PlacementProblem,
    config: JointConfig | None = None,
    control: Control | None = None,
    *,
    split_weights: bool = False,
) -> JointReport:
    """Schedule placements near the best one and rank them by period.

    The period is never longer than that of the best placement alone. For a problem with several stages per device, the
    candidates are layouts of both shapes (loop and V) with at most that many stages. They are searched and ranked by
    makespan, because more stages shorten warmup and cooldown, but not the period.

    The memory of a stage is counted for the number of micro-batches in the schedules. No period is below the largest
    load, so the bound on placements also bounds all schedules. Each candidate gets an equal share of the remaining
    time. Progress is reported per candidate. When `control` stops, the entries so far are returned.

    Raises InputError for an objective other than throughput, and in the cases of `solve_placement` and `plan_of`.
    """
    if problem.objective != THROUGHPUT:
        raise InputError("joint search", f"needs the objective {THROUGHPUT}, got {problem.objective}")
    config = JointConfig() if config is None else config
    check_options(config)
    control = (Control() if control is None else control).part(config.time_limit)
    control.report("the best placement", None, None)
    problem = problem.for_micro_batches(config.micro_batches)
    # The placer's progress is hidden: it is in the graph's unit, and that of the joint search in nanoseconds.
    best = solve_placement(default_placer(problem), problem, None, control.part(config.time_limit / 3).quiet())
    if best.solution is None:
        return JointReport(placement=best, entries=(), bound=None, wall_s=control.elapsed_s)
    scale = TICKS_PER_SECOND["ns"] / TICKS_PER_SECOND[problem.graph.time_unit]
    objective, least_load = PERIOD, best.bound
    if problem.layout is None:
        candidates = list(_candidates(problem, best, config.placements, control))
    else:
        objective = MAKESPAN
        candidates, least_load = _layouts(problem, best, config.placements, control)
    bound = None if least_load is None else least_load * Fraction(scale)
    entries = list[JointEntry]()
    for i, candidate in enumerate(candidates):
        if entries and control.stopped:
            break
        plan = plan_of(candidate.placement, split_weights=split_weights)
        report = _schedule(plan, objective, config, len(candidates) - i, control)
        entries.append(JointEntry(candidate, plan, report, by_makespan=objective == MAKESPAN))
        leader = min(entries, key=lambda entry: entry.rank)
        control.deliver(entries[-1])
        # Durations of plans are rounded to nanoseconds, so a period may be slightly below the bound on loads.
        least = bound if bound is None or leader.period is None else min(bound, leader.period)
        control.report(f"placement {i + 1} of {len(candidates)}", leader.period, least)
    return JointReport(placement=best, entries=ranked(entries), bound=bound, wall_s=control.elapsed_s)


def _schedule(plan: MicroBatchPlan, objective: str, config: JointConfig, left: int, control: Control) -> ScheduleReport:
    share = max(0.1, control.remaining_s / left)
    scheduler = TesselConfig(
        objective=objective, time_limit=min(3600.0, share), polish=0.0, workers=config.workers, seed=config.seed
    )
    # The scheduler's progress is hidden: each plan has its own bound, so the reported one would go up and down.
    part = control.part(share).quiet()
    return replace(solve_schedule("tessel", plan, config.micro_batches, scheduler, part), history=())


def _candidates(problem: PlacementProblem, best: PlacementReport, count: int, control: Control) -> Iterator[Candidate]:
    """Yield up to `count` distinct valid placements, the best one first.

    Next come the best placements for devices with less memory. They leave more memory for micro-batches in flight, but
    have a larger load. Last come placements in which one set of operators has moved to a neighbouring device, in order
    of load.
    """
    assert best.solution is not None, "there is a best placement"
    seen = {best.solution.assignment}
    yield _candidate(best.solution, "least largest load")
    for other in (*_leaner(problem, best.solution, control), *_moved(problem, best.solution, control)):
        if len(seen) >= count or control.stopped:
            return
        if other.placement.assignment not in seen:
            seen.add(other.placement.assignment)
            yield other


def _layouts(
    problem: PlacementProblem, best: PlacementReport, count: int, control: Control
) -> tuple[list[Candidate], Fraction | None]:
    """Return up to `count` layouts, the requested one first, and a lower bound on the largest load of all of them."""
    assert best.solution is not None, "there is a best layout"
    assert problem.layout is not None, "a layout is requested"
    layouts, bound = [replace(_candidate(best.solution, _named(problem.layout)), bound=best.bound)], best.bound
    for layout in _other_layouts(problem.layout):
        if len(layouts) >= count or control.stopped:
            break
        other = replace(problem, layout=layout)
        name = default_placer(other)
        config = find_placer(name).config(time_limit=max(0.1, min(_LAYOUT_SECONDS, control.remaining_s / 4)))
        report = solve_placement(name, other, config, control.quiet())
        if report.solution is not None:
            layouts.append(replace(_candidate(report.solution, _named(layout)), bound=report.bound))
            bound = None if bound is None or report.bound is None else min(bound, report.bound)
    return layouts, bound


def _other_layouts(requested: StageLayout) -> Iterator[StageLayout | None]:
    """Yield layouts with a short name: the other shape, one stage per device, and both shapes with fewer stages."""
    shapes = (requested.shape, *(shape for shape in LayoutShape if shape is not requested.shape))
    yield replace(requested, shape=shapes[1])
    yield None
    for shape in shapes:
        yield from (StageLayout(stages, shape) for stages in range(requested.stages_per_device - 1, 1, -1))


def _named(layout: StageLayout | None) -> str:
    if layout is None:
        return "one stage per device"
    return f"{layout.shape} of {layout.stages_per_device} stages per device"


def _candidate(placement: Placement, origin: str) -> Candidate:
    return Candidate(placement, origin, PlacementLoads.of(placement).largest)


def _leaner(problem: PlacementProblem, best: Placement, control: Control) -> Iterator[Candidate]:
    """Yield the best placements for devices with less memory than the best placement uses."""
    held = zip(PlacementLoads.of(best).memory, best.devices, strict=True)
    fullest = max((amount for amount, device in held if not device.is_host), default=0.0)
    for share in _LESS_MEMORY:
        if fullest <= 0 or control.stopped:
            return
        devices = tuple(_at_most(device, share * fullest) for device in problem.devices)
        less = replace(problem, devices=devices)
        name = default_placer(less)
        config = find_placer(name).config(time_limit=max(0.1, control.remaining_s / 4))
        found = solve_placement(name, less, config, control.quiet()).solution
        if found is None:
            return
        placement = problem.placement(found.assignment)
        yield _candidate(placement, f"at most {share:.0%} of that memory")


def _at_most(device: PlacementDevice, memory: float) -> PlacementDevice:
    if device.is_host:
        return device
    capacity = memory if device.memory_capacity is None else min(memory, device.memory_capacity)
    return replace(device, memory_capacity=capacity)


def _moved(problem: PlacementProblem, best: Placement, control: Control) -> list[Candidate]:
    """Return the valid placements that differ from the best one by one move, in order of load."""
    candidates = list[Candidate]()
    for i, (name, assignment) in enumerate(moves(problem, best)):
        if i >= _MAX_MOVES or control.stopped:
            break
        placement = problem.placement(assignment)
        if not problem.violations(placement):
            candidates.append(_candidate(placement, f"{name} moved"))
    return sorted(candidates, key=lambda each: each.load)


def moves(problem: PlacementProblem, best: Placement) -> Iterator[tuple[str, tuple[tuple[int, ...], ...]]]:
    """Yield assignments in which one set of colocated operators has moved to the devices of a neighbour."""
    graph = problem.graph
    for group, members in enumerate(graph.colocated):
        here = best.assignment[members[0]]
        near = {
            best.assignment[other]
            for member in members
            for other in (*graph.predecessors[member], *graph.consumers[member])
        }
        for there in sorted(near - {here}):
            if _allowed(problem, members, there):
                moved = tuple(there if graph.group_of[i] == group else on for i, on in enumerate(best.assignment))
                yield graph.operators[members[0]].name, moved


def _allowed(problem: PlacementProblem, members: tuple[int, ...], devices: tuple[int, ...]) -> bool:
    names = {problem.devices[device].name for device in devices}
    return all(allowed is None or names <= allowed for allowed in (problem.allowed_on[i] for i in members))
