"""Horizons lie between bound and makespan, and questions get more time if none is answered."""

from __future__ import annotations

import pytest

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict
from tessel_core.samples import load_sample
from tessel_core.scheduling.bounds import makespan_bound
from tessel_core.scheduling.search.devices_model import schedule_within
from tessel_core.scheduling.search.horizons import Horizons

NS = 10**9


@pytest.mark.parametrize("first", [0, 1, 7])
def test_answers_close_the_gap_in_a_few_questions_per_bit(first: int) -> None:
    least, bound, makespan, asked = 12_345_678_901, 12 * NS, 13 * NS, 0
    horizons = Horizons(1.0, first)
    while bound < makespan:
        horizon = horizons.next_horizon(bound, makespan)
        assert bound <= horizon < makespan
        if horizon < least:
            bound = horizon + 1
        else:
            makespan = horizon
        horizons.learn(answered=True)
        asked += 1
    assert makespan == least
    assert asked <= 150


def test_questions_get_twice_the_time_after_all_reaches_have_failed() -> None:
    horizons, seen = Horizons(1.0), set[int]()
    while horizons.seconds == 1.0:
        seen.add(horizons.next_horizon(100, 201))
        horizons.learn(answered=False)
    assert horizons.seconds == 2.0
    assert len(seen) == 5
    assert min(seen) < 115
    assert max(seen) > 185


def test_literals_exclude_horizons_of_a_v_shape_that_no_simple_bound_excludes() -> None:
    plan, effort = load_sample("gpt-6.7b-v-8"), Effort(10.0, 1, 0, repeatable=True)
    horizon = round(7.45 * NS)
    assert makespan_bound(plan, 16) < 0.98 * horizon
    assert schedule_within(plan, 16, horizon, effort, Control()) == (Verdict.IMPOSSIBLE, None)
