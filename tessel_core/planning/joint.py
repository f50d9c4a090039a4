"""Joint search: placements near the best, each with its best schedule, ranked by period."""

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
from tessel_core.planning.plan import PlanOptions, plan_of
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.units import TICKS_PER_SECOND

_LESS_MEMORY = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Capacities to try, as shares of the memory on the fullest device of the best placement."""

_LAYOUT_SECONDS = 5.0
"""For each other layout; those of equal layers are proved in less."""
_MOST_MOVES = 300
"""Placements one move away that are looked at."""


@dataclass(frozen=True, slots=True)
class JointConfig:
    """Limits of the joint search."""

    placements: int = option(6, Option("Placements", "How many placements near the best get a schedule", 1, 64))
    micro_batches: int = option(32, Option("Micro-batches", "Of each schedule", 1, 10_000))
    time_limit: float = option(60.0, Option("Time limit", "For all placements together", 0.1, 86_400, "s"))
    workers: int = option(2, Option("Workers", "Solver threads. With one, the same seed gives the same answer", 1, 64))
    seed: int = option(0, Option("Seed", "Start of the solver's random choices", 0, 2**31 - 1))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A placement worth a schedule search, and its origin in a few words."""

    placement: Placement
    origin: str
    load: float
    """Largest load of a device, in the graph's unit."""
    bound: Fraction | None = None
    """Of a layout, what no other placement in the same layout has a load below."""


@dataclass(frozen=True, slots=True)
class JointEntry:
    """One placement with its plan and its schedule."""

    candidate: Candidate
    plan: MicroBatchPlan
    report: ScheduleReport
    by_makespan: bool = False
    """Whether entries are ranked by makespan, as layouts are: their periods are all near the same bound."""

    @property
    def period(self) -> Fraction | None:
        """Nanoseconds per micro-batch in the steady state; None without a schedule that repeats."""
        return self.report.period_per_micro_batch if self.report.solution is not None else None

    @property
    def rank(self) -> tuple[bool, Fraction, int, float]:
        """By period, then makespan, then load; those without a schedule last."""
        period, makespan = self.period, self.report.makespan
        if self.by_makespan and makespan is not None:
            return period is None, Fraction(makespan), makespan, self.candidate.load
        return period is None, period or Fraction(0), makespan or 0, self.candidate.load


def ranked(entries: Iterable[JointEntry]) -> tuple[JointEntry, ...]:
    """The best first."""
    return tuple(sorted(entries, key=lambda entry: entry.rank))


@dataclass(frozen=True, kw_only=True)
class JointReport:
    """All that was tried, the best first."""

    placement: PlacementReport
    """The search that the candidates are near to."""
    entries: tuple[JointEntry, ...]
    bound: Fraction | None
    """Nanoseconds per micro-batch that no placement of the asked kind can beat, whatever its schedule."""
    wall_s: float

    @property
    def best(self) -> JointEntry | None:
        """The entry of least period; None where nothing could be scheduled."""
        return next((entry for entry in self.entries if entry.period is not None), None)

    @property
    def proved(self) -> bool:
        """Whether no placement and schedule together have a shorter period than the best, to rounding.

        A plan's durations are whole nanoseconds, so a device's work is off its load by half of one per block.
        """
        if self.best is None or self.best.period is None or self.bound is None:
            return False
        return self.best.period <= self.bound + Fraction(len(self.best.plan.blocks), 2)

    def placement_report(self, entry: JointEntry) -> PlacementReport:
        """The report on an entry's placement alone: its own largest load, proved only where that is the bound."""
        load, bound = Fraction(entry.candidate.load), entry.candidate.bound or self.placement.bound
        status = Status.PROVED_OPTIMAL if bound is not None and load <= bound else Status.FEASIBLE
        placement = entry.candidate.placement
        return replace(self.placement, solution=placement, objective=load, bound=bound, status=status)


@dataclass(frozen=True, slots=True)
class JointQuestion:
    """One joint search, complete: nothing else decides its answer but the time the machine takes."""

    problem: PlacementProblem
    config: JointConfig
    options: PlanOptions

    def solve(self, control: Control) -> JointReport:
        """The answer, as `search_jointly` gives it."""
        return search_jointly(self.problem, self.config, self.options, control)


