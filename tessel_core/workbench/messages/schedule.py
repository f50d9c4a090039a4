"""Describe a report on a schedule in words and key numbers. Each claim comes with the bound that proves it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tessel_core.inspection import IdleSplit
from tessel_core.model import MAKESPAN, PERIOD, MicroBatchPlan, Schedule, ScheduleReport, Status
from tessel_core.scheduling import SCHEDULERS, find_scheduler
from tessel_core.units import counted, show_gap, show_memory, show_time
from tessel_core.workbench.messages.idle import imbalance_and_bubble, meanings, percent, who_limits


@dataclass(frozen=True, slots=True)
class KeyNumber:
    """One key number, with a second line for comparison and a help text."""

    label: str
    value: str
    beside: str
    help: str

    @property
    def pixels(self) -> int:
        """Width in pixels that fits all three lines. Their letters are 14, 30 and 13 pixels high."""
        return max(34 + 13 * len(self.label) // 2, 13 * len(self.value), 22 + 13 * len(self.beside) // 2)


def speed_up(slower: ScheduleReport, faster: ScheduleReport) -> float | None:
    """Return the makespan of `slower` divided by that of `faster`. None if either report has no schedule."""
    if slower.makespan is None or not faster.makespan:
        return None
    return slower.makespan / faster.makespan


def verdict(report: ScheduleReport, plan: MicroBatchPlan) -> str:
    """Return sentences on the results and proofs for both objectives, and on the devices that limit the schedule."""
    if report.status is Status.INFEASIBLE:
        return f"{_infeasible(report, plan)} {limiting_devices(report)}".rstrip()
    if report.solution is None:
        lead = "Cancelled" if report.status is Status.CANCELLED else "The time limit was reached"
        return _with_reason(f"{lead} before a schedule was found.", report)
    lead = _proved(report, report.solution) if report.status is Status.PROVED_OPTIMAL else _found(report, plan)
    text = _with_reason(" ".join([lead, *_infimum(report, plan), *_the_other(report, report.solution)]), report)
    return f"{text} {limiting_devices(report)}".rstrip()


def in_brief(report: ScheduleReport) -> str:
    """Return one line with the makespan, the idle time and the proof of a report."""
    drawn, (split, _) = report.drawable, IdleSplit.of_report(report)
    if drawn is None or split is None or report.makespan is None:
        return "no schedule was found"
    fits = "" if report.solution is not None else "does not fit"
    proof = f"{report.objective_name} proved optimal" if report.status is Status.PROVED_OPTIMAL else fits
    length = show_time(report.makespan, drawn.plan.time_unit)
    return " · ".join(each for each in (length, f"{percent(split.idle)} idle", proof) if each)


def limiting_devices(report: ScheduleReport) -> str:
    """Return a sentence on the devices that limit the schedule, if most of the idle time is imbalance.

    Otherwise empty.
    """
    split, _ = IdleSplit.of_report(report)
    return "" if split is None or report.drawable is None else who_limits(split, report.drawable.plan)


def _found(report: ScheduleReport, plan: MicroBatchPlan) -> str:
    """Return a sentence on the objective, and on the largest gain that another order could bring."""
    lead = "Cancelled, the best so far: " if report.status is Status.CANCELLED else ""
    found = "" if report.objective is None else f" of {_objective(report, plan, report.objective)}"
    limit = "" if report.bound is None else f": {_at_most(report, plan)}"
    text = f"{lead}{report.objective_name}{found}, not proved optimal{limit}."
    return text[0].upper() + text[1:]


def _at_most(report: ScheduleReport, plan: MicroBatchPlan) -> str:
    """Return a clause on the largest gain that another order could bring.

    It leaves out the bound if its rounded value equals the objective's.
    """
    assert report.bound is not None
    limit = _objective(report, plan, report.bound)
    if report.objective is None or report.gap is None:
        return f"no order of this placement is below {limit}"
    if limit == _objective(report, plan, report.objective):
        return f"another order of this placement is at most {show_gap(report.gap)} shorter"
    return f"another order of this placement is at most {show_gap(report.gap)} shorter, {limit}"


def _the_other(report: ScheduleReport, solution: Schedule) -> Iterator[str]:
    """Yield sentences on the other objective, which the search did not minimize.

    They say whether it is proved optimal, unless the sentences of `_infimum` say so, and the cost of repeating the
    repetend.
    """
    if report.shortest is None:
        return
    of_period = report.objective_name == PERIOD
    other = report.about(MAKESPAN if of_period else PERIOD)
    proved, alike = other.status is Status.PROVED_OPTIMAL, other.status is report.status
    least = show_time(report.shortest.makespan, solution.plan.time_unit)
    what = f"The shortest schedule, {least}," if of_period else "The period"
    as_well = (" too" if proved else " either") if alike else ""
    if of_period or report.period_infimum is None:
        yield f"{what} is {'' if proved else 'not '}proved optimal{as_well}."
    steady = []
    kept = None if report.steady is None else report.steady.repetend
    if kept is not None and report.kept_period != report.period_per_micro_batch:
        steady.append(f"takes {show_time(kept.period / kept.unroll, solution.plan.time_unit)} per micro-batch")
        if report.period_infimum is None:
            yield f"The least period found needs a repetend of {report.unroll} micro-batches."
    if kept is not None and kept.unroll > 1:
        steady.append(f"repeats every {kept.unroll} micro-batches")
    if report.steady_costs is not None:
        more = "less than 0.1%" if report.steady_costs < 0.001 else f"{report.steady_costs:.1%}"
        steady.append(f"is {more} longer than the shortest")
    if steady:
        *before, last = steady
        yield f"The steady schedule {', '.join(before)}{' and ' if before else ''}{last}."
    elif report.steady is None and of_period:
        yield f"This is the shortest schedule, because {_micro_batches(solution)} too few to repeat."


def _infimum(report: ScheduleReport, plan: MicroBatchPlan) -> Iterator[str]:
    """Yield the sentences that say that no repetend attains the bound on the period, if that is proved."""
    found = report.period_infimum
    if found is None:
        return
    each, more = (show_time(float(amount), plan.time_unit) for amount in (found.per_micro_batch, found.excess))
    yield f"Proved: no repetend attains {each} per micro-batch, but longer repetends come as close to it as one likes."
    yield (
        f"A repetend of more than {counted(found.micro_batches, 'micro-batch')} takes at least {each} for each of "
        f"them, and {more} more."
    )


def _micro_batches(solution: Schedule) -> str:
    return f"{counted(solution.micro_batches, 'micro-batch')} {'is' if solution.micro_batches == 1 else 'are'}"


def _proved(report: ScheduleReport, solution: Schedule) -> str:
    assert report.bound is not None
    limit = _objective(report, solution.plan, report.bound)
    if report.objective_name == PERIOD:
        return f"Period proved optimal: no schedule of this placement is faster than {limit}."
    what = counted(solution.micro_batches, "micro-batch")
    return f"Makespan proved optimal: no order of this placement ends {what} before {limit}."


def _infeasible(report: ScheduleReport, plan: MicroBatchPlan) -> str:
    text = f"Infeasible: {(report.reason or 'no schedule fits the memory').removeprefix('does not fit: ').rstrip('.')}."
    if report.least_capacity is None:
        return text
    what = "this order" if report.relaxed_solution is not None else "a schedule"
    return f"{text} {show_memory(report.least_capacity, plan.memory_unit)} on every device would be enough for {what}."


def _objective(report: ScheduleReport, plan: MicroBatchPlan, amount: Fraction) -> str:
    per = " per micro-batch" if report.objective_name == PERIOD else ""
    return show_time(float(amount), plan.time_unit) + per


def sentence(text: str) -> str:
    """Return `text` with a capital letter and one full stop. Empty text stays empty."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""


