"""Measured runs: fits, predictions and comparisons, without PyTorch."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from helpers.networks import some_network, some_schedule
from helpers.seeds import seeds

from tessel_core.errors import InputError
from tessel_core.execution.fitting import Fit, expected
from tessel_core.formats.fields import read_with
from tessel_core.formats.run_file import RunFile, run_from, run_text
from tessel_core.formats.schedule_file import ScheduleFile, ScheduleFileReport
from tessel_core.model import MeasuredRun, Schedule, Status
from tessel_core.rules import check_run, check_schedule
from tessel_core.scheduling.search.timing import compacted
from tessel_core.workbench.running import Prediction, RunReport


def measured(schedule: Schedule, **more: object) -> MeasuredRun:
    """Return a run in which a schedule in nanoseconds took exactly its planned times."""
    devices = [schedule.plan.blocks[b].devices for b in schedule.block.tolist()]
    starts, ends = (
        tuple((moment,) * len(on) for moment, on in zip(column.tolist(), devices, strict=True))
        for column in (schedule.start, schedule.end)
    )
    return MeasuredRun(schedule, "toy", starts, ends, (7,) * len(schedule.plan.devices), **more)  # type: ignore[arg-type]


def real(seed: int) -> tuple[Schedule, Schedule]:
    """Return a schedule in steps, and the earliest times of its order with durations and lags in nanoseconds."""
    choose = random.Random(seed)
    plan = some_network(choose, 3)
    asked = some_schedule(choose, plan, 4)
    slow = replace(
        plan,
        time_unit="ns",
        blocks=tuple(replace(block, duration=choose.randint(1_000, 9_000)) for block in plan.blocks),
        dependencies=tuple(replace(arc, lag=choose.randint(0, 3_000)) for arc in plan.dependencies),
    )
    order = Schedule(slow, 4, asked.block, asked.micro_batch, np.arange(len(asked.start)))
    ran = Schedule.at_starts(slow, compacted(order))
    starts = ran.starts[asked.micro_batch, asked.block]
    return asked, Schedule(slow, 4, asked.block, asked.micro_batch, starts)


@pytest.mark.parametrize("seed", seeds(60))
def test_what_is_fitted_to_a_run_predicts_it(seed: int) -> None:
    """Durations and starts agree to the nanosecond. Lags are at most the gaps that the run had."""
    _, ran = real(seed)
    run = measured(ran)
    fit = Fit.of(run.schedule.plan, expected(run))
    assert [block.duration for block in fit.plan.blocks] == [block.duration for block in ran.plan.blocks]
    assert np.array_equal(fit.timed(ran).starts, ran.starts)
    assert not check_schedule(replace(ran, plan=fit.plan))
    prediction = Prediction.by_run(run.schedule, expected(run))
    assert prediction.makespan_ns == run.makespan_ns
    assert prediction.idle == pytest.approx(run.idle)
    report = RunReport(run, None, prediction)
    assert report.ratio == 1
    assert all(predicted == found for _, predicted, found in report.worst_blocks)
    assert not check_run(run)


def test_a_gap_after_every_run_counts_to_its_block() -> None:
    """A device that does other work for 100 ns after each run."""
    _, ran = real(1)
    wider = replace(ran.plan, blocks=tuple(replace(each, duration=each.duration + 100) for each in ran.plan.blocks))
    order = Schedule(wider, 4, ran.block, ran.micro_batch, np.arange(len(ran.start)))
    later = Schedule.at_starts(wider, compacted(order))
    again = Schedule(ran.plan, 4, later.block, later.micro_batch, later.start)
    fit = Fit.of(again.plan, expected(measured(again)))
    assert np.array_equal(fit.timed(again).starts, again.starts)
    assert set(fit.turns) <= {0, 100}
    assert 100 in fit.turns


def test_a_run_that_breaks_its_schedule_is_found() -> None:
    _, ran = real(3)
    run = measured(ran)
    plan = ran.plan
    before, after, _ = max(plan.arcs, key=lambda arc: plan.topological_order.index(arc[1]))
    rows = {(b, m): row for row, (b, m) in enumerate(zip(ran.block.tolist(), ran.micro_batch.tolist(), strict=True))}
    ends = list(run.end_ns)
    ends[rows[before, 0]] = tuple(end + 10**9 for end in ends[rows[before, 0]])
    found = {each.rule: str(each) for each in check_run(replace(run, end_ns=tuple(ends)))}
    assert set(found) == {"dependency", "order"}
    assert f"block {plan.blocks[after].name} of micro-batch 0 on gpu" in found["dependency"]
    assert f"ns before {plan.blocks[before].name} had ended" in found["dependency"]


def test_a_run_is_kept_whole_and_refused_in_parts() -> None:
    asked, ran = real(5)
    run = replace(measured(ran), losses=(0.5,) * 4, equal=True, difference=1e-16, schedule=asked)
    file = RunFile(ScheduleFile(asked, "tessel", ScheduleFileReport(Status.FEASIBLE, "makespan", None, None, 0.0)), run)
    text = run_text(file)
    again = read_with(run_from, text.encode(), "a file")
    assert run_text(again) == text
    assert again.run.makespan_ns == run.makespan_ns
    for wrong, right, why in (
        ('"peak_bytes": [7, 7, 7]', '"peak_bytes": [7, 7]', "peak_bytes: has 2 entries, but must have 3"),
        ('"equal": true', '"equal": 1', "equal: must be true or false, got 1"),
        ('"start_ns": [[', '"start_ns": [[1000000000000], [', "start_ns: has "),
        ('"engine": "toy"', '"engine": "toy", "extra": 1', "unknown key 'extra'"),
    ):
        assert wrong in text
        with pytest.raises(InputError, match=f"^a file: .*{why}"):
            read_with(run_from, text.replace(wrong, right).encode(), "a file")
