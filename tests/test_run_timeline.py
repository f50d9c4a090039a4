"""Measured runs on the timeline: every moment is drawn, and the text about a run gives its error."""

from __future__ import annotations

import pytest
from helpers.measured import TICK_NS, as_measured

from tessel_core.charts.run_timeline import Laid, run_data
from tessel_core.charts.timeline import timeline_frames
from tessel_core.execution.fitting import expected
from tessel_core.formats.fields import read_with
from tessel_core.formats.run_file import run_file, run_from, run_text
from tessel_core.rules import check_schedule
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.workbench.messages.running import about_run, equality_sentence, run_numbers
from tessel_core.workbench.running import RunQuestion, RunReport, in_the_order_of, measured_plan

SAMPLES = "v-shape-4", "m-shape-4"


def scheduled(sample: str):
    report = solve_schedule("sequential", load_sample(sample), 3)
    assert report.solution is not None
    return report.solution


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_moment_of_every_device_is_drawn(sample: str) -> None:
    run = as_measured(scheduled(sample))
    plan, schedule = run.schedule.plan, run.schedule
    lasting = [block.duration * 1_000 for block in plan.blocks]
    shown = Laid.measured("a", run), Laid.planned("b", schedule, 1_000.0), Laid.planned("c", schedule, 1.0, lasting)
    (header, columns), other, longer = timeline_frames(run_data(shown))
    assert [each[0]["title"] for each in ((header,), other, longer)] == ["a", "b", "c"]
    found = {
        (int(row), int(lane), int(start), int(start) + header["durations"][lasts])
        for row, lane, start, lasts in zip(
            *(columns[name] for name in ("operation", "lane", "start", "duration")), strict=True
        )
    }
    assert found == {
        (row, device, run.start_ns[row][i], run.end_ns[row][i])
        for row, b in enumerate(schedule.block.tolist())
        for i, device in enumerate(plan.blocks[b].devices)
    }
    assert header["makespan"] == run.makespan_ns
    assert other[0]["makespan"] == schedule.makespan * 1_000
    assert longer[0]["durations"] == sorted(set(lasting))


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_run_comes_back_from_its_file_with_what_was_expected_of_it(sample: str) -> None:
    run = as_measured(scheduled(sample))
    kept = read_with(run_from, run_text(run_file(run)).encode(), "a file").run
    assert (kept.start_ns, kept.end_ns, kept.peak_bytes, kept.losses) == (
        run.start_ns,
        run.end_ns,
        run.peak_bytes,
        run.losses,
    )
    assert kept.expected == run.expected
    again = read_with(run_from, run_text(run_file(as_measured(run.schedule, expected=False))).encode(), "a file").run
    assert again.expected is None
    assert RunReport.of(again).prediction is None


def test_what_is_told_of_a_run_is_how_far_it_is_off() -> None:
    run = as_measured(scheduled("v-shape-4"))
    report = RunReport.of(run)
    assert report.prediction is not None
    assert report.prediction.makespan_ns == run.schedule.makespan * TICK_NS
    late = run.start_ns[3][0] - int(run.schedule.start[3]) * TICK_NS
    (began, said), (lasted, share) = about_run(report, True, f"3.{run.schedule.plan.blocks[3].devices[0]}").lines
    assert (began, lasted) == ("Began", "Lasted")
    assert said == (f"{late} ns later than predicted.",)
    block = run.schedule.plan.blocks[int(run.schedule.block[3])]
    assert share == (f"{1 - 2000 / (block.duration * TICK_NS):.3f} times as long as predicted.",)
    assert not about_run(report, False, "3.0").lines
    assert not about_run(report, True, "9999.0").lines
    assert not about_run(report, True, "g0.5").lines
    assert equality_sentence(report) == (
        "All losses and gradients equal those of one process: the largest difference is 1.0e-15 of the largest number."
    )
    numbers = {each.label: each.value for each in run_numbers(report)}
    assert numbers["Fullest device"] == "16.4 kB"
    assert numbers["Loss"] == "2"


def test_a_measured_plan_has_what_the_run_lasted() -> None:
    run = as_measured(scheduled("v-shape-4"))
    plan = measured_plan(run)
    assert plan.time_unit == "ns"
    assert tuple(block.duration for block in plan.blocks) == expected(run).block_ns
    assert [block.memory for block in plan.blocks] == [block.memory for block in run.schedule.plan.blocks]
    for block, was in zip(plan.blocks, run.schedule.plan.blocks, strict=True):
        assert abs(block.duration - was.duration * TICK_NS) < 5_000


def test_an_order_that_was_found_for_other_durations_is_one_of_the_plan() -> None:
    plan = load_sample("v-shape-4")
    slow = measured_plan(as_measured(scheduled("v-shape-4")))
    found = solve_schedule("1f1b", slow, 6).solution
    assert found is not None
    schedule = in_the_order_of(found, plan)
    assert schedule.plan == plan
    assert not check_schedule(schedule)
    for d in range(4):
        order = [
            (int(each.block[row]), int(each.micro_batch[row])) for each in (found, schedule) for row in each.runs_on(d)
        ]
        assert order[: len(order) // 2] == order[len(order) // 2 :]


def test_what_was_delivered_is_of_the_newest_round() -> None:
    schedule = scheduled("v-shape-4")
    question = RunQuestion(schedule, None, measure=True)  # type: ignore[arg-type]
    on = {d: schedule.runs_on(d).tolist() for d in range(4)}

    def timed(device: int) -> list[tuple[int, int, int, int]]:
        return [(int(schedule.block[row]), int(schedule.micro_batch[row]), row, row + 1) for row in on[device]]

    assert (question.latest([]), question.round_of([])) == ([], 0)
    first = [(d, timed(d)) for d in range(4)]
    assert sorted(row for row, *_ in question.latest(first)) == sorted(row for rows in on.values() for row in rows)
    more = [*first, (2, timed(2)[:1])]
    assert (question.latest(more), question.round_of(more)) == ([(on[2][0], 2, on[2][0], on[2][0] + 1)], 1)
