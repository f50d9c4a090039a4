"""Words and numbers of reports: each claim has its bound, and each kind of ending has its own words."""

from __future__ import annotations

import csv
import io
import time
from dataclasses import replace
from fractions import Fraction

import pytest

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.exports import schedule_csv
from tessel_core.model import (
    MAKESPAN,
    PERIOD,
    MemoryProfile,
    Repetend,
    Schedule,
    ScheduleReport,
    Status,
    SteadyState,
)
from tessel_core.networks import ShapeParameters, build_shape
from tessel_core.scheduling import SCHEDULERS, Question, solve_schedule
from tessel_core.scheduling.reports import evaluate
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.workbench.messages.schedule import key_numbers, speed_up, verdict

V, M = build_shape("v-shape"), build_shape("m-shape")


@pytest.fixture(scope="module")
def both() -> ScheduleReport:
    """Return a report in which one schedule proves both objectives."""
    return solve_schedule("tessel", M, 16, TesselConfig(polish=20.0))


def apart(report: ScheduleReport, **changed: object) -> ScheduleReport:
    """Return a report in which each schedule that keeps the repetend is longer than the shortest.

    Unrolled repetends never are.
    """
    assert report.repetend is not None
    return replace(report, steady=report.repetend.expand(16), **changed)  # type: ignore[arg-type]


def test_a_proved_makespan_and_a_proved_period_are_both_said(both: ScheduleReport) -> None:
    least = both.makespan_bound
    assert verdict(both, M) == (
        f"Makespan proved optimal: no order of this placement ends 16 micro-batches before {least} steps. "
        "The period is proved optimal too."
    )
    assert verdict(both.about(PERIOD), M) == (
        "Period proved optimal: no schedule of this placement is faster than 6 steps per "
        "micro-batch. "
        f"The shortest schedule, {least} steps, is proved optimal too."
    )


def test_what_keeping_a_repetend_costs_is_said_of_either_schedule(both: ScheduleReport) -> None:
    report = apart(both)
    share = report.repetend_makespan / report.makespan - 1
    for spoken in (report, report.about(PERIOD)):
        assert verdict(spoken, M).endswith(f" The steady schedule is {share:.1%} longer than the shortest.")


def test_where_the_least_period_needs_more_micro_batches_than_there_are_it_is_said(both: ScheduleReport) -> None:
    assert both.steady is not None
    longer = Repetend(M, 6 * 40, both.repetend.expand(40).starts)  # type: ignore[union-attr]
    slower = replace(both.steady, repetend=SteadyState(14, 2, 0, 15))
    report = replace(both, repetend=longer, steady=slower)
    for spoken in (report, report.about(PERIOD)):
        text = verdict(spoken, M)
        assert "The least period found needs a repetend of 40 micro-batches. The steady schedule takes 7 steps" in text
        assert "per micro-batch, repeats every 2 micro-batches and is" in text
    assert report.about(PERIOD).objective == 7
    assert report.period_per_micro_batch == 6
    assert report.repetend_makespan is None


def test_of_two_objectives_it_is_said_which_is_proved(both: ScheduleReport) -> None:
    report = apart(both, period_bound=Fraction(5))
    assert "The period is not proved optimal. " in verdict(report, M)
    assert verdict(report.about(PERIOD), M).startswith(
        "Period of 6 steps per micro-batch, not proved optimal: another order of this placement is at most 16.67% "
    )
    assert f"The shortest schedule, {report.makespan} steps, is proved optimal. " in verdict(report.about(PERIOD), M)
    neither = replace(report, status=Status.FEASIBLE, makespan_bound=report.makespan_bound - 1, bound=Fraction(1))
    assert "The period is not proved optimal either. " in verdict(neither, M)
    assert [("proved" in n.beside, "gap" in n.beside) for n in key_numbers(report)[1:3]] == [
        (False, True),
        (True, False),
    ]


def test_too_few_micro_batches_to_repeat_are_said_where_the_period_is_asked() -> None:
    report = solve_schedule("tessel", M, 1)
    assert report.steady is None
    assert verdict(report.about(PERIOD), M).endswith(
        "This is the shortest schedule, because 1 micro-batch is too few to repeat."
    )
    assert "too few" not in verdict(report, M)