def _with_reason(text: str, report: ScheduleReport) -> str:
    return f"{text} {sentence(report.reason)}".rstrip()


def key_numbers(report: ScheduleReport) -> tuple[KeyNumber, ...]:
    """Return the key numbers of a report. Empty if it has no schedule to draw."""
    drawn, makespan, peaks = report.drawable, report.makespan, report.peak_memory
    if drawn is None or makespan is None or peaks is None:
        return ()
    unit, memory_unit = drawn.plan.time_unit, drawn.plan.memory_unit
    tightest = fullest(peaks, [device.memory_capacity for device in drawn.plan.devices])
    capacity = drawn.plan.devices[tightest].memory_capacity
    whole, steady = IdleSplit.of_report(report)
    assert whole is not None
    fits = whole.bound is not None
    return (
        KeyNumber("Idle", percent(whole.idle), imbalance_and_bubble(whole), meanings()),
        KeyNumber(
            "Time per micro-batch",
            show_time(float(drawn.time_per_micro_batch), unit),
            _steadiest(report, drawn, fits=fits),
            "Period per micro-batch of the repeating part (repetend) of the schedule, or makespan / micro-batches if "
            "nothing repeats. No schedule is faster than the bound.",
        ),
        KeyNumber(
            "Makespan",
            show_time(makespan, unit),
            f"bound {show_time(report.makespan_bound, unit)}{_gap(makespan if fits else None, report.makespan_bound)}",
            f"Time from the first start to the last end of {counted(drawn.micro_batches, 'micro-batch')}. It is proved "
            "optimal if it meets the bound.",
        ),
        KeyNumber(
            "Idle in the steady state",
            "none" if steady is None else percent(steady.idle),
            "nothing repeats" if steady is None else imbalance_and_bubble(steady),
            f"Idle time if the repetend with the least period found repeats for ever. {meanings()}",
        ),
        KeyNumber(
            "Fullest device",
            show_memory(peaks[tightest], memory_unit),
            f"on {drawn.plan.devices[tightest].name}, unlimited"
            if capacity is None
            else f"on {drawn.plan.devices[tightest].name}, of {show_memory(capacity, memory_unit)}",
            "Peak memory of the device closest to its capacity, static memory included.",
        ),
        KeyNumber(
            "Took",
            f"{report.wall_s:.2f} s",
            _parts(report),
            "Wall time, proof included. For the two-phase search: time for the repetend + time for the rest.",
        ),
    )


