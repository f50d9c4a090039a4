"""Idle time: both splits are exact, and the causes agree with a check of every tick."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from helpers.moments import causes_by_tick, counted, steady_causes_by_tick
from helpers.plans import random_plan
from helpers.schedules import any_schedule
from helpers.seeds import one_in, seeds
from helpers.simulator import broken_rules

from tessel_core.errors import InputError
from tessel_core.inspection import CAUSES, Cause, IdleCauses, IdleSplit, idle_causes, repeated_part, steady_idle_causes
from tessel_core.model import (
    Block,
    BlockKind,
    Dependency,
    MicroBatchPlan,
    PlanDevice,
    Repetend,
    Schedule,
    SteadyState,
)
from tessel_core.samples import list_samples, load_sample
from tessel_core.scheduling import SCHEDULERS, solve_schedule
from tessel_core.scheduling.list_scheduling import ListSchedulingConfig
from tessel_core.scheduling.order import one_after_the_other
from tessel_core.scheduling.schedulers import BASELINES
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.scheduling.time_optimal import TimeOptimalConfig

F, B = BlockKind.FORWARD, BlockKind.BACKWARD


SEARCHES = {
    "tessel": TesselConfig(time_limit=0.2, polish=0.0),
    "list-scheduling": ListSchedulingConfig(restarts=5),
    "time-optimal": TimeOptimalConfig(time_limit=0.5),
}


def by_tick(causes: IdleCauses) -> list[list[str | None]]:
    """Return the cause at each tick."""
    lines: list[list[str | None]] = [[None] * causes.length for _ in range(causes.devices)]
    columns = (causes.device, causes.start, causes.end, causes.cause)
    for device, start, end, cause in zip(*(column.tolist() for column in columns), strict=True):
        assert start < end
        for tick in range(start, end):
            assert lines[device][tick] is None, "no tick has two causes"
            lines[device][tick] = CAUSES[cause].value
    return lines


def holds_together(causes: IdleCauses, split: IdleSplit, steps: Fraction) -> None:
    """Assert that the parts sum to the idle time, in ticks and as fractions, for `steps` micro-batches."""
    assert causes.length == split.length * steps
    for d, work in enumerate(split.work):
        assert sum(causes.ticks(d).values()) == causes.length - work * steps
    assert sum(causes.shares.values()) == split.idle == split.imbalance + split.bubble
    assert sum(causes.shares_of(split.busiest).values()) == split.bubble
    if split.bound is not None:
        assert split.unavoidable is not None
        assert split.open is not None
        assert min(split.unavoidable, split.open) >= 0
        assert split.bubble == split.unavoidable + split.open
    together = [a == b for a, b in zip(causes.device[1:], causes.device[:-1], strict=True)]
    touching = causes.start[1:] == causes.end[:-1]
    assert not (np.array(together, dtype=bool) & touching & (causes.cause[1:] == causes.cause[:-1])).any()


def agrees_with_every_tick(schedule: Schedule) -> set[str]:
    causes = idle_causes(schedule)
    slow = causes_by_tick(schedule)
    assert by_tick(causes) == slow
    for d, line in enumerate(slow):
        assert {cause: ticks for cause, ticks in causes.ticks(d).items() if ticks} == counted(line)
    holds_together(causes, IdleSplit.of(schedule), Fraction(1))
    return {cause for line in slow for cause in line if cause}


@pytest.mark.parametrize("seed", seeds(400))
def test_causes_of_any_order(seed: int) -> None:
    """Also for orders that exceed the memory, which are drawn as well."""
    agrees_with_every_tick(any_schedule(seed))


@pytest.mark.parametrize("seed", seeds(80))
@pytest.mark.parametrize("scheduler", SEARCHES)
def test_causes_of_what_is_searched(scheduler: str, seed: int) -> None:
    found = solve_schedule(scheduler, random_plan(seed), 4, SEARCHES[scheduler]).solution
    if found is not None:
        agrees_with_every_tick(found)


def test_every_cause_is_tried() -> None:
    seen = set[str]()
    for seed in range(60):
        seen |= agrees_with_every_tick(any_schedule(seed))
    assert seen == {cause.value for cause in CAUSES}


@pytest.mark.parametrize("seed", seeds(200))
def test_causes_of_the_steady_state(seed: int) -> None:
    """For any repetend: sequential, or compacted until micro-batches overlap, also with two of them per period."""
    plan, choose = random_plan(seed), random.Random(seed)
    alone = one_after_the_other(plan)
    tries = [alone]
    for unroll in (1, 2, 3):
        for _ in range(20):
            period = choose.randint(unroll * plan.busiest_work, unroll * alone.period)
            starts = np.array([alone.first_start[0] + choose.randint(0, period) for _ in range(unroll)])
            squeezed = Repetend(plan, period, starts)
            spans = squeezed.latency // period + 2
            if not broken_rules(squeezed.expand(2 * spans * unroll)) - {"memory"}:
                tries.append(squeezed)
                break
    for repetend in tries:
        causes, slow = steady_idle_causes(repetend), steady_causes_by_tick(repetend)
        assert by_tick(causes) == slow
        assert not causes.table[:, :2].any(), "nothing is warmup or cooldown"
        holds_together(causes, IdleSplit.of_steady(repetend), Fraction(repetend.unroll))


@pytest.mark.parametrize("seed", one_in(4, (1317, 1538, 2374, 2844, 3231, 3297, 3373, 3377)))
def test_causes_of_steady_states_that_are_searched(seed: int) -> None:
    """In these plans, two micro-batches per period are better than one."""
    report = solve_schedule("tessel", random_plan(seed), 8, TesselConfig(time_limit=0.5, polish=0.0))
    assert report.repetend is not None
    causes = steady_idle_causes(report.repetend)
    assert by_tick(causes) == steady_causes_by_tick(report.repetend)
    holds_together(causes, IdleSplit.of_steady(report.repetend, report.period_bound), Fraction(report.unroll or 1))
    assert report.solution is not None
    assert report.makespan_bound is not None
    holds_together(idle_causes(report.solution), IdleSplit.of(report.solution, report.makespan_bound), Fraction(1))


SMALL = [sample.name for sample in list_samples() if load_sample(sample.name).time_unit == "step"]


@pytest.mark.parametrize("sample", one_in(3, [sample.name for sample in list_samples()]))
def test_every_sample_and_published_order(sample: str) -> None:
    plan = load_sample(sample)
    for name in [name for name, scheduler in BASELINES.items() if not scheduler.why_not(plan, 6)]:
        print(name)
        report = solve_schedule(name, plan, 6)
        drawn = report.drawable
        assert drawn is not None
        causes = idle_causes(drawn)
        holds_together(causes, IdleSplit.of(drawn, report.makespan_bound), Fraction(1))
        assert (IdleSplit.of(drawn).bound is None) == (report.solution is None)
        if drawn.makespan <= 600:
            assert by_tick(causes) == causes_by_tick(drawn)
        part = repeated_part(drawn)
        if part is not None:
            steady = steady_idle_causes(part)
            holds_together(steady, IdleSplit.of_steady(part, report.period_bound), Fraction(part.unroll))
            if part.period <= 600:
                assert by_tick(steady) == steady_causes_by_tick(part)


@pytest.mark.parametrize("sample", one_in(4, SMALL))
def test_tessel_on_every_small_sample(sample: str) -> None:
    report = solve_schedule("tessel", load_sample(sample), 8, TesselConfig(time_limit=0.5, polish=0.0))
    assert report.solution is not None
    agrees_with_every_tick(report.solution)
    if report.repetend is not None:
        causes = steady_idle_causes(report.repetend)
        assert by_tick(causes) == steady_causes_by_tick(report.repetend)
        split = IdleSplit.of_steady(report.repetend, report.period_bound)
        holds_together(causes, split, Fraction(report.repetend.unroll))
        assert report.steady_bubble_rate == float(split.bubble)
    assert report.solution.bubble_rate == pytest.approx(float(IdleSplit.of(report.solution).bubble))


def test_every_scheduler_is_tried() -> None:
    assert {*SEARCHES, *BASELINES} == set(SCHEDULERS)


TWO = MicroBatchPlan(
    "two",
    (PlanDevice("gpu0", 1), PlanDevice("gpu1"), PlanDevice("spare")),
    (Block("F0", F, (0,), 1, 1), Block("F1", F, (1,), 1), Block("B1", B, (1,), 2), Block("B0", B, (0,), 2, -1)),
    (Dependency("F0", "F1", 1), Dependency("F1", "B1"), Dependency("B1", "B0")),
)
"""A plan in which gpu0 has room for only one micro-batch."""


def test_two_micro_batches_in_a_row_by_hand() -> None:
    starts = np.array([[0, 2, 3, 5], [7, 9, 10, 12]])
    causes = idle_causes(Schedule.from_starts(TWO, starts))
    assert causes.length == 14
    assert causes.ticks(0) | {} == {**dict.fromkeys(CAUSES, 0), Cause.MEMORY: 4, Cause.DATA: 4}
    assert causes.ticks(1) == {
        **dict.fromkeys(CAUSES, 0),
        Cause.WARMUP: 2,
        Cause.COOLDOWN: 2,
        Cause.COMMUNICATION: 1,
        Cause.DATA: 3,
    }
    assert causes.ticks(2) == {**dict.fromkeys(CAUSES, 0), Cause.DATA: 14}, "a device without blocks waits for data"


def test_the_first_split_by_hand() -> None:
    schedule = Schedule.from_starts(TWO, np.array([[0, 2, 3, 5], [7, 9, 10, 12]]))
    split = IdleSplit.of(schedule, 10)
    assert split.work == (6, 6, 0)
    assert split.busiest == (0, 1)
    assert (split.idle, split.imbalance, split.bubble) == (Fraction(10, 14), Fraction(2, 14), Fraction(8, 14))
    assert (split.unavoidable, split.open) == (Fraction(4, 14), Fraction(4, 14))
    assert IdleSplit.of(schedule).bound == 6, "where nothing is proved, the busiest device's work bounds"
    steady = IdleSplit.of_steady(Repetend(TWO, 7, np.array([[0, 2, 3, 5]])), Fraction(7))
    assert (steady.idle, steady.bubble, steady.open) == (Fraction(5, 7), Fraction(4, 7), 0)


def test_a_schedule_that_does_not_fit_has_no_bound() -> None:
    squeezed = Schedule.from_starts(TWO, np.array([[0, 2, 3, 6], [1, 5, 6, 8]]))
    split = IdleSplit.of(squeezed, 14)
    assert split.bound is split.unavoidable is split.open is None
    assert split.idle == split.imbalance + split.bubble
    overlapping = Repetend(TWO, 4, np.array([[0, 2, 3, 5]]))
    assert IdleSplit.of_steady(overlapping, 5).bound is None


def test_a_bound_above_the_length_is_refused() -> None:
    schedule = Schedule.from_starts(TWO, np.array([[0, 2, 3, 5]]))
    with pytest.raises(InputError, match="bound: is 8, which is more than the length of the schedule, 7"):
        IdleSplit.of(schedule, 8)


def test_causes_of_a_range() -> None:
    causes = idle_causes(Schedule.from_starts(TWO, np.array([[0, 2, 3, 5], [7, 9, 10, 12]])))
    part = causes.within(1, 4)
    assert part.length == 3
    assert part.ticks(0)[Cause.MEMORY] == 3
    assert part.ticks(1) == {**dict.fromkeys(CAUSES, 0), Cause.WARMUP: 1}
    assert part.shares[Cause.DATA] == Fraction(1, 3)


def test_what_repeats_in_a_schedule() -> None:
    """Starts that repeat every 3 ticks take 3 ticks of gpu0 per micro-batch. They could not repeat every 2 ticks."""
    fitting = Schedule.from_starts(TWO.with_capacity(9), np.array([[0, 2, 3, 19], [3, 5, 6, 22], [6, 8, 9, 25]]))
    assert repeated_part(fitting) is None
    kept = replace(fitting, repetend=SteadyState(3, 1, 0, 2))
    part = repeated_part(kept)
    assert part is not None
    assert part.first_start.tolist() == [[0, 2, 3, 19]]
    assert steady_idle_causes(part).table.sum() == 3
    crowded = Schedule(
        TWO.with_capacity(9),
        2,
        *np.array([[b, m, start + 2 * m] for m in range(2) for b, start in enumerate((0, 2, 3, 19))]).T,
        repetend=SteadyState(2, 1, 0, 1),
    )
    assert repeated_part(crowded) is None
    tight = replace(kept, plan=TWO.with_capacity(3))
    assert repeated_part(tight) is None, "for ever, seven are held at once"


def test_one_run() -> None:
    alone = MicroBatchPlan("alone", (PlanDevice("gpu0"),), (Block("F", F, (0,), 2),))
    causes = idle_causes(Schedule.from_starts(alone, np.array([[0]])))
    assert (causes.length, len(causes.start)) == (2, 0)
    assert steady_idle_causes(Repetend(alone, 3, np.array([[0]]))).ticks(0)[Cause.ORDER] == 1


def test_missing_runs_are_refused() -> None:
    schedule = Schedule.from_starts(TWO, np.array([[0, 2, 3, 5]]))
    with pytest.raises(ValueError, match="exactly once"):
        idle_causes(replace(schedule, micro_batches=2))
