"""The data types agree with independent counts, and with brute force over all orders."""

from __future__ import annotations

import random
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from helpers.brute_force import fits, memory_returns
from helpers.plans import plans, random_plan
from helpers.seeds import examples, one_in, reaching
from helpers.simulator import broken_rules, peaks, runs_of
from hypothesis import given, settings, strategies

from tessel_core.errors import InputError
from tessel_core.inspection import Cause, idle_causes
from tessel_core.model import (
    PERIOD,
    Block,
    BlockKind,
    Dependency,
    MemoryProfile,
    MicroBatchPlan,
    Phase,
    PlanDevice,
    Repetend,
    Schedule,
    SteadyState,
)
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.units import memory_scale, show_memory, show_time, time_scale, to_bytes, to_ticks

seeds = strategies.integers(0, 2**32)
quickly = settings(max_examples=examples(60), deadline=None)


def some_runs(plan: MicroBatchPlan, seed: int) -> Schedule:
    """Return random starts, most of which break rules."""
    choose = random.Random(seed)
    count = choose.randint(1, 12)
    block = [choose.randrange(len(plan.blocks)) for _ in range(count)]
    return Schedule(
        plan,
        3,
        np.array(block),
        np.array([choose.randrange(3) for _ in range(count)]),
        np.array([choose.randrange(12) for _ in range(count)]),
    )


def searched(plan: MicroBatchPlan, micro_batches: int) -> Schedule | None:
    config = TesselConfig(objective=PERIOD, max_unroll=2, time_limit=0.2, polish=0.0)
    return solve_schedule("tessel", plan, micro_batches, config).solution


@quickly
@given(plans(), seeds)
def test_the_memory_profile_is_what_is_held_at_every_tick(plan: MicroBatchPlan, seed: int):
    schedule = some_runs(plan, seed)
    profile = MemoryProfile.of(schedule)
    assert profile.peaks == tuple(peaks(plan, runs_of(schedule)))
    ticks = np.arange(schedule.makespan + 3)
    for d, device in enumerate(plan.devices):
        assert profile.times[d][0] == 0
        assert (np.diff(profile.times[d]) > 0).all()
        held = [
            device.static_memory
            + sum(
                block.memory
                for b, _, start in runs_of(schedule)
                for block in [plan.blocks[b]]
                if d in block.devices and tick >= start + (block.duration if block.memory < 0 else 0)
            )
            for tick in ticks
        ]
        assert profile.at(d, ticks).tolist() == held
        assert profile.peaks[d] == max(held)
        over = 0 if device.memory_capacity is None else max(0, max(held) - device.memory_capacity)
        assert profile.excess[d] == over


@quickly
@given(plans(), seeds)
def test_a_schedule_keeps_its_runs_in_order_of_start(plan: MicroBatchPlan, seed: int):
    schedule = some_runs(plan, seed)
    rows = [(start, m, b) for b, m, start in runs_of(schedule)]
    assert rows == sorted(rows)
    assert schedule.makespan == max(start + plan.blocks[b].duration for b, _, start in runs_of(schedule))
    for d in range(len(plan.devices)):
        on = [row for row, (b, _, _) in enumerate(runs_of(schedule)) if d in plan.blocks[b].devices]
        assert schedule.runs_on(d).tolist() == on
    for column in (schedule.block, schedule.micro_batch, schedule.start):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 7


