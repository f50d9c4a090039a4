"""The search against exhaustive oracles, on random small plans."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from helpers.brute_force import fits, has_repetend, least_capacity, least_makespan, least_period
from helpers.plans import random_plan
from helpers.seeds import one_in, reaching, seeds
from helpers.simulator import broken_rules

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict
from tessel_core.model import MAKESPAN, PERIOD, MicroBatchPlan, Repetend, Schedule, ScheduleReport, Status
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.bounds import makespan_bound, period_bound
from tessel_core.scheduling.order import one_after_the_other
from tessel_core.scheduling.search.capacity import find_fitting_order
from tessel_core.scheduling.search.devices_bound import bound_of, devices_bound
from tessel_core.scheduling.search.devices_model import schedule_within
from tessel_core.scheduling.search.ends_bound import ends_bound
from tessel_core.scheduling.search.incumbent import Incumbent
from tessel_core.scheduling.search.period_search import FoundPeriod, search_period
from tessel_core.scheduling.search.runs_model import minimise_all_runs
from tessel_core.scheduling.search.states_bound import states_bound
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.scheduling.time_optimal import TimeOptimalConfig
from tessel_core.workbench.messages.schedule import verdict

EFFORT = Effort(seconds=10.0, workers=2, seed=0)
any_plan = pytest.mark.parametrize("seed", seeds(100))
UNROLLING_HELPS = (1317, 1538, 2374, 2844, 3231, 3297, 3373, 3377, 3695, 3735, 3887, 4258, 5234, 6771, 7084)
"""Seeds of small plans in which two micro-batches per period are better than one, which is rare."""
small_plan = pytest.mark.parametrize("seed", [*seeds(1000, 1050), *one_in(3, UNROLLING_HELPS)])


def fitting_plan(seed: int, **sizes: tuple[int, ...]) -> MicroBatchPlan:
    """Return a random plan of which one micro-batch fits on the devices."""
    return random_plan(reaching(seed, lambda each: fits(random_plan(each, **sizes))), **sizes)


def search(plan: MicroBatchPlan, micro_batches: int, max_unroll: int) -> ScheduleReport:
    config = TesselConfig(objective=PERIOD, max_unroll=max_unroll, polish=0.0, time_limit=0.5)
    return solve_schedule("tessel", plan, micro_batches, config)


def searched_period(plan: MicroBatchPlan, max_unroll: int) -> FoundPeriod | None:
    """What phase 1 finds when the clock does not decide; None where nothing fits."""
    effort = Effort(10.0, 1, 0, repeatable=True)
    _, order = find_fitting_order(plan, effort, Control())
    return None if order is None else search_period(plan, order, max_unroll, effort, Control(60.0))


@any_plan
def test_the_period_is_at_most_the_least_without_unrolling(seed: int):
    """Circles of several micro-batches may be shorter; alone, none is."""
    plan = fitting_plan(seed)
    found, least = searched_period(plan, 1), least_period(plan, 1)
    assert least is not None
    assert found is not None
    assert found.bound <= found.repetend.period_per_micro_batch <= least
    assert found.repetend.unroll > 1 or found.repetend.period == least
    assert not broken_rules(found.repetend.expand(2 * found.repetend.unroll + 2))


@small_plan
def test_the_period_is_at_most_the_least_with_two_micro_batches(seed: int):
    plan = fitting_plan(seed, blocks=(2, 3))
    found, alone, pair = searched_period(plan, 2), least_period(plan, 1), least_period(plan, 2)
    assert alone is not None
    assert pair is not None
    least = min(Fraction(alone), Fraction(pair, 2))
    assert found is not None
    assert found.bound <= found.repetend.period_per_micro_batch <= least
    assert found.repetend.unroll > 2 or found.repetend.period_per_micro_batch == least


@pytest.mark.parametrize("seed", seeds(4000, 4040))
def test_fine_costs_lose_nothing(seed: int):
    """Durations times 997 are searched on coarser copies, and timed exactly afterwards."""
    plan = fitting_plan(seed)
    least = least_period(plan, 1)
    fine = replace(
        plan,
        blocks=tuple(replace(block, duration=block.duration * 997) for block in plan.blocks),
        dependencies=tuple(replace(dep, lag=dep.lag * 997) for dep in plan.dependencies),
    )
    found = searched_period(fine, 1)
    assert least is not None
    assert found is not None
    assert period_bound(fine) == 997 * period_bound(plan) <= found.bound
    assert found.bound <= found.repetend.period_per_micro_batch <= 997 * least


@any_plan
def test_the_makespan_is_the_least(seed: int):
    plan = random_plan(seed)
    for micro_batches in (1, 2, 3):
        report = solve_schedule("time-optimal", plan, micro_batches, TimeOptimalConfig(time_limit=10.0))
        least = least_makespan(plan, micro_batches)
        if least is None:
            assert report.status is Status.INFEASIBLE
            assert report.solution is None
            continue
        assert report.status is Status.PROVED_OPTIMAL
        assert report.makespan == report.makespan_bound == least


@any_plan
def test_the_two_phases_prove_nothing_but_the_least_makespan(seed: int):
    plan = random_plan(seed)
    for micro_batches in (1, 3):
        report, least = search(plan, micro_batches, 2).about(MAKESPAN), least_makespan(plan, micro_batches)
        if least is None:
            assert report.status is Status.INFEASIBLE
            continue
        assert report.bound <= least <= report.objective
        assert (report.status is Status.PROVED_OPTIMAL) == (report.objective == report.bound)
        assert report.repetend_makespan is None or report.repetend_makespan >= least


@any_plan
def test_all_runs_at_once_are_proved(seed: int):
    """From no bound and the sequential schedule to the proved optimum."""
    plan = fitting_plan(seed)
    _, order = find_fitting_order(plan, EFFORT, Control())
    assert order is not None
    for micro_batches in (1, 3):
        incumbent = Incumbent(plan, one_after_the_other(plan, order).expand(micro_batches).starts, 0, Control())
        minimise_all_runs(incumbent, EFFORT, Control())
        assert incumbent.makespan == incumbent.bound == least_makespan(plan, micro_batches)
        assert not broken_rules(Schedule.from_starts(plan, incumbent.starts))


@any_plan
def test_no_bound_is_above_the_optimum(seed: int):
    plan = fitting_plan(seed)
    for micro_batches in (1, 2, 3, 4):
        least = least_makespan(plan, micro_batches)
        assert least is not None
        combinatorial = makespan_bound(plan, micro_batches)
        assert combinatorial <= least
        tight = plan.with_capacity(least_capacity(plan))
        tightest = least_makespan(tight, micro_batches)
        assert tightest is None or makespan_bound(tight, micro_batches) <= tightest
        for periods in (0.5, 1.0, 1.5):
            assert ends_bound(plan, micro_batches, periods, combinatorial, EFFORT, Control()) <= least
        assert search(plan, micro_batches, 1).makespan_bound <= least


@any_plan
def test_the_devices_bound_is_below_the_optimum_and_meets_it_on_all_devices(seed: int):
    plan = fitting_plan(seed)
    for micro_batches in (1, 2, 3, 4):
        least = least_makespan(plan, micro_batches)
        assert least is not None
        for known in (None, least):
            assert devices_bound(plan, micro_batches, 0, EFFORT, Control(), known=known) <= least
        everything = range(len(plan.devices))
        assert bound_of(everything, plan, micro_batches, 0, EFFORT, Control())[0] == least


@any_plan
def test_a_schedule_is_found_within_the_optimum_and_excluded_below(seed: int):
    plan = fitting_plan(seed)
    for micro_batches in (1, 3):
        least = least_makespan(plan, micro_batches)
        assert least is not None
        verdict, found = schedule_within(plan, micro_batches, least, EFFORT, Control())
        assert found is not None
        assert verdict is Verdict.FOUND
        assert not broken_rules(found)
        assert found.makespan == least
        assert schedule_within(plan, micro_batches, least - 1, EFFORT, Control()) == (Verdict.IMPOSSIBLE, None)


@pytest.mark.parametrize("seed", seeds(5000, 5060))
def test_no_schedule_of_fine_costs_is_excluded(seed: int):
    plan = with_fine_costs(fitting_plan(seed), seed)
    least = least_makespan(plan, 3)
    assert least is not None
    found = schedule_within(plan, 3, least, EFFORT, Control())[1]
    assert found is not None
    assert not broken_rules(found)
    assert least <= found.makespan <= 1.02 * least
    assert schedule_within(plan, 3, int(0.98 * least), EFFORT, Control()) == (Verdict.IMPOSSIBLE, None)


@pytest.mark.parametrize("seed", seeds(5000, 5060))
def test_rounding_fine_costs_keeps_the_devices_bound_below_the_optimum(seed: int):
    """The loss is small: each block is rounded by less than a thousandth of the busiest device's work."""
    plan = with_fine_costs(fitting_plan(seed), seed)
    least = least_makespan(plan, 3)
    assert least is not None
    for known in (None, least):
        bound, _ = bound_of(range(len(plan.devices)), plan, 3, 0, EFFORT, Control(), known)
        assert 0.98 * least <= bound <= least


