"""The compiled inner loops: their schedules keep the rules, and their results are exact."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from math import ceil

import networkx as nx
import numpy as np
import pytest
from helpers.brute_force import least_makespan
from helpers.plans import random_plan
from helpers.seeds import one_in
from helpers.simulator import broken_rules

from tessel_core.control import Control
from tessel_core.cpsat import Effort
from tessel_core.model import MicroBatchPlan, Repetend, Schedule
from tessel_core.networks import ShapeParameters, build_shape
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.bounds import period_bound
from tessel_core.scheduling.kernels.cycles import (
    close,
    least_period,
    no_circles,
    shorten_circles,
    timing_of,
)
from tessel_core.scheduling.kernels.tables import backwards, tables_of
from tessel_core.scheduling.kernels.timetables import fit_period
from tessel_core.scheduling.order import one_after_the_other
from tessel_core.scheduling.search.capacity import find_fitting_order
from tessel_core.scheduling.search.circle_search import CircleSearch
from tessel_core.scheduling.search.list_search import RULES, InsertionSearch, ListSearch, lists_by_every_rule
from tessel_core.scheduling.search.order_search import OrderSearch, shorten
from tessel_core.scheduling.structure import all_tied

EFFORT = Effort(0.3, 1, 0, repeatable=True)
TIGHT = ["k-shape-4", "zb-v-4", "x-shape-4", "v-shape-4", "m-shape-4"]


def fitting_order(plan: MicroBatchPlan) -> tuple[int, ...] | None:
    return find_fitting_order(plan, Effort(5.0, 1, 0, repeatable=True), Control())[1]


@cache
def fitting(seed: int) -> tuple[MicroBatchPlan, tuple[int, ...]]:
    """Return a random plan, and an order of its blocks that fits."""
    plan = random_plan(seed)
    order = fitting_order(plan)
    assert order is not None
    return plan, order


TOO_TIGHT = (31, 34)
FITTING = [seed for seed in range(60) if seed not in TOO_TIGHT]
every_plan = pytest.mark.parametrize("seed", one_in(5, FITTING))


def tightest(plan: MicroBatchPlan) -> MicroBatchPlan:
    """Return the plan with the least capacity at which one micro-batch fits."""
    full = plan.with_capacity(0)
    least = solve_schedule("sequential", full, 1).least_capacity
    assert least is not None
    return plan.with_capacity(least)


@every_plan
@pytest.mark.parametrize("from_the_end", [False, True])
def test_lists_keep_the_rules_and_never_get_stuck(seed: int, from_the_end: bool) -> None:
    plan, order = fitting(seed)
    for rule in RULES:
        search = ListSearch(plan, order, 5, rule, 1, from_the_end=from_the_end)
        search.restart(5)
        assert search.makespan > 0, "a list always ends where one micro-batch alone fits"
        found = Schedule.from_starts(plan, search.starts)
        assert found.makespan == search.makespan
        assert not broken_rules(found)


def test_the_shortest_of_some_restarts_does_not_depend_on_how_they_are_asked_for() -> None:
    plan = load_sample("k-shape-8")
    one, other = (ListSearch(plan, plan.topological_order, 16, "backward", 7) for _ in range(2))
    one.restart(30)
    for tries in (1, 4, 25):
        other.restart(tries)
    assert one.makespan == other.makespan
    assert (one.starts == other.starts).all()


def test_a_line_that_begins_again_leaves_the_one_before_as_it_is() -> None:
    plan = load_sample("gpt-6.7b-split-v-8")
    first = ListSearch(plan, plan.topological_order, 16, "backward", 7)
    first.evolve(50)
    before = first.makespan, first.starts
    again = first.kicked(8)
    assert (again.makespan, again.idle_slices) == (-1, 0)
    again.evolve(50)
    assert again.makespan > 0
    assert not broken_rules(Schedule.from_starts(plan, again.starts))
    assert first.makespan == before[0]
    assert (first.starts == before[1]).all()
    first.evolve(20)
    assert first.makespan <= before[0], "it goes on from its own rules"


@pytest.mark.parametrize("sample", TIGHT)
def test_lists_do_not_lock_up_at_the_least_capacity(sample: str) -> None:
    plan = load_sample(sample)
    for tight in (tightest(plan), plan):
        order = fitting_order(tight)
        assert order is not None
        for rule in RULES:
            search = ListSearch(tight, order, 12, rule, 0)
            search.restart(20)
            assert search.makespan > 0
            assert not broken_rules(Schedule.from_starts(tight, search.starts))


@every_plan
def test_evolved_lists_only_get_shorter(seed: int) -> None:
    plan, order = fitting(seed)
    search = ListSearch(plan, order, 6, "advanced", 3, from_the_end=len(plan.blocks) % 2 == 0)
    told = []
    for _ in range(4):
        search.evolve(100)
        found = Schedule.from_starts(plan, search.starts)
        assert found.makespan == search.makespan
        assert not broken_rules(found)
        told.append(search.makespan)
    assert told == sorted(told, reverse=True)


def test_evolved_lists_fit_where_one_device_has_less_room_than_another_s_block_takes() -> None:
    """The share of memory that a device uses evolves too, and never exceeds its capacity."""
    plan = build_shape("v-shape", ShapeParameters(devices=6, capacity=4))
    amounts = {0: 9, 1: 1, 2: 4, 3: 1, 4: 6, 5: 2}
    blocks = tuple(replace(block, memory=block.memory * amounts[block.devices[0]]) for block in plan.blocks)
    devices = tuple(replace(each, memory_capacity=3 * amounts[d] - d % 2) for d, each in enumerate(plan.devices))
    uneven = replace(plan, blocks=blocks, devices=devices)
    for seed in range(4):
        search = ListSearch(uneven, uneven.topological_order, 8, "advanced", seed)
        for _ in range(5):
            search.evolve(1000)
            assert not broken_rules(Schedule.from_starts(uneven, search.starts))


def test_a_handicap_finds_what_no_list_without_one_can() -> None:
    """gpu0 must wait for the long way round before its next forward. 200 lists without handicaps never do this."""
    plan = load_sample("gpt-13b-v-16")
    plain = ListSearch(plan, plan.topological_order, 32, "advanced", 0)
    plain.restart(200)
    evolved = ListSearch(plan, plan.topological_order, 32, "advanced", 0)
    evolved.evolve(3000)
    assert evolved.makespan < 0.97 * plain.makespan


@pytest.mark.parametrize("from_the_end", [False, True])
@pytest.mark.parametrize("sample", ["evoformer-4", "m-shape-4", "nn-shape-8", "nn-eager-4", "finetune-4"])
def test_inserted_blocks_keep_the_rules(sample: str, from_the_end: bool) -> None:
    plan = load_sample(sample)
    search = InsertionSearch(plan, all_tied(plan), plan.topological_order, 12, 0, from_the_end=from_the_end)
    search.restart(2)
    before = search.makespan
    search.evolve(10)
    assert 0 < search.makespan <= before
    again, longer = search.kicked(1), search.stretched(20)
    assert longer is not None
    again.evolve(2)
    for each, micro_batches in ((search, 12), (again, 12), (longer, 20)):
        found = Schedule.from_starts(plan, each.starts)
        assert (found.makespan, found.micro_batches) == (each.makespan, micro_batches)
        assert not broken_rules(found)


@every_plan
def test_blocks_are_inserted_into_random_plans(seed: int) -> None:
    plan, order = fitting(seed)
    for search in lists_by_every_rule(plan, order, 6, 0):
        if isinstance(search, InsertionSearch):
            search.restart(2)
            search.evolve(5)
            assert search.makespan < 0 or not broken_rules(Schedule.from_starts(plan, search.starts))


def test_forward_passes_that_hold_no_memory_do_not_delay_those_that_do() -> None:
    plan = load_sample("evoformer-4")
    plain, inserting = [], []
    for search in lists_by_every_rule(plan, plan.topological_order, 32, 0):
        search.restart(8)
        (inserting if isinstance(search, InsertionSearch) else plain).append(search.makespan)
    assert min(inserting) < 0.95 * min(plain)


def test_only_blocks_that_change_no_limited_memory_are_free() -> None:
    plan = load_sample("nn-shape-4")
    free = {block.name for b, block in enumerate(plan.blocks) if b not in all_tied(plan)}
    assert free == {"E", "Eb"}, "D runs between blocks that hold memory"
    assert all_tied(plan.with_capacity(None)) == []


def test_the_plan_backwards_twice_is_the_plan() -> None:
    for sample in ("split-v-4", "flava-4", "gpt-13b-v-8"):
        plan = load_sample(sample)
        assert backwards(backwards(plan)).blocks == plan.blocks
        assert set(backwards(backwards(plan)).dependencies) == set(plan.dependencies)


@every_plan
def test_a_shortened_order_keeps_the_rules_and_is_not_longer(seed: int) -> None:
    plan, order = fitting(seed)
    start = one_after_the_other(plan, order).expand(5)
    search = OrderSearch(plan, start.starts, 0)
    assert search.makespan == start.makespan
    search.improve(0)
    found = Schedule.from_starts(plan, search.starts)
    assert found.makespan == search.makespan <= start.makespan
    assert not broken_rules(found)


def test_small_plans_are_mostly_solved() -> None:
    optimal = total = 0
    for plan, order in map(fitting, FITTING[:40]):
        least = least_makespan(plan, 3)
        start = one_after_the_other(plan, order).expand(3).starts
        found = Schedule.from_starts(plan, shorten(plan, start, least, EFFORT, Control()))
        assert found.makespan >= least
        optimal += found.makespan == least
        total += 1
    assert optimal >= 0.8 * total


def test_the_same_seed_gives_the_same_answer() -> None:
    plan = load_sample("m-shape-4")
    start = solve_schedule("sequential", plan, 8).solution
    assert start is not None
    found = [shorten(plan, start.starts, 0, EFFORT, Control()) for _ in range(2)]
    assert all((a == b).all() for a, b in pairwise(found))


def test_a_cancelled_search_returns_at_least_the_compacted_start() -> None:
    plan = load_sample("m-shape-4")
    start = solve_schedule("sequential", plan, 8).solution
    assert start is not None
    control = Control()
    control.cancel()
    assert Schedule.from_starts(plan, shorten(plan, start.starts, 0, EFFORT, control)).makespan <= start.makespan


def exact_period(plan: MicroBatchPlan, repetend: Repetend) -> Fraction:
    """Return the greatest ratio of ticks to height over all simple cycles of a repetend's order."""
    graph: nx.MultiDiGraph[int] = nx.MultiDiGraph()
    blocks, unroll = len(plan.blocks), repetend.unroll
    for u in range(unroll):
        for a, b, lag in plan.arcs:
            graph.add_edge(u * blocks + a, u * blocks + b, ticks=plan.blocks[a].duration + lag, height=0)
    k, r = np.divmod(repetend.first_start, repetend.period)
    for on in plan.blocks_on:
        line = sorted((int(r[u, b]), int(k[u, b]), u * blocks + b) for u in range(unroll) for b in on)
        for i, (_, turn, here) in enumerate(line):
            _, next_turn, there = line[(i + 1) % len(line)]
            height = turn - next_turn + (i == len(line) - 1)
            graph.add_edge(here, there, ticks=plan.blocks[here % blocks].duration, height=height)
    ratios = []
    for circle in nx.simple_cycles(nx.DiGraph(graph)):
        steps = [(circle[i], circle[(i + 1) % len(circle)]) for i in range(len(circle))]
        choices = [list(graph[a][b].values()) for a, b in steps]
        # Two runs have at most one dependency and one order edge. The longer or the lower of them binds.
        for pick in range(2 ** sum(len(c) > 1 for c in choices)):
            ticks = height = bit = 0
            for c in choices:
                edge = c[pick >> bit & 1] if len(c) > 1 else c[0]
                bit += len(c) > 1
                ticks, height = ticks + edge["ticks"], height + edge["height"]
            assert height > 0
            ratios.append(Fraction(ticks, height))
    return max(ratios)