def _steadiest(report: ScheduleReport, drawn: Schedule, *, fits: bool) -> str:
    """Return text on the bound on the period.

    If no repetend attains it, it is the infimum of all periods. Otherwise, if the schedule does not repeat with the
    least period found, return that period.
    """
    unit, least = drawn.plan.time_unit, report.period_per_micro_batch
    if least is None:
        return "makespan / micro-batches"
    gap = _gap(least if fits else None, report.period_bound)
    if report.period_infimum is not None:
        return f"infimum {show_time(float(report.period_bound), unit)}, not attained"
    if drawn.repetend is not None and drawn.time_per_micro_batch == least:
        return f"bound {show_time(float(report.period_bound), unit)}{gap}"
    return f"least period {show_time(float(least), unit)}{gap}"


def _gap(value: Fraction | int | None, bound: Fraction | int) -> str:
    """Return text on whether a value meets its bound, or on its gap to the bound.

    Rounded numbers do not always show this. Empty without a value. An order that does not fit in memory has no value
    here, because bounds hold only for orders that fit.
    """
    if value is None:
        return ""
    return ", proved" if value == bound else f", gap {show_gap(float(1 - bound / Fraction(value)))}"


def fullest(held: Sequence[float], capacities: Sequence[float | None]) -> int:
    """Return the device closest to its memory capacity. If no device has a limit, return the device that holds most."""
    largest = max((capacity for capacity in capacities if capacity), default=1.0)
    return max(range(len(held)), key=lambda d: held[d] / (capacities[d] or largest))


def _parts(report: ScheduleReport) -> str:
    if report.repetend_s is None or report.completion_s is None:
        known = report.solver in SCHEDULERS
        return f"by {find_scheduler(report.solver).title if known else report.solver}"
    return f"{report.repetend_s:.2f} + {report.completion_s:.2f} s"