def with_fine_costs(plan: MicroBatchPlan, seed: int) -> MicroBatchPlan:
    """Return the plan with different durations and lags of some thousand ticks."""
    choose = random.Random(seed)
    return replace(
        plan,
        blocks=tuple(replace(each, duration=each.duration * 9973 + choose.randrange(5000)) for each in plan.blocks),
        dependencies=tuple(replace(each, lag=each.lag * 9973 + choose.randrange(5000)) for each in plan.dependencies),
    )


@any_plan
def test_the_states_bound_is_below_the_period(seed: int):
    plan = fitting_plan(seed)
    least = least_period(plan, 1)
    assert least is not None
    for known in (None, Fraction(least)):
        assert states_bound(plan, Fraction(0), EFFORT, Control(), known=known) <= least


@small_plan
def test_the_states_bound_is_below_the_period_of_two_micro_batches(seed: int):
    plan = fitting_plan(seed, blocks=(2, 3))
    bound = states_bound(plan, Fraction(0), EFFORT, Control())
    for unroll in (1, 2):
        least = least_period(plan, unroll)
        assert least is not None
        assert bound <= Fraction(least, unroll)


@any_plan
def test_infeasible_is_said_exactly_where_nothing_fits(seed: int):
    """With the random capacities, and with the least ones on every device."""
    plan = random_plan(seed)
    least = least_capacity(plan)
    report = search(plan, 2, 1)
    assert (report.status is Status.INFEASIBLE) == (not fits(plan)) == (least_makespan(plan, 2) is None)
    assert (searched_period(plan, 1) is None) == (least_period(plan, 1) is None) == (not fits(plan))
    assert report.least_capacity == (least if report.status is Status.INFEASIBLE else None)
    assert search(plan.with_capacity(least), 2, 1).solution is not None
    if least:
        too_tight = search(plan.with_capacity(least - 1), 2, 1)
        assert too_tight.status is Status.INFEASIBLE
        assert too_tight.least_capacity == least
        assert str(least) in verdict(too_tight, plan)


