"""Schedules changed by hand: the verdict is the referee's, and completions keep pins and have the least makespan."""

from __future__ import annotations

import random
import threading
from dataclasses import replace

import numpy as np
import pytest
from helpers.schedules import any_schedule
from helpers.seeds import examples
from helpers.timeline_script import answers

from tessel_core.charts.timeline import timeline_data
from tessel_core.control import Control
from tessel_core.editing.schedule import RunChange, moved_alone, pushed_left, reordered, swapped
from tessel_core.errors import InputError
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice, Schedule, Status
from tessel_core.rules import check_schedule
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.finish import BY_HAND, Finish
from tessel_core.scheduling.order import Run
from tessel_core.scheduling.reports import evaluate
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.workbench.messages.by_hand import effect
from tessel_core.workbench.messages.schedule import key_numbers

PLANS = ("v-shape-4", "m-shape-4", "zb-v-4", "gpt-1m-vocab-v-4")


def searched(sample: str, micro_batches: int = 6) -> Schedule:
    schedule = solve_schedule("list-scheduling", load_sample(sample), micro_batches).solution
    assert schedule is not None
    return schedule


def with_start(schedule: Schedule, run: Run, start: int) -> Schedule:
    columns = schedule.block, schedule.micro_batch
    moved = np.where((columns[0] == run[0]) & (columns[1] == run[1]), start, schedule.start)
    return Schedule(schedule.plan, schedule.micro_batches, *columns, moved)


@pytest.mark.parametrize("sample", PLANS)
def test_the_verdict_on_a_run_that_moves_alone_is_the_referee_s(sample: str) -> None:
    schedule, chance = searched(sample), random.Random(7)
    outcomes = set()
    for _ in range(150):
        run = chance.randrange(len(schedule.plan.blocks)), chance.randrange(schedule.micro_batches)
        start = int(schedule.starts[run[1], run[0]]) + chance.randint(-schedule.makespan, schedule.makespan) // 4
        broken = check_schedule(with_start(schedule, run, start))
        outcomes.add(bool(broken))
        if broken:
            with pytest.raises(InputError, match=rf"\(rule: {broken[0].rule}\)"):
                moved_alone(schedule, run, start)
        else:
            assert moved_alone(schedule, run, start).starts[run[1], run[0]] == start
    assert True in outcomes


