"""The difference of two schedules: laws on random schedules, and reversed neighbours by brute force."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from helpers.plans import random_plan
from helpers.schedules import any_schedule
from helpers.seeds import seeds

from tessel_core.inspection import Element, Obstacles, Path, difference
from tessel_core.model import Block, MicroBatchPlan, Schedule
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.order import run_in_order
from tessel_core.workbench.messages.difference import difference_columns, difference_sentences

Run = tuple[str, int]


def built(scheduler: str, sample: str = "v-shape-4", micro_batches: int = 8) -> Schedule:
    found = solve_schedule(scheduler, load_sample(sample), micro_batches).drawable
    assert found is not None
    return found


def ordered(plan: MicroBatchPlan, micro_batches: int, choose: random.Random) -> Schedule:
    """Return an order of the plan's runs that keeps its dependencies, with some runs later than necessary."""
    left, order = [(b, m) for b in range(len(plan.blocks)) for m in range(micro_batches)], list[tuple[int, int]]()
    choose.shuffle(left)
    while left:
        ready = (run for run in left if all((before, run[1]) in order for before, _ in plan.predecessors[run[0]]))
        order.append(next(ready))
        left.remove(order[-1])
    starts = run_in_order(plan, micro_batches, order)
    late = starts >= choose.randint(1, int(starts.max()) + 4)
    return Schedule.from_starts(plan, starts + late * choose.randint(0, 3))


def two(seed: int) -> tuple[Schedule, Schedule]:
    """Return two schedules of one random plan, or of a plan with one block moved or longer."""
    choose, plan = random.Random(seed), random_plan(seed)
    other, bare = plan, [replace(block, memory=0) for block in plan.blocks]
    if choose.random() < 0.5:
        on = (choose.randrange(len(plan.devices)),)
        bare[0] = replace(bare[0], devices=on, duration=choose.randint(1, 4))
        other = replace(plan, blocks=tuple(bare))
    micro_batches = choose.randint(1, 4)
    return ordered(plan, micro_batches, choose), ordered(other, micro_batches, choose)


def lines(schedule: Schedule) -> dict[str, list[Run]]:
    """Return the runs of each device in order."""
    plan = schedule.plan
    return {
        device.name: [
            (plan.blocks[b].name, m)
            for _, b, m in sorted(zip(schedule.start, schedule.block, schedule.micro_batch, strict=True))
            if d in plan.blocks[b].devices
        ]
        for d, device in enumerate(plan.devices)
    }


def turned_by_brute_force(before: Schedule, after: Schedule) -> dict[tuple[str, str, str], int]:
    """Return the number of reversed neighbours for each device and pair of blocks.

    Only runs that are on the device in both schedules count.
    """
    found, was = dict[tuple[str, str, str], int](), lines(before)
    for device, line in lines(after).items():
        common = [run for run in line if run in was[device]]
        for first, second in pairwise(common):
            if was[device].index(first) > was[device].index(second):
                key = device, first[0], second[0]
                found[key] = found.get(key, 0) + 1
    return found


@pytest.mark.parametrize("seed", seeds(300))
def test_the_parts_sum_to_the_difference_and_reversed_roles_negate_them(seed: int) -> None:
    before, after = two(seed)
    there, back = difference(before, after), difference(after, before)
    assert there.makespan == after.makespan - before.makespan == sum(there.elements.values())
    assert {each: -ticks for each, ticks in there.elements.items()} == back.elements
    assert back.makespan == -there.makespan
    assert sorted((-there.shift).tolist()) == sorted(back.shift.tolist())
    assert {(b, a) for a, b in there.blocks} == set(back.blocks)
    assert bool(there.turned) == bool(back.turned)


def test_random_schedules_differ_in_every_element_and_order() -> None:
    found = [difference(*two(seed)) for seed in range(100)]
    assert {element for each in found for element, ticks in each.elements.items() if ticks} == set(Element)
    assert sum(bool(each.turned) for each in found) > 20
    assert any(each.moved for each in found)