@pytest.mark.parametrize("sample", ["v-shape-4", "split-v-4", "finetune-4", "gpt-1m-vocab-v-4"])
@pytest.mark.parametrize("unroll", [1, 2])
def test_the_least_period_is_that_of_the_worst_circle(sample: str, unroll: int) -> None:
    plan = load_sample(sample)
    found = ListSearch(plan, plan.topological_order, 24, "advanced", unroll)
    found.restart(3)
    starts = found.starts
    tables = tables_of(plan, plan.topological_order)
    checked = 0
    for first in range(6, 18):
        window = starts[first : first + unroll]
        length = int((starts[first + unroll] - starts[first]).max())
        circles = no_circles(tables, unroll)
        if length <= 0 or close(tables, window, length, circles):
            continue
        period, root = least_period(timing_of(tables, circles))
        assert root >= 0
        exact = exact_period(plan, Repetend(plan, length, window))
        assert period == pytest.approx(float(exact), rel=1e-9)
        checked += 1
    assert checked


@every_plan
def test_closed_windows_are_repetends_that_keep_the_rules(seed: int) -> None:
    plan, order = fitting(seed)
    search = CircleSearch(plan, order, period_bound(plan), Effort(1.0, 1, 5, repeatable=True), 60)
    found = search.advance(0.2, Control())
    assert found is not None
    assert found.period_per_micro_batch >= period_bound(plan)
    assert not broken_rules(found.expand(2 * found.unroll + 6))


