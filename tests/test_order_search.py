"""Changing orders keeps the rules, never lengthens, and mostly finds what brute force finds."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from helpers.brute_force import least_makespan
from helpers.plans import random_plan
from helpers.simulator import broken_rules

from tessel_core.control import Control
from tessel_core.cpsat import Effort
from tessel_core.model import Schedule
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.search.order_search import _Orders, shorten

EFFORT = Effort(0.3, 1, 0, repeatable=True)


def one_by_one(plan, micro_batches):
    return solve_schedule("sequential", plan, micro_batches).solution


@pytest.mark.parametrize("seed", range(60))
def test_a_shortened_schedule_keeps_the_rules_and_is_not_longer(seed: int) -> None:
    start = one_by_one(random_plan(seed), 5)
    if start is None:
        return
    found = Schedule.from_starts(start.plan, shorten(start.plan, start.starts, 0, EFFORT, Control()))
    assert not broken_rules(found)
    assert found.makespan <= start.makespan


def test_small_plans_are_mostly_solved() -> None:
    optimal = total = 0
    for seed in range(40):
        start = one_by_one(random_plan(seed), 3)
        if start is None:
            continue
        least = least_makespan(start.plan, 3)
        found = Schedule.from_starts(start.plan, shorten(start.plan, start.starts, least, EFFORT, Control()))
        assert found.makespan >= least
        optimal += found.makespan == least
        total += 1
    assert optimal >= 0.8 * total


@pytest.mark.parametrize("sample", ["v-shape-4", "m-shape-4", "zb-v-4", "gpt-1m-vocab-m-4"])
def test_after_every_reversal_all_that_is_kept_agrees_with_a_fresh_start(sample: str) -> None:
    """Reversals change links, held memory and the line in place; building them again from the times must agree."""
    start = one_by_one(load_sample(sample), 6)
    orders = _Orders(start.plan, start.starts)
    for step in range(40):
        pair = orders.best_pair({}, step, 0, Random(step))
        if pair is None:
            break
        orders.reverse(*pair)
        fresh = _Orders(start.plan, np.array(orders.head).reshape(start.starts.shape))
        assert (fresh.head, fresh.tail) == (orders.head, orders.tail)
        assert (fresh.before, fresh.after, fresh.held) == (orders.before, orders.after, orders.held)
        assert not broken_rules(Schedule.from_starts(start.plan, np.array(fresh.head).reshape(start.starts.shape)))


def test_the_same_seed_gives_the_same_answer() -> None:
    start = one_by_one(load_sample("m-shape-4"), 8)
    found = [shorten(start.plan, start.starts, 0, EFFORT, Control()) for _ in range(2)]
    assert all((a == b).all() for a, b in pairwise(found))


def test_a_cancelled_search_returns_at_least_the_compacted_start() -> None:
    start = one_by_one(load_sample("m-shape-4"), 8)
    control = Control()
    control.cancel()
    found = Schedule.from_starts(start.plan, shorten(start.plan, start.starts, 0, EFFORT, control))
    assert found.makespan <= start.makespan