@pytest.mark.parametrize("seed", seeds(400, 460))
def test_a_schedule_does_not_differ_from_itself(seed: int) -> None:
    schedule = any_schedule(seed)
    none = difference(schedule, schedule)
    assert not any(none.elements.values())
    assert not none.shift.any()
    assert len(none.shift) == len(schedule.start)
    assert (none.turned, none.only_before, none.only_after, none.moved) == ((), (), (), ())


@pytest.mark.parametrize("seed", seeds(1000, 1200))
def test_a_path_is_the_critical_path_and_fills_the_makespan(seed: int) -> None:
    """The path also covers time in which a run is later than necessary."""
    schedule = any_schedule(seed)
    path, links = Path.of(schedule), Obstacles.of(schedule).critical_path()
    assert path.rows[: len(links)] == tuple(link.row for link in links)
    assert sum(path.ticks.values()) == schedule.makespan
    gaps = [schedule.start[later] - schedule.end[row] for later, row in pairwise(path.rows)]
    idle = path.ticks[Element.COMMUNICATION] + path.ticks[Element.LATE]
    assert sum(gaps) + schedule.start[path.rows[-1]] == idle
    assert min(gaps, default=0) >= 0
    assert all(path.ticks[each] >= path.runs[each] >= 0 for each in Element)


@pytest.mark.parametrize("seed", seeds(2000, 2300))
def test_turned_neighbours_are_those_of_brute_force(seed: int) -> None:
    before, after = two(seed)
    found = difference(before, after)
    plan, on_path = after.plan, set(found.paths[1].rows)
    counted = {
        (plan.devices[each.device].name, plan.blocks[each.first].name, plan.blocks[each.second].name): each.pairs
        for each in found.turned
    }
    assert counted == turned_by_brute_force(before, after)
    for each in found.turned:
        assert tuple(after.block[list(each.example)]) == (each.first, each.second)
        assert bool(each.critical) == (set(each.example) <= on_path)
    assert [each.critical for each in found.turned] == sorted((x.critical for x in found.turned), reverse=True)


def test_shifts_are_those_of_equal_runs() -> None:
    before, after = built("gpipe"), built("1f1b")
    found = difference(before, after)
    names = [
        [(each.plan.blocks[b].name, m) for b, m in zip(each.block, each.micro_batch, strict=True)]
        for each in (before, after)
    ]
    for one, other, shift in zip(*found.rows, found.shift, strict=True):
        assert names[0][one] == names[1][other]
        assert shift == after.start[other] - before.start[one]
    assert len(found.shift) == 64


def renamed(schedule: Schedule, name: Callable[[Block], str]) -> Schedule:
    """Return the same schedule with other names of blocks."""
    plan = schedule.plan
    blocks = tuple(replace(block, name=name(block)) for block in plan.blocks)
    now = {block.name: other.name for block, other in zip(plan.blocks, blocks, strict=True)}
    arcs = tuple(
        replace(each, predecessor=now[each.predecessor], successor=now[each.successor]) for each in plan.dependencies
    )
    return Schedule.from_starts(replace(plan, blocks=blocks, dependencies=arcs), schedule.starts)


def test_blocks_of_other_names_match_by_their_place_in_the_chain_of_their_kind() -> None:
    before, after = built("1f1b"), renamed(built("1f1b"), lambda block: f"stage {block.name}")
    found = difference(before, after)
    assert found.blocks == tuple((b, b) for b in range(8))
    assert not found.turned
    assert not found.shift.any()


def test_blocks_that_match_none_are_listed() -> None:
    eight = difference(built("1f1b"), built("1f1b", "v-shape-8"))
    assert (len(eight.blocks), len(eight.only_before), len(eight.only_after)) == (8, 0, 8)
    other = renamed(built("1f1b"), lambda block: f"x{block.name}")
    bare = tuple(replace(block, memory=0) for block in other.plan.blocks)
    parallel = Schedule.from_starts(replace(other.plan, blocks=bare, dependencies=()), other.starts)
    found = difference(built("1f1b"), parallel)
    assert not found.blocks, "where nothing waits for anything, names alone tell blocks apart"
    assert len(found.only_before) == len(found.only_after) == 8
    assert sum(found.elements.values()) == found.makespan