@pytest.mark.parametrize("sample", [*TIGHT, "evoformer-4", "gpt-13b-split-v-8", "flava-4"])
def test_circles_are_repetends_that_keep_the_rules_and_only_get_shorter(sample: str) -> None:
    plan = load_sample(sample)
    order = fitting_order(plan)
    assert order is not None
    search = CircleSearch(plan, order, period_bound(plan), Effort(1.0, 1, 5, repeatable=True), 60)
    told = []
    for _ in range(4):
        found = search.advance(0.6, Control())
        if found is None:
            continue
        assert found.period_per_micro_batch >= period_bound(plan)
        assert not broken_rules(found.expand(2 * found.unroll + 8))
        told.append(found.period_per_micro_batch)
    assert told == sorted(told, reverse=True)
    assert told


@pytest.mark.parametrize("sample", [*TIGHT, "v-shape-8", "m-shape-8", "gpt-13b-split-v-8", "flava-4"])
@pytest.mark.parametrize("copies", [1, 2])
def test_a_timetable_that_fits_is_a_repetend_and_says_so(sample: str, copies: int) -> None:
    plan = load_sample(sample)
    order = fitting_order(plan)
    assert order is not None
    tables, topological = tables_of(plan, order), np.array(plan.topological_order, dtype=np.int64)
    fitted = 0
    for longer in (1, 1.5, 3, 6):
        period = ceil(copies * plan.busiest_work * longer)
        starts, circles = np.zeros((copies, len(plan.blocks)), dtype=np.int64), no_circles(tables, copies)
        excess = fit_period(tables, topological, period, starts, circles, 100, 3)
        if excess < 0:
            continue
        # With unlimited room, the timetable keeps the rules. With the plan's room, it does exactly if the excess is 0.
        assert not broken_rules(Repetend(plan.with_capacity(None), period, starts).expand(6 * copies))
        in_flight = int(starts.max()) // period + 3
        assert bool(broken_rules(Repetend(plan, period, starts).expand(2 * in_flight * copies))) == (excess > 0)
        fitted += excess == 0
    assert fitted


def test_reversals_on_a_circle_leave_what_a_fresh_start_finds() -> None:
    """Links, heights and held memory change in place. In the end they equal those of a fresh computation."""
    plan = load_sample("gpt-13b-split-v-8")
    search = ListSearch(plan, plan.topological_order, 60, "advanced", 0)
    search.evolve(200)
    starts, tables = search.starts, tables_of(plan, plan.topological_order)
    for copies in (3, 5, 7):
        circles = no_circles(tables, copies)
        lengths = {m: int((starts[m + copies] - starts[m]).max()) for m in range(10, 40)}
        assert any(not close(tables, starts[m : m + copies], length, circles) for m, length in lengths.items())
        for seed in range(5):
            period = shorten_circles(tables, circles, copies, 0.0, 40, 40, seed)
            assert least_period(timing_of(tables, circles))[0] == pytest.approx(period)
            assert (circles.height >= -copies).all()
            for d in range(len(plan.devices)):
                stops = np.flatnonzero(
                    tables.place_device[np.arange(circles.height.size) % len(tables.place_block)] == d
                )
                assert circles.height[stops].sum() == 1
                assert (circles.held[stops] >= 0).all()
                assert (circles.held[stops] <= tables.capacity[d]).all()