def test_the_random_plans_are_of_every_sort():
    """Otherwise agreement on them would mean little."""
    plans = [random_plan(seed) for seed in range(100)]
    assert sum(not fits(plan) for plan in plans) >= 5
    assert sum(any(block.memory for block in plan.blocks) for plan in plans) >= 50
    assert sum(any(len(block.devices) > 1 for block in plan.blocks) for plan in plans) >= 25
    assert sum(any(1 < len(block.devices) < len(plan.devices) for block in plan.blocks) for plan in plans) >= 10
    assert sum(any(dep.lag for dep in plan.dependencies) for plan in plans) >= 25
    assert sum(period_bound(plan) > plan.busiest_work for plan in plans) >= 10
    assert sum(least_period(plan, 1) != period_bound(plan) for plan in plans if fits(plan)) >= 2


@pytest.mark.parametrize("seed", UNROLLING_HELPS)
def test_there_are_plans_that_unrolling_helps(seed: int):
    plan = random_plan(seed, blocks=(2, 3))
    alone, pair = least_period(plan, 1), least_period(plan, 2)
    assert alone is not None
    assert pair is not None
    assert pair < 2 * alone


@pytest.mark.parametrize("seed", seeds(2000, 2020))
def test_the_makespan_oracle_agrees_with_trying_all_starts(seed: int):
    plan = fitting_plan(seed, blocks=(2,), devices=(1, 2))
    least = least_makespan(plan, 2)
    assert least is not None
    valid = [
        makespan
        for starts in product(range(least), repeat=4)
        for schedule in [Schedule.from_starts(plan, np.array(starts).reshape(2, 2))]
        for makespan in [schedule.makespan]
        if makespan <= least and not broken_rules(schedule)
    ]
    assert min(valid) == least


@pytest.mark.parametrize("seed", seeds(3000, 3040))
def test_the_period_oracle_agrees_with_trying_all_starts(seed: int):
    plan = fitting_plan(seed, blocks=(2, 3), devices=(1, 2))
    least = least_period(plan, 1)
    assert least is not None
    for period in range(1, least + 1):
        starts = product([0], *[range(-2 * period, 3 * period)] * (len(plan.blocks) - 1))
        possible = any(not broken_rules(Repetend(plan, period, np.array([first])).expand(6)) for first in starts)
        assert possible == (period == least) == has_repetend(plan, 1, period)