def test_a_block_on_another_device_has_moved_and_has_no_neighbours_there() -> None:
    plan = load_sample("v-shape-4")
    blocks = list[Block](plan.blocks)
    blocks[0] = replace(blocks[0], devices=(1,), memory=0)
    blocks[7] = replace(blocks[7], devices=(1,), memory=0)
    found = difference(
        built("1f1b"), Schedule.from_starts(replace(plan, blocks=tuple(blocks)), built("sequential").starts)
    )
    assert found.moved == ((0, 0), (7, 7))
    said = difference_sentences(found, "before", "after")[-1]
    assert said == "Blocks on other devices: F0 from gpu0 to gpu1, B0 from gpu0 to gpu1."
    assert {each.first for each in found.turned if each.device == 1}.isdisjoint({0, 7})


def test_what_published_orders_turn_around() -> None:
    found = difference(built("gpipe"), built("1f1b"))
    plan = found.after.plan
    first = found.turned[0]
    assert (plan.devices[first.device].name, plan.blocks[first.first].name, plan.blocks[first.second].name) == (
        "gpu1",
        "B1",
        "F1",
    )
    assert found.makespan == 0
    assert difference(built("sequential"), built("1f1b")).makespan == 44 - 128


@pytest.mark.parametrize("more", [0, 3])
def test_micro_batches_that_only_one_has_are_left_out(more: int) -> None:
    found = difference(built("1f1b"), built("1f1b", micro_batches=8 + more))
    assert len(found.shift) == 64
    assert sum(found.elements.values()) == found.makespan
    assert np.isin(found.rows[1], np.arange(8 * (8 + more))).all()


def test_sentences_have_the_longest_effect_first() -> None:
    found = difference(built("1f1b"), built("sequential"))
    assert difference_sentences(found, "1F1B", "Sequential") == (
        "Sequential ends 84 steps later than 1F1B: 44 steps → 128 steps.",
        "The critical path of Sequential has 69 steps more work whose output the next run needs, 18 steps more work "
        "before the next run on its device, 3 steps less work whose memory the next run needs.",
        "21 pairs of neighbouring runs on 3 devices changed order, 21 on the critical path: on gpu0, B0 of 0 now runs "
        "before F0 of 1 (and 6 more); on gpu1, B1 of 0 now runs before F1 of 1 (and 6 more); on gpu2, B2 of 0 now runs "
        "before F2 of 1 (and 6 more).",
        "F0 of 7 moves the furthest: it starts 84 steps later. Of 64 runs, 0 start earlier and 56 later.",
    )
    table = {column.heading: column.values for column in difference_columns(found)}
    assert table["Before (steps)"] == (35, 3, 3, 3, 44)
    assert table["After (steps)"] == (104, 21, 0, 3, 128)
    assert table["Difference (steps)"] == (69, 18, -3, 0, 84)
    assert table["Number before"][-1] == len(found.paths[0].rows)


def test_equal_schedules_and_blocks_that_match_none_in_sentences() -> None:
    one = built("1f1b")
    assert difference_sentences(difference(one, one), "one", "the same") == (
        "the same and one end at the same time: 44 steps.",
        "The critical path of the same has the same parts.",
        "Every device runs its blocks in the same order.",
        "Every run starts at the same time.",
    )
    said = difference_sentences(difference(one, built("1f1b", "v-shape-8")), "four", "eight")
    assert said[-1] == "Blocks only in eight: F4, F5, F6 and 5 more."
    assert "Of the 64 runs in both schedules" in said[-2]
    said = difference_sentences(difference(one, built("gpipe")), "one", "the other")
    assert said[0] == (
        "the other does not fit in the memory of gpu0, gpu1, gpu2 and 1 more. Its times assume that there is enough."
    )
