"""Slack and savings by faster blocks agree with the same order timed again, run by run."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from helpers.schedules import any_schedule
from helpers.seeds import seeds

from tessel_core.inspection import Obstacles, OrderGraph, Reason
from tessel_core.model import Schedule
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.order import run_in_order


def order_of(schedule: Schedule) -> list[tuple[int, int]]:
    return list(zip(schedule.block.tolist(), schedule.micro_batch.tolist(), strict=True))


def scaled(schedule: Schedule, times: int, block: int | None = None, of_block: int = 1) -> Schedule:
    """Return the same order with all durations times ten, and those of one block times less."""
    plan = schedule.plan
    longer = replace(
        plan,
        blocks=tuple(
            replace(each, duration=each.duration * (of_block if b == block else times))
            for b, each in enumerate(plan.blocks)
        ),
        dependencies=tuple(replace(dep, lag=dep.lag * times) for dep in plan.dependencies),
    )
    return Schedule.from_starts(longer, run_in_order(longer, schedule.micro_batches, order_of(schedule)))


@pytest.mark.parametrize("seed", seeds(200))
def test_faster_blocks_are_timed_anew(seed: int) -> None:
    schedule = any_schedule(seed)
    graph = OrderGraph.of(schedule)
    least = scaled(schedule, 1).makespan
    assert graph.makespan == least <= schedule.makespan
    for b, saved in enumerate(graph.savings()):
        assert saved == least - Fraction(scaled(schedule, 10, b, 9).makespan, 10)
        assert 0 <= saved <= Fraction(least, 10)
    for b, saved in enumerate(graph.savings(Fraction(2, 3))):
        assert saved == least - Fraction(scaled(schedule, 3, b, 1).makespan, 3)


def latest_end(schedule: Schedule, row: int, late: int) -> int:
    """Return the makespan if one run starts later by this much.

    The others keep their order, and do not start earlier.
    """
    plan = schedule.plan
    ends = np.zeros((schedule.micro_batches, len(plan.blocks)), dtype=np.int64)
    free = [0] * len(plan.devices)
    for i, (b, m) in enumerate(order_of(schedule)):
        block = plan.blocks[b]
        waits = [free[d] for d in block.devices] + [ends[m, a] + lag for a, lag in plan.predecessors[b]]
        ends[m, b] = max(*waits, int(schedule.start[i]) + (late if i == row else 0)) + block.duration
        for d in block.devices:
            free[d] = int(ends[m, b])
    return int(ends.max())


@pytest.mark.parametrize("seed", seeds(1000, 1150))
def test_slack_is_the_most_by_which_a_run_may_be_late(seed: int) -> None:
    schedule = any_schedule(seed)
    for row, slack in enumerate(OrderGraph.of(schedule).slack.tolist()):
        assert slack >= 0
        assert latest_end(schedule, row, slack) == schedule.makespan
        assert latest_end(schedule, row, slack + 1) == schedule.makespan + 1


@pytest.mark.parametrize("seed", seeds(2000, 2080))
def test_runs_of_the_critical_path_have_no_slack(seed: int) -> None:
    schedule = any_schedule(seed)
    slack, path = OrderGraph.of(schedule).slack, Obstacles.of(schedule).critical_path()
    assert not slack[[link.row for link in path]].any()
    if path[-1].obstacle.reason is Reason.COULD:
        assert OrderGraph.of(schedule).makespan <= schedule.makespan
    else:
        assert path[-1].obstacle.reason is Reason.BEGINNING
        assert OrderGraph.of(schedule).makespan == schedule.makespan


def test_many_runs_are_timed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = solve_schedule("1f1b", load_sample("gpt-6.7b-v-4"), 12).drawable
    assert found is not None
    whole = OrderGraph.of(found).savings()
    monkeypatch.setattr("tessel_core.inspection.order._MAX_PATH_LENGTHS", 3 * len(found.start))
    assert OrderGraph.of(found).savings() == whole
    assert any(whole)