@pytest.mark.parametrize("name", ["v-shape-4", "k-shape-4", "m-shape-4", "split-v-4", "mt5-v-4"])
def test_phases_are_the_complete_instances_and_what_is_before_and_after(name: str):
    """Instance i of the repetend has the runs that start from i·period on, counted from its first start."""
    schedule = solve_schedule("tessel", load_sample(name), 24, TesselConfig(objective=PERIOD)).solution
    assert schedule is not None
    steady = schedule.repetend
    assert steady is not None
    assert steady.unroll == 1
    first = {b: start for b, m, start in runs_of(schedule) if m == steady.first_micro_batch}
    depth = {b: (start - min(first.values())) // steady.period for b, start in first.items()}
    turns = [(b, m - steady.first_micro_batch, start) for b, m, start in runs_of(schedule)]
    instance = [turn + depth[b] for b, turn, _ in turns]
    on_beat = [turn + depth[b] for b, turn, start in turns if start == first[b] + turn * steady.period]
    blocks = len(schedule.plan.blocks)
    whole = {i for i in on_beat if on_beat.count(i) == blocks}
    expected = [Phase.REPETEND if i in whole else Phase.WARMUP if i < min(whole) else Phase.COOLDOWN for i in instance]
    assert list(schedule.phase) == expected
    assert sorted(whole) == list(range(min(whole), max(whole) + 1))
    assert len(whole) >= 24 - 2 * blocks


def test_without_a_steady_state_all_is_one_phase():
    schedule = solve_schedule("gpipe", load_sample("v-shape-4"), 1).solution
    assert schedule is not None
    assert schedule.repetend is None
    assert set(schedule.phase) == {Phase.REPETEND}
    causes = idle_causes(schedule)
    waits = [[causes.ticks(d)[cause] for cause in (Cause.WARMUP, Cause.DATA, Cause.COOLDOWN)] for d in range(4)]
    assert waits == [[0, 12, 0], [1, 8, 3], [2, 4, 6], [3, 0, 9]]


@pytest.mark.parametrize("seed", one_in(3, range(50)))
def test_a_repetend_unrolled_is_valid_for_any_number_of_micro_batches(seed: int):
    plan = random_plan(reaching(seed, lambda each: fits(random_plan(each))))
    report = solve_schedule("tessel", plan, 1, TesselConfig(max_unroll=3, time_limit=0.2, polish=0.0))
    repetend = report.repetend
    assert repetend is not None
    for micro_batches in (1, 2, 3, 5, 9):
        schedule = repetend.expand(micro_batches)
        assert schedule.micro_batches == micro_batches
        assert broken_rules(schedule) == set()
        starts = {(b, m): start for b, m, start in runs_of(schedule)}
        for (b, m), start in starts.items():
            later = starts.get((b, m + repetend.unroll))
            assert later is None or later == start + repetend.period
        assert (schedule.repetend is None) == (micro_batches <= repetend.unroll)


def test_a_repetend_says_its_rates_and_starts_at_0():
    repetend = Repetend(load_sample("v-shape-4"), 16, np.arange(24).reshape(3, 8) + 5)
    assert (repetend.unroll, repetend.first_start.min()) == (3, 0)
    assert repetend.period_per_micro_batch == Fraction(16, 3)
    assert repetend.bubble_rate == pytest.approx(1 / 4)
    assert repetend.latency == 23 + 3
    for period, shape in ((0, (1, 8)), (4, (8,)), (4, (0, 8)), (4, (1, 7))):
        with pytest.raises(InputError, match="repetend: "):
            Repetend(repetend.plan, period, np.zeros(shape, dtype=np.int64))
    with pytest.raises(InputError, match="micro_batches: must be at least 1, got 0"):
        repetend.expand(0)


@pytest.mark.parametrize(
    ("period", "unroll", "first", "last"), [(0, 1, 0, 1), (1, 0, 0, 1), (1, 1, -1, 3), (1, 2, 1, 2)]
)
def test_a_steady_state_that_holds_no_repetition_is_refused(period: int, unroll: int, first: int, last: int):
    with pytest.raises(InputError, match="repetend: "):
        SteadyState(period, unroll, first, last)


def all_orders_keep_memory(blocks: list[Block], dependencies: list[Dependency], devices: int) -> bool:
    """Apply the definition: check every order that the dependencies allow."""
    for order in permutations(blocks):
        place = {block.name: i for i, block in enumerate(order)}
        if any(place[dep.predecessor] > place[dep.successor] for dep in dependencies):
            continue
        for d in range(devices):
            held = np.cumsum([block.memory for block in order if d in block.devices] or [0])
            if held.min() < 0 or held[-1] != 0:
                return False
    return True


def draw(seed: int) -> tuple[list[Block], list[Dependency], int]:
    """Draw blocks with one to three memory changes, dependencies, and the number of devices.

    Some changes are invalid.
    """
    choose = random.Random(seed)
    count, devices = choose.randint(2, 6), choose.randint(1, 2)
    names = [f"b{i}" for i in range(count)]
    memory = [0] * count
    for _ in range(choose.randint(1, 3)):
        early, late = sorted(choose.sample(range(count), 2))
        amount = choose.randint(1, 2)
        memory[early] += amount
        memory[late] -= amount
    if choose.random() < 0.1:
        memory[choose.randrange(count)] += choose.choice((-1, 1))
    on = [tuple(range(devices)) if choose.random() < 0.8 else (0,) for _ in names]
    dependencies = [Dependency(names[i], names[j]) for j in range(count) for i in range(j) if choose.random() < 0.6]
    blocks = [Block(name, BlockKind.OTHER, d, 1, m) for name, d, m in zip(names, on, memory, strict=True)]
    choose.shuffle(blocks)
    return blocks, dependencies, devices


def test_a_plan_is_well_formed_exactly_when_every_order_keeps_memory():
    for seed in range(400):
        print("seed", seed)
        blocks, dependencies, devices = draw(seed)
        expected = all_orders_keep_memory(blocks, dependencies, devices)
        assert memory_returns(blocks, dependencies, devices) == expected
        parts = tuple(PlanDevice(f"d{i}") for i in range(devices)), tuple(blocks), tuple(dependencies)
        if expected:
            assert MicroBatchPlan("random", *parts).blocks == tuple(blocks)
        else:
            with pytest.raises(InputError, match=r"^device d"):
                MicroBatchPlan("random", *parts)


@pytest.mark.parametrize("well_formed", [True, False])
def test_both_answers_are_common(well_formed: bool):
    """The draws above include both valid and invalid memories."""
    assert sum(all_orders_keep_memory(*draw(seed)) == well_formed for seed in range(400)) >= 80


@quickly
@given(plans())
def test_what_a_plan_derives_is_what_its_lists_say(plan: MicroBatchPlan):
    index = {block.name: b for b, block in enumerate(plan.blocks)}
    direct = {(index[dep.predecessor], index[dep.successor]): dep.lag for dep in plan.dependencies}
    assert {(a, b): lag for a, b, lag in plan.arcs} == direct
    for b in range(len(plan.blocks)):
        assert dict(plan.predecessors[b]) == {a: lag for (a, c), lag in direct.items() if c == b}
        assert dict(plan.successors[b]) == {c: lag for (a, c), lag in direct.items() if a == b}
        before: set[int] = set()
        for _ in plan.blocks:
            before |= {a for a, c in direct if c == b or c in before}
        assert plan.ancestors[b] == sum(1 << a for a in before)
    assert sorted(plan.topological_order) == list(range(len(plan.blocks)))
    assert all(plan.topological_order.index(a) < plan.topological_order.index(b) for a, b in direct)
    for d in range(len(plan.devices)):
        assert plan.work[d] == sum(block.duration for block in plan.blocks if d in block.devices)
    assert plan.busiest_work == max(plan.work)
    limited = plan.with_capacity(9)
    assert {device.memory_capacity for device in limited.devices} == {9}
    assert replace(limited, devices=plan.devices) == plan


def test_nouns_cannot_be_changed():
    plan = load_sample("v-shape-4")
    for noun, name in ((plan, "name"), (plan.blocks[0], "duration"), (plan.devices[0], "static_memory")):
        with pytest.raises(FrozenInstanceError):
            setattr(noun, name, 3)


@pytest.mark.parametrize("devices", [4, 8])
@pytest.mark.parametrize("micro_batches", [1, 4, 20])
@pytest.mark.parametrize("scheduler", ["gpipe", "1f1b"])
def test_the_bubble_of_gpipe_and_1f1b_is_the_published_one(scheduler: str, devices: int, micro_batches: int):
    """(p - 1) / (m + p - 1) [Huang 2019; Narayanan 2021]."""
    schedule = solve_schedule(scheduler, load_sample(f"v-shape-{devices}").with_capacity(None), micro_batches).solution
    assert schedule is not None
    assert schedule.bubble_rate == pytest.approx((devices - 1) / (micro_batches + devices - 1))


@given(strategies.floats(0, 1e6), strategies.sampled_from(["ns", "us", "ms", "s"]))
def test_ticks_are_the_nearest_whole_number_of_units_and_at_least_one(seconds: float, unit: str):
    per_second = {"ns": 10**9, "us": 10**6, "ms": 10**3, "s": 1}[unit]
    exact = Fraction(seconds) * per_second
    ticks = to_ticks(seconds, unit)
    assert ticks >= 1
    assert ticks == 1 or abs(ticks - exact) <= Fraction(1, 2) + exact / 2**50


@given(strategies.floats(-1e15, 1e15))
def test_memory_is_never_understated(amount: float):
    assert 0 <= to_bytes(amount) - Fraction(amount) < 1


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0])
def test_a_cost_that_is_no_duration_is_refused(wrong: float):
    with pytest.raises(ValueError, match="must be finite"):
        to_ticks(wrong)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (show_time(1, "step"), "1 step"),
        (show_time(4, "step"), "4 steps"),
        (show_time(16 / 3, "step"), "5.333 steps"),
        (show_time(1234, "step"), "1,234 steps"),
        (show_time(999, "ns"), "999 ns"),
        (show_time(1_500, "ns"), "1.5 µs"),
        (show_time(2_000_000_000, "ns"), "2 s"),
        (show_time(12, "ms"), "12 ms"),
        (show_memory(3, "slot"), "3 slots"),
        (show_memory(1, "slot"), "1 slot"),
        (show_memory(0, "B"), "0 B"),
        (show_memory(141_000_000_000, "B"), "141 GB"),
        (show_memory(-2_500_000, "B"), "-2.5 MB"),
    ],
)
def test_amounts_read_as_people_write_them(shown: str, text: str):
    assert shown == text


@given(strategies.floats(1, 1e18), strategies.sampled_from(["ns", "us", "ms", "s"]))
def test_an_axis_of_time_has_a_unit_in_which_its_end_reads_well(largest: float, unit: str):
    divisor, name = time_scale(largest, unit)
    seconds = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
    assert divisor * seconds[unit] == pytest.approx(seconds[name])
    assert largest / divisor >= 0.999 or name == "ns"
    assert largest / divisor < 1000.001 or name == "s"


def test_axes_of_abstract_units_are_left_alone():
    assert time_scale(1e9, "step") == (1.0, "step")
    assert memory_scale(1e9, "slot") == (1.0, "slot")
    assert memory_scale(141e9, "B") == (1e9, "GB")
    assert memory_scale(12, "B") == (1.0, "B")