def test_a_proved_makespan_is_said_with_its_micro_batches() -> None:
    report = solve_schedule("1f1b", V, 12)
    assert report.status is Status.PROVED_OPTIMAL
    assert (
        verdict(report, V)
        == "Makespan proved optimal: no order of this placement ends 12 micro-batches before 60 steps."
    )


def test_a_feasible_schedule_stands_beside_its_bound_and_gap() -> None:
    report = solve_schedule("sequential", V, 4)
    assert report.status is Status.FEASIBLE
    said = verdict(report, V)
    assert said == (
        "Makespan of 64 steps, not proved optimal: another order of this placement is at most 56.25% shorter, 28 steps."
    )
    assert "proved optimal:" not in said.replace("not proved optimal:", "")


def test_an_order_that_does_not_fit_says_what_would() -> None:
    report = solve_schedule("gpipe", V, 8)
    assert verdict(report, V).startswith("Infeasible: the order exceeds the memory of gpu0–gpu3 by 4 slots each.")
    assert verdict(report, V).endswith("8 slots on every device would be enough for this order.")


@pytest.mark.parametrize(
    ("capacities", "devices"),
    [
        ((8, 7, 8, 8), "gpu1 by 1 slot"),
        ((6, 7, 7, 6), "gpu0 by 2 slots, gpu1–gpu2 by 1 slot each, gpu3 by 2 slots"),
        ((7, 7, 8, 7), "gpu0–gpu1 by 1 slot each, gpu3 by 1 slot"),
        ((8, 8, 5, 5), "gpu2–gpu3 by 3 slots each"),
    ],
)
def test_neighbours_that_lack_as_much_are_named_together(capacities: tuple[int, ...], devices: str) -> None:
    held = zip(V.devices, capacities, strict=True)
    plan = replace(V, devices=tuple(replace(device, memory_capacity=most) for device, most in held))
    assert solve_schedule("gpipe", plan, 8).reason == f"does not fit: the order exceeds the memory of {devices}"


def test_of_many_devices_the_last_are_a_number() -> None:
    plan = build_shape("v-shape", ShapeParameters(devices=64))
    devices = tuple(replace(device, memory_capacity=d % 4) for d, device in enumerate(plan.devices))
    reason = solve_schedule("gpipe", replace(plan, devices=devices), 4).reason
    named = "gpu0 by 4 slots, gpu1 by 3 slots, gpu2 by 2 slots, gpu3 by 1 slot, 60 more by at most 4 slots"
    assert reason == f"does not fit: the order exceeds the memory of {named}"


@pytest.mark.parametrize(("scheduler", "memory"), [("gpipe", 4), ("1f1b", 2)])
def test_nothing_is_called_proved_of_an_order_that_does_not_fit(scheduler: str, memory: int) -> None:
    devices = tuple(replace(device, memory_capacity=memory) for device in V.devices)
    report = solve_schedule(scheduler, replace(V, devices=devices), 12)
    assert report.relaxed_solution is not None
    told = " ".join(number.beside for number in key_numbers(report))
    assert "bound 60 steps" in told
    assert "proved" not in told
    assert "gap" not in told


def test_infeasible_names_the_least_capacity() -> None:
    plan = V.with_capacity(0)
    report = solve_schedule("tessel", plan, 4)
    assert report.status is Status.INFEASIBLE
    assert "1 slot on every device would be enough for a schedule." in verdict(report, plan)
    assert key_numbers(report) == ()


def test_cancelled_is_never_called_optimal_without_proof() -> None:
    control = Control()
    control.cancel()
    report = solve_schedule("time-optimal", build_shape("x-shape"), 12, None, control)
    said = verdict(report, build_shape("x-shape"))
    assert report.status is not Status.PROVED_OPTIMAL
    assert "ancelled" in said