@pytest.mark.parametrize("sample", PLANS)
def test_what_follows_moves_along_and_what_comes_before_stays(sample: str) -> None:
    schedule, chance, made = searched(sample), random.Random(3), 0
    for _ in range(150):
        b, m = chance.randrange(len(schedule.plan.blocks)), chance.randrange(schedule.micro_batches)
        was = int(schedule.starts[m, b])
        start = max(0, was + chance.randint(-schedule.makespan, schedule.makespan) // 4)
        try:
            found = reordered(schedule, (b, m), start)
        except InputError as error:
            assert "(rule: memory)" in str(error)  # noqa: PT017
            continue
        made += 1
        assert not check_schedule(found)
        before = schedule.starts + [block.duration for block in schedule.plan.blocks] <= min(was, start)
        assert (found.starts[before] == schedule.starts[before]).all()
        assert pushed_left(found).makespan <= found.makespan
    assert made > 10


@pytest.mark.parametrize("sample", PLANS)
@pytest.mark.parametrize("alone", [False, True])
def test_two_runs_swap_places_and_the_verdict_is_the_referee_s(sample: str, alone: bool) -> None:
    schedule, chance, outcomes = searched(sample), random.Random(11), set()
    duration = [block.duration for block in schedule.plan.blocks]
    draw = chance.randrange
    pairs = [[(draw(len(duration)), draw(schedule.micro_batches)) for _ in range(2)] for _ in range(150)]
    (told,) = answers(timeline_data((("", schedule),)), ("swaps", pairs))
    for runs, before_the_drop in zip(pairs, told, strict=True):
        (b, m), (other, n) = sorted(runs, key=lambda run: schedule.starts[run[1], run[0]])
        shared = set(schedule.plan.blocks[b].devices) & set(schedule.plan.blocks[other].devices)
        if runs[0] == runs[1] or not shared:
            continue
        here = int(schedule.starts[m, b]), int(schedule.starts[n, other])
        exchanged = with_start(
            with_start(schedule, (other, n), here[0]), (b, m), here[1] + duration[other] - duration[b]
        )
        broken = check_schedule(exchanged)
        needs = m == n and bool(schedule.plan.ancestors[other] >> b & 1)
        try:
            found = swapped(schedule, *runs, alone=alone)
        except InputError as error:
            outcomes.add("refused")
            rules = ["dependency"] if needs else [broken[0].rule] if alone else ["memory"]
            assert any(f"(rule: {rule})" in str(error) for rule in rules), error  # noqa: PT017
            assert (
                not alone or before_the_drop.rsplit("rule: ")[-1].rstrip(")") in {each.rule for each in broken} or needs
            )
            continue
        assert not alone or not before_the_drop, (runs, before_the_drop)
        outcomes.add("made")
        assert not check_schedule(found)
        assert not needs
        assert found.starts[m, b] > found.starts[n, other]
        assert not alone or (not broken and (found.starts == exchanged.starts).all())
    assert "refused" in outcomes
    assert alone or "made" in outcomes


def test_green_places_are_exactly_those_that_the_referee_allows() -> None:
    fits = {True: 0, False: 0}
    for seed in range(examples(100)):
        schedule = any_schedule(seed)
        if check_schedule(schedule):
            continue
        (places,) = answers(timeline_data((("", schedule),)), ("places", None))
        for row, (b, m) in enumerate(zip(schedule.block.tolist(), schedule.micro_batch.tolist(), strict=True)):
            lasts = schedule.plan.blocks[b].duration
            for start in range(schedule.makespan + 1):
                legal = not check_schedule(with_start(schedule, (b, m), start))
                within = {ok for left, right, _, ok in places[row] if left <= start and start + lasts <= right}
                assert (True in within) == legal, (seed, b, m, start, places[row])
                fits[legal] += 1
    assert min(fits.values()) > 100, fits


@pytest.mark.parametrize("sample", PLANS)
def test_where_a_run_lands_and_which_rule_it_breaks_alone_is_told_before_the_drop(sample: str) -> None:
    schedule, chance = searched(sample), random.Random(5)
    runs = [(chance.randrange(len(schedule.plan.blocks)), chance.randrange(schedule.micro_batches)) for _ in range(60)]
    drops = [(run, chance.randint(0, schedule.makespan)) for run in runs]
    (told,) = answers(timeline_data((("", schedule),)), ("lands", drops))
    made = 0
    for (run, start), (lands, why) in zip(drops, told, strict=True):
        broken = {each.rule for each in check_schedule(with_start(schedule, run, start))}
        assert bool(why) == bool(broken), (run, start, why, broken)
        assert not why or why.rsplit("rule: ")[-1].rstrip(")") in broken
        try:
            moved = reordered(schedule, run, start)
        except InputError:
            continue
        made += 1
        assert moved.starts[run[1], run[0]] == lands
    assert made > 5


def test_a_run_dropped_where_it_is_changes_no_length() -> None:
    schedule = pushed_left(searched("v-shape-4"))
    for m, b in np.ndindex(schedule.starts.shape):
        assert reordered(schedule, (b, m), int(schedule.starts[m, b])).makespan <= schedule.makespan


def test_what_comes_from_outside_is_judged_too() -> None:
    schedule = searched("v-shape-4")
    for asked in (
        {"block": 99},
        {"block": 0, "micro_batch": -1},
        {"block": 1, "start": -5, "alone": True},
        {"does": "swap", "other_block": 77},
    ):
        with pytest.raises(InputError):
            RunChange.of(asked).made_to(schedule)


def test_the_cost_is_told_with_its_wait_and_the_bound() -> None:
    report = solve_schedule("tessel", load_sample("v-shape-4"), 8)
    schedule = report.solution
    assert schedule is not None
    b, last = schedule.plan.block_index("B3"), int(schedule.starts[2, schedule.plan.block_index("B3")])
    slower = reordered(schedule, (b, 2), last + 12)
    told = effect(schedule, slower, report.makespan_bound, [(b, 2)])
    assert told.startswith(f"+{slower.makespan - schedule.makespan} steps: ")
    numbers = key_numbers(evaluate(slower, BY_HAND, bound=report.makespan_bound))
    (above,) = (each.beside for each in numbers if each.label == "Makespan")
    assert f" · {above.rpartition(', ')[2]}" in told, "the gap is the one that stands above the timeline"
    late = [tuple(map(int, each)) for each in zip(schedule.block, schedule.micro_batch, strict=True)]
    moved = int((schedule.starts != slower.starts).sum()) - 1  # except the dragged one
    told = effect(schedule, slower, report.makespan_bound, [(b, 2)], late)
    assert told.endswith(f" and {moved - 1} more moved along")
    (one, two), order = ((schedule.plan.block_index("B0"), m) for m in (0, 1)), solve_schedule("1f1b", schedule.plan, 8)
    assert order.solution is not None
    turned = swapped(order.solution, one, two)
    assert "waits" not in effect(order.solution, turned, order.makespan_bound, [one])
    told = effect(order.solution, turned, order.makespan_bound, [one, two])
    assert told.startswith("+4 steps: F0 of 4 now waits for memory released by B0 of 1 · gap "), "of either run"
    assert (
        effect(schedule, schedule, schedule.makespan) == "as long as before · at the bound, so no schedule is shorter"
    )


# Finish from here


def small_plan(capacity: int) -> MicroBatchPlan:
    kinds = BlockKind.FORWARD, BlockKind.BACKWARD
    names = [("F0", 0, 0, 1), ("F1", 0, 1, 1), ("B1", 1, 1, -1), ("B0", 1, 0, -1)]
    blocks = tuple(Block(name, kinds[kind], (device,), 1 + kind, memory) for name, kind, device, memory in names)
    arcs = tuple(Dependency(*pair) for pair in (("F0", "F1"), ("F1", "B1"), ("B1", "B0")))
    return MicroBatchPlan("small", tuple(PlanDevice(f"gpu{d}", capacity) for d in range(2)), blocks, arcs)


def shortest(schedule: Schedule, pins: frozenset[Run]) -> int:
    """The least length of all schedules that keep the pins, by trying every order in which runs may start.

    Each run starts as early as those before it allow. A branch ends where memory is exceeded, or what is still to run
    makes it as long as the best; that begins as the schedule that is given, which keeps the pins.
    """
    plan, fixed = schedule.plan, {run: int(schedule.starts[run[1], run[0]]) for run in pins}
    runs = [(b, m) for m in range(schedule.micro_batches) for b in range(len(plan.blocks))]
    best = schedule.makespan

    def fits(b: int, start: int, starts: dict[Run, int]) -> bool:
        """Return whether there is room for the memory that a run acquires.

        Runs that start later release nothing before it.
        """
        (device,), memory = plan.blocks[b].devices, plan.blocks[b].memory
        there = [(plan.blocks[a], then) for (a, _), then in starts.items() if plan.blocks[a].devices == (device,)]
        held = sum(a.memory for a, then in there if a.memory > 0 or then + a.duration <= start)
        return memory < 0 or held + memory <= (plan.devices[device].memory_capacity or 0)

    def go_on(starts: dict[Run, int], free: tuple[int, ...], latest: int) -> None:
        nonlocal best
        left = [
            sum(plan.blocks[b].duration for b, m in runs if (b, m) not in starts and d in plan.blocks[b].devices)
            for d in range(len(free))
        ]
        if max(map(sum, zip(free, left, strict=True))) >= best:
            return
        if len(starts) == len(runs):
            made = np.array([[starts[b, m] for b in range(len(plan.blocks))] for m in range(schedule.micro_batches)])
            b, m = (np.array(each) for each in zip(*runs, strict=True))
            if not check_schedule(Schedule(plan, schedule.micro_batches, b, m, made[m, b])):
                best = max(free)
            return
        for b, m in runs:
            before = plan.predecessors[b]
            if (b, m) in starts or any((a, m) not in starts for a, _ in before):
                continue
            block = plan.blocks[b]
            ready = [starts[a, m] + plan.blocks[a].duration + lag for a, lag in before]
            earliest = max(latest, *ready, *(free[d] for d in block.devices))
            start = fixed.get((b, m), earliest)
            if start >= earliest and fits(b, start, starts):
                busy = tuple(start + block.duration if d in block.devices else each for d, each in enumerate(free))
                go_on({**starts, (b, m): start}, busy, start)

    go_on({}, (0,) * len(plan.devices), 0)
    return best


@pytest.mark.parametrize("capacity", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_completion_keeps_the_pins_and_none_is_shorter(capacity: int, seed: int) -> None:
    plan, chance = small_plan(capacity), random.Random(seed)
    start = solve_schedule("sequential", plan, 3).solution
    assert start is not None
    spread = start.starts * 1
    spread[1:] += chance.randint(0, 3)
    spread[2:] += chance.randint(0, 3)
    schedule = Schedule.from_starts(plan, spread)
    assert not check_schedule(schedule)
    runs = [(b, m) for m in range(3) for b in range(4)]
    pins = frozenset(chance.sample(runs, chance.randint(1, 4)))
    completion = Finish.of(schedule, pins).solve(Control())
    found = completion.report.solution
    assert found is not None
    assert all(found.starts[m, b] == schedule.starts[m, b] for b, m in pins)
    assert completion.proved
    assert found.makespan == shortest(schedule, pins)
    if completion.report.status is Status.PROVED_OPTIMAL:  # this holds for all schedules, pinned or not
        assert found.makespan == shortest(schedule, frozenset())
    else:
        assert "no schedule that keeps the" in completion.report.reason


def test_pins_by_order_keep_the_order_alone() -> None:
    plan = small_plan(3)
    start = solve_schedule("sequential", plan, 3).solution
    assert start is not None
    pins = frozenset({(3, 0), (0, 1), (3, 1), (0, 2)})  # B0 of each device before F0 of the next
    found = Finish.of(start, pins, by_order=True).solve(Control()).report.solution
    assert found is not None
    assert (found.starts[1:, 0] >= found.starts[:-1, 3] + plan.blocks[3].duration).all()
    free = Finish.of(start, frozenset({(0, 0)}), by_order=True).solve(Control()).report.solution
    assert free is not None
    assert free.makespan < found.makespan <= start.makespan


def test_a_completion_is_cancelled_and_never_longer_than_before() -> None:
    schedule = Schedule.from_starts(load_sample("m-shape-4"), searched("m-shape-4", 16).starts * 2)
    control = Control()
    control.cancel()
    completion = Finish.of(schedule, frozenset({(0, 3)})).solve(control)
    assert completion.report.makespan == schedule.makespan
    assert not completion.proved
    assert completion.report.status is Status.FEASIBLE


def test_a_completion_waits_for_no_kernels_that_take_long_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """If nothing is compiled yet on the machine, only the CP-SAT model completes."""
    compiled = threading.Event()
    compiling = threading.Thread(target=compiled.wait, daemon=True)
    monkeypatch.setattr("tessel_core.scheduling.kernels.warm._warming", lambda: compiling)
    compiling.start()
    shortest = solve_schedule("1f1b", load_sample("v-shape-4"), 6).solution
    assert shortest is not None
    moved = reordered(shortest, (3, 0), 9)
    completion = replace(Finish.of(moved, frozenset({(0, 0)})), time_limit=4.0).solve(Control())
    compiled.set()
    assert completion.proved
    assert moved.makespan > (completion.report.makespan or 0)


def test_too_many_free_runs_are_refused_in_one_sentence() -> None:
    schedule = searched("v-shape-4", 600)
    with pytest.raises(InputError, match="pins: 4,799 runs are free, more than 4,000: pin more of them"):
        Finish.of(schedule, frozenset({(0, 3)})).solve(Control())


@pytest.mark.parametrize(("micro_batch", "block", "by"), [(12, 6, -10), (2, 5, 6), (8, 5, 21)])
@pytest.mark.parametrize("by_order", [False, True])
def test_a_micro_batch_that_was_moved_and_pinned_is_completed_to_the_bound(
    micro_batch: int, block: int, by: int, by_order: bool
) -> None:
    schedule = solve_schedule("tessel", load_sample("m-shape-4"), 16, TesselConfig(workers=1)).solution
    assert schedule is not None
    moved = reordered(schedule, (block, micro_batch), int(schedule.starts[micro_batch, block]) + by)
    pins = frozenset((b, micro_batch) for b in range(10))
    completion = replace(Finish.of(moved, pins, by_order=by_order), workers=1).solve(Control())
    found = completion.report.solution
    assert found is not None
    assert moved.makespan > found.makespan == schedule.makespan
    assert completion.proved
    if not by_order:
        assert (found.starts[micro_batch] == moved.starts[micro_batch]).all()