def search_jointly(
    problem: PlacementProblem,
    config: JointConfig | None = None,
    options: PlanOptions | None = None,
    control: Control | None = None,
) -> JointReport:
    """The least period over placements near the best; never longer than with the best placement alone.

    For a problem with several stages per device, the layouts with as many stages or fewer, in both shapes; the
    schedules are then searched and ranked by makespan, because more stages shorten the ends and not the period.

    Stages hold activations of the schedules' micro-batches.  No schedule's period is below the largest load, so the
    placement's bound is one for all of them.  Every candidate
    gets the same share of the time that is left.  Progress is reported per candidate; when `control` stops, the entries
    so far are returned.

    Raises InputError as `solve_placement` and `plan_of`, and for another objective than throughput.
    """
    if problem.objective != THROUGHPUT:
        raise InputError("joint search", f"is for the objective {THROUGHPUT}, got {problem.objective}")
    config = JointConfig() if config is None else config
    check_options(config)
    control = (Control() if control is None else control).part(config.time_limit)
    control.report("the best placement", None, None)
    problem = problem.for_micro_batches(config.micro_batches)
    # Quiet, because a placer reports in the graph's unit, and the joint search in nanoseconds.
    best = solve_placement(default_placer(problem), problem, None, control.part(config.time_limit / 3).quiet())
    if best.solution is None:
        return JointReport(placement=best, entries=(), bound=None, wall_s=control.elapsed_s)
    scale = TICKS_PER_SECOND["ns"] / TICKS_PER_SECOND[problem.graph.time_unit]
    objective, least_load = PERIOD, best.bound
    if problem.layout is None:
        tried = list(_candidates(problem, best, config.placements, control))
    else:
        objective = MAKESPAN
        tried, least_load = _layouts(problem, best, config.placements, control)
    bound = None if least_load is None else least_load * Fraction(scale)
    entries = list[JointEntry]()
    for i, candidate in enumerate(tried):
        if entries and control.stopped:
            break
        plan = plan_of(candidate.placement, options)
        found = _scheduled(plan, objective, config, len(tried) - i, control)
        entries.append(JointEntry(candidate, plan, found, by_makespan=objective == MAKESPAN))
        leader = min(entries, key=lambda entry: entry.rank)
        control.deliver(entries[-1])
        # A plan's whole nanoseconds may come to a little less than the bound on loads.
        least = bound if bound is None or leader.period is None else min(bound, leader.period)
        control.report(f"placement {i + 1} of {len(tried)}", leader.period, least)
    return JointReport(placement=best, entries=ranked(entries), bound=bound, wall_s=control.elapsed_s)


def _scheduled(
    plan: MicroBatchPlan, objective: str, config: JointConfig, left: int, control: Control
) -> ScheduleReport:
    share = max(0.1, control.remaining_s / left)
    asked = TesselConfig(
        objective=objective, time_limit=min(3600.0, share), polish=0.0, workers=config.workers, seed=config.seed
    )
    # Each search reports another plan's bound, which would make the reported one go up and down.
    part = control.part(share).quiet()
    return replace(solve_schedule("tessel", plan, config.micro_batches, asked, part), history=())


def _candidates(problem: PlacementProblem, best: PlacementReport, count: int, control: Control) -> Iterator[Candidate]:
    """Up to `count` different placements, the best one first; all keep the rules.

    What is best when devices have less memory leaves more room for micro-batches in flight, at the
    price of a larger load; then come single moves across borders, the least loads first.
    """
    assert best.solution is not None, "there is a best placement"
    seen = {best.solution.assignment}
    yield _candidate(best.solution, "least largest load")
    for found in (*_leaner(problem, best.solution, control), *_moved(problem, best.solution, control)):
        if len(seen) >= count or control.stopped:
            return
        if found.placement.assignment not in seen:
            seen.add(found.placement.assignment)
            yield found


def _layouts(
    problem: PlacementProblem, best: PlacementReport, count: int, control: Control
) -> tuple[list[Candidate], Fraction | None]:
    """Up to `count` layouts, the one that was asked for first, and a bound on the largest load of all of them."""
    assert best.solution is not None, "there is a best layout"
    assert problem.layout is not None, "a layout is asked for"
    found, bound = [replace(_candidate(best.solution, _named(problem.layout)), bound=best.bound)], best.bound
    for layout in _other_layouts(problem.layout):
        if len(found) >= count or control.stopped:
            break
        other = replace(problem, layout=layout)
        name = default_placer(other)
        config = find_placer(name).config(time_limit=max(0.1, min(_LAYOUT_SECONDS, control.remaining_s / 4)))
        report = solve_placement(name, other, config, control.quiet())
        if report.solution is not None:
            found.append(replace(_candidate(report.solution, _named(layout)), bound=report.bound))
            bound = None if bound is None or report.bound is None else min(bound, report.bound)
    return found, bound


def _other_layouts(asked: StageLayout) -> Iterator[StageLayout | None]:
    """The other shape, one stage per device, and fewer stages per device than were asked for."""
    shapes = (asked.shape, *(shape for shape in LayoutShape if shape is not asked.shape))
    yield replace(asked, shape=shapes[1])
    yield None
    for shape in shapes:
        yield from (StageLayout(stages, shape) for stages in range(asked.stages_per_device - 1, 1, -1))


def _named(layout: StageLayout | None) -> str:
    if layout is None:
        return "one stage per device"
    return f"{layout.shape} of {layout.stages_per_device} stages per device"


def _candidate(placement: Placement, origin: str) -> Candidate:
    return Candidate(placement, origin, PlacementLoads.of(placement).largest)


def _leaner(problem: PlacementProblem, best: Placement, control: Control) -> Iterator[Candidate]:
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
    found = list[Candidate]()
    for i, (name, assignment) in enumerate(_moves(problem, best)):
        if i >= _MOST_MOVES or control.stopped:
            break
        placement = problem.placement(assignment)
        if not problem.violations(placement):
            found.append(_candidate(placement, f"{name} moved"))
    return sorted(found, key=lambda each: each.load)


def _moves(problem: PlacementProblem, best: Placement) -> Iterator[tuple[str, tuple[tuple[int, ...], ...]]]:
    """Operators that share a device, moved to the device of a neighbour."""
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