@pytest.mark.parametrize("shape", ["v-shape", "m-shape"])
def test_key_numbers_are_those_of_the_report(shape: str) -> None:
    plan = build_shape(shape)
    for name in [name for name, scheduler in SCHEDULERS.items() if not scheduler.why_not(plan, 4)]:
        print(name)
        report = solve_schedule(name, plan, 4)
        numbers = {number.label: number for number in key_numbers(report)}
        assert numbers["Makespan"].value == f"{report.makespan} steps"
        met = report.makespan == report.makespan_bound
        assert numbers["Makespan"].beside.startswith(f"bound {report.makespan_bound} steps")
        assert ("gap" not in numbers["Makespan"].beside) == met
        assert report.period_bound <= (report.period_per_micro_batch or Fraction(10**9))


def test_speed_up_is_the_ratio_of_makespans() -> None:
    slow, fast = solve_schedule("sequential", V, 12), solve_schedule("1f1b", V, 12)
    assert speed_up(slow, fast) == pytest.approx(16 * 12 / 60)
    assert speed_up(slow, solve_schedule("tessel", V.with_capacity(0), 2)) is None


def test_a_question_is_its_own_key() -> None:
    config = SCHEDULERS["tessel"].config()
    asked = Question("tessel", V, 8, config)
    assert hash(asked) == hash(Question("tessel", build_shape("v-shape"), 8, SCHEDULERS["tessel"].config()))
    assert asked != Question("tessel", V.with_capacity(3), 8, config)
    assert asked.solve(Control()).makespan == solve_schedule("tessel", V, 8).makespan


def test_questions_that_differ_in_the_objective_are_answered_by_one_search(both: ScheduleReport) -> None:
    asked = Question("tessel", M, 16, SCHEDULERS["tessel"].config())
    steady = asked.about(PERIOD)
    assert steady != asked
    assert steady.search == asked.search == asked
    assert steady.about(MAKESPAN) == asked
    assert (asked.title, steady.title) == ("Tessel search", "Tessel search (steady)")
    answered = steady.answered_by(apart(both))
    assert (answered.objective_name, answered.solution, answered.config) == (PERIOD, answered.steady, steady.config)
    assert asked.answered_by(answered).solution is both.shortest
    published = Question("1f1b", V, 8, SCHEDULERS["1f1b"].config())
    assert published.about(PERIOD) == published.search == published


def test_a_schedule_from_elsewhere_is_judged_by_our_own_bounds() -> None:
    schedule = solve_schedule("1f1b", V, 12).solution
    assert schedule is not None
    report = evaluate(schedule, "somebody")
    assert (report.status, report.solver, report.bound) == (Status.PROVED_OPTIMAL, "somebody", 60)
    late = schedule.start.copy()
    late[0] = 5
    broken = Schedule(V, 12, schedule.block, schedule.micro_batch, late)
    with pytest.raises(InputError, match=r"rule: "):
        evaluate(broken, "somebody")


def test_csv_has_a_line_for_every_run_and_device() -> None:
    plan = build_shape("m-shape", ShapeParameters(devices=3, capacity=6))
    schedule = solve_schedule("1f1b+", plan, 5).drawable
    assert schedule is not None
    rows = list(csv.DictReader(io.StringIO(schedule_csv(schedule))))
    assert len(rows) == 5 * sum(len(block.devices) for block in plan.blocks)
    starts = {(row["block"], int(row["micro_batch"])): int(row["start"]) for row in rows}
    for b, block in enumerate(plan.blocks):
        assert [starts[block.name, m] for m in range(5)] == schedule.starts[:, b].tolist()
    peak = max(int(row["memory_after"]) for row in rows if row["device"] == "gpu0")
    assert peak <= MemoryProfile.of(schedule).peaks[0]
    assert [row["memory_after"] for row in rows if row["device"] == "gpu2"][-1] == "0"


def test_large_schedules_are_told_quickly() -> None:
    report = solve_schedule("sequential", V, 5_000)
    began = time.monotonic()
    assert key_numbers(report)
    assert schedule_csv(report.solution or report.relaxed_solution)  # type: ignore[arg-type]
    assert time.monotonic() - began < 2


def test_who_built_a_schedule_is_named_as_on_the_page() -> None:
    report = solve_schedule("1f1b", V, 4)
    (took,) = (each for each in key_numbers(report) if each.label == "Took")
    assert took.beside == "by 1F1B"
