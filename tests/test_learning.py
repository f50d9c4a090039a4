"""The course: every level is solved by its own solver and its own hints, and says nothing that was not computed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from tessel_core.control import Control
from tessel_core.deadlock import Verdict
from tessel_core.errors import InputError
from tessel_core.inspection.recognise import same_order
from tessel_core.learning import (
    GLOSSARY,
    Knob,
    KnobAnswers,
    Level,
    Ordering,
    Outcome,
    Puzzle,
    Stamping,
    find_level,
    list_levels,
)
from tessel_core.learning.coach import Coaching
from tessel_core.learning.level import MOST_RUNS, MOST_WORDS, sentences
from tessel_core.learning.levels import (
    huge_vocabulary,
    place_first,
    repetend,
    who_wins,
    why_micro_batches,
)
from tessel_core.learning.solved import idle, searched
from tessel_core.learning.stamping import judge_stamp, least_period
from tessel_core.learning.verdict import judge, orders_like, schedule_of, target_of
from tessel_core.model import MemoryProfile, Repetend, Schedule, ScheduleReport, Status
from tessel_core.networks import SHAPES, ShapeParameters, build_shape
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.bounds import period_bound

LEVELS = list_levels()
PUZZLES = [level for level in LEVELS if isinstance(level.task(), Puzzle)]
KNOBS = [level for level in LEVELS if isinstance(level.task(), Knob)]
SLOTS_HELD = {"4": Fraction(3, 4), "8": Fraction(5, 8)}
"""V-Half over ZB-V by devices [Qi 2024]."""


def named(level: Level) -> str:
    return level.name


def answer(level: Level) -> tuple[Puzzle, ScheduleReport]:
    task = level.task()
    assert isinstance(task, Puzzle)
    return task, searched(task.plan, task.micro_batches)


def outcomes(number: int) -> tuple[Knob, tuple[Outcome, ...]]:
    task = find_level(str(number)).task()
    assert isinstance(task, Knob)
    return task, KnobAnswers(number).solve(Control())


def test_there_are_fifteen_levels_each_once() -> None:
    assert [level.number for level in LEVELS] == [*range(1, 16)]
    with pytest.raises(InputError, match="must be a number from 1 to 15"):
        find_level("16")


@pytest.mark.parametrize("level", LEVELS, ids=named)
def test_what_a_level_says_is_short_and_filled_in(level: Level) -> None:
    said = [level.title, level.idea, level.asks, *level.hints, *level.reasons()]
    if isinstance(level.task(), Knob):
        said += [each.says for each in outcomes(level.number)[1]]
    assert not re.search(r"[{}]", " ".join(said))
    assert [each for each in sentences(said) if len(each.split()) > MOST_WORDS] == []


@pytest.mark.parametrize("level", PUZZLES, ids=named)
def test_a_puzzle_is_proved_and_solved_by_its_coach(level: Level) -> None:
    """Run by run, each time as the coach completes what is there."""
    puzzle, best = answer(level)
    assert best.status is Status.PROVED_OPTIMAL
    assert len(puzzle.plan.blocks) * puzzle.micro_batches <= 60, "one places it in ten minutes"
    placed: list[tuple[int, int, int]] = []
    while len(placed) < len(puzzle.plan.blocks) * puzzle.micro_batches:
        advice = Coaching(puzzle.plan, puzzle.micro_batches, tuple(placed), best.makespan_bound).solve(Control())
        assert advice.starts is not None
        assert advice.proved
        here = {(b, m) for b, m, _ in placed}
        left = sorted(
            (at, m, b) for m, row in enumerate(advice.starts) for b, at in enumerate(row) if (b, m) not in here
        )
        placed += [(b, m, at) for at, m, b in left[: max(6, len(left) // 2)]]
    schedule = schedule_of(puzzle, placed)
    assert schedule is not None
    judged = judge(schedule, best)
    assert judged.reached
    assert judged.sentence.endswith("proved: nobody can do better.")
    target = target_of(puzzle, best)
    assert target is not None
    assert judge(target, best, puzzle.order).reached, "where an order is asked for, it is one of the shortest"


@pytest.mark.parametrize("level", KNOBS, ids=named)
def test_a_knob_has_answers_and_others(level: Level) -> None:
    knob, found = outcomes(level.number)
    assert len(found) == len(knob.stops) == len(set(knob.stops))
    assert 0 < len(knob.answers(found)) < len(knob.stops)


def test_what_is_claimed_of_the_knobs_is_computed_another_way() -> None:
    knob, found = outcomes(2)
    assert [each.value for each in found] == [why_micro_batches.bubble(4, int(stop)) for stop in knob.stops]
    knob, found = outcomes(8)
    assert {stop: each.value for stop, each in zip(knob.stops, found, strict=True) if stop in SLOTS_HELD} == SLOTS_HELD
    for each in found:
        held = [max(MemoryProfile.of(schedule).peaks) for _, schedule in each.schedules]
        assert each.value == Fraction(held[1], held[0])
    for number, first in ((2, 13), (8, 5)):  # the least of all numbers, not of the stops alone
        knob, found = outcomes(number)
        (right,) = knob.answers(found)
        assert knob.stops[right] == str(first)
    assert [m for m in range(1, 14) if why_micro_batches.bubble(4, m) < Fraction(1, 5)] == [13]
    assert {"2", "3", "4", "5"} <= set(knob.stops)
    _, found = outcomes(13)
    report = place_first.proved()
    assert report.status is Status.PROVED_OPTIMAL
    assert float(min(each.value for each in found)) == report.objective
    knob, found = outcomes(14)
    grid = who_wins.grid()
    assert found[next(iter(knob.answers(found)))].value == Fraction(
        min(o.latency for o in grid.outcomes if not o.reason)
    )


def test_the_best_block_is_the_bound_and_others_are_told_how_far_they_are() -> None:
    task = find_level("9").task()
    assert isinstance(task, Stamping)
    best = task.best()
    assert best.period_per_micro_batch == period_bound(task.plan) == Fraction(16, 3)
    assert best.unroll == 3
    for unroll in range(1, task.most + 1):
        found = repetend.repetend_of(unroll)
        judged, ((_, schedule),) = judge_stamp(task, found), judge_stamp(task, found).shown
        assert judged.reached == (unroll == best.unroll)
        assert least_period(found) == found.period
        moved = schedule.starts[unroll:] - schedule.starts[:-unroll]
        assert np.unique(moved).tolist() == [found.period], "the block is stamped"
    assert judge_stamp(task, best).sentence.startswith("16 steps for 3 micro-batches, 16/3 steps each: proved")
    late = judge_stamp(task, Repetend(task.plan, 20, best.first_start))
    assert late.sentence.endswith("This block may be stamped every 16 steps already.")
    with pytest.raises(InputError, match=r"stamped every 15: .*memory|stamped every 15: .*overlap"):
        judge_stamp(task, Repetend(task.plan, 15, best.first_start))
    with pytest.raises(InputError, match="has no run 9 of micro-batch 0"):
        task.block_of([(9, 0, 0)], 3)
    assert task.block_of([(0, 0, 0)], 3) is None


def goes_on(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether two lists come to their ends where each send is done with its receive, or waits."""
    for mine, theirs in zip(first, second, strict=True):
        (verb, *what), (other, *which) = mine.split(), theirs.split()
        if verb == other or what != which:
            return False
    return True


def test_lists_go_on_in_the_orders_that_go_hand_in_hand_and_the_coach_leads_there() -> None:
    task = find_level("15").task()
    assert isinstance(task, Ordering)
    orders, front = {task.start}, [task.start]
    while front:
        for _, after in task.steps(front.pop()):
            if after not in orders:
                orders.add(after)
                front.append(after)
    assert len(orders) == 6 * 6, "gradients come after their activations, on either side"
    for order in orders:
        texts = [[task.lists[rank][each].text for each in row] for rank, row in enumerate(order)]
        assert task.check(order).proceeds == goes_on(*texts)
        way, now = task.way_out(order), order
        for step in way:
            assert not task.check(now).proceeds
            now = task.moved(now, step)
        assert task.check(now).proceeds
    assert task.check(task.start).verdict is Verdict.CIRCLE
    assert len(task.way_out(task.start)) == 1
    assert task.says(task.start, task.check(task.start)) == (
        "Circle: gpu0 waits forever to send activations 1 and gpu1 waits forever to send gradients 0."
    )


def test_tensors_that_are_mistaken_for_others_are_said_before_the_circle_behind_them() -> None:
    task = find_level("15").task()
    assert isinstance(task, Ordering)
    order = task.moved(task.start, (0, 0))
    found = task.check(order)
    assert task.crossed(order, found).keys() == {(0, 0), (1, 0)}, "neither is ticked as done"
    assert task.says(order, found) == (
        "Mismatched: gpu1 is to receive activations 0 where gpu0 is to send activations 1, "
        "so the wrong tensor would arrive."
    )
    assert not task.crossed(task.start, task.check(task.start))


def test_lists_are_moved_only_where_that_makes_sense() -> None:
    task = find_level("15").task()
    assert isinstance(task, Ordering)
    with pytest.raises(InputError, match="gpu1: cannot send gradients 0 before it has done: receive activations 0"):
        task.moved(task.start, (1, 0))
    kept = task.moved(task.start, (0, 1))
    assert task.order_of(kept) == kept
    for wrong in ((), ((0, 1, 2, 3),), ((0, 0, 1, 2), (0, 1, 2, 3)), ((0, 1, 2, 3), (1, 0, 2, 3)), ((5, 1, 2, 3), ())):
        assert task.order_of(wrong) == task.start


def test_who_wins_with_a_vocabulary_is_proved_by_bounds() -> None:
    for vocabulary in (50_000, 200_000, 1_000_000):
        v, m = huge_vocabulary.reports(vocabulary)
        winner, loser = (v, m) if vocabulary == 50_000 else (m, v)
        assert winner.makespan is not None
        assert winner.makespan < loser.makespan_bound


def test_an_order_is_recognised_by_its_order_alone() -> None:
    plan = build_shape("v-shape", ShapeParameters(devices=3, forward=1, backward=2, capacity=6))
    schedule = solve_schedule("1f1b", plan, 5).solution
    assert schedule is not None
    assert orders_like(schedule) == ("1F1B",)
    renumbered = Schedule.at_starts(plan, schedule.starts[[3, 0, 4, 1, 2]])
    later = Schedule.at_starts(plan, 3 * schedule.starts)
    assert same_order(schedule, renumbered)
    assert orders_like(renumbered) == ("1F1B",)
    assert same_order(schedule, later)
    starts = schedule.starts.copy()
    starts[[0, 1], 0] = starts[[1, 0], 0]  # F0 of two micro-batches, and nothing else
    assert not same_order(schedule, Schedule.at_starts(plan, starts))
    assert not same_order(schedule, Schedule.at_starts(plan, schedule.starts[:4]))


def test_only_what_is_least_and_valid_is_reached() -> None:
    puzzle, best = answer(find_level("3"))
    slow = solve_schedule("sequential", puzzle.plan, puzzle.micro_batches).solution
    assert slow is not None
    judged = judge(slow, best)
    assert not judged.reached
    assert "longer than it has to be" in judged.sentence
    assert idle(slow) > idle(best.solution)
    other = judge(best.solution, best, "gpipe")
    assert not other.reached
    assert other.sentence.endswith("What is asked for is another order, GPipe.")
    broken = slow.starts.copy()
    broken[0, 1] = 0
    with pytest.raises(InputError, match=r"dependency|no overlap"):
        judge(Schedule.at_starts(puzzle.plan, broken), best)
    assert schedule_of(puzzle, [(0, 0, 0)]) is None
    with pytest.raises(InputError, match="has no block 0 of micro-batch 9"):
        schedule_of(puzzle, [(0, 9, 0)])


def test_the_coach_says_when_nothing_can_follow() -> None:
    """Two micro-batches fill the memory of three blocks whose releases would have to come first."""
    plan = build_shape("x-shape", ShapeParameters(devices=2, forward=1, backward=1, capacity=2))
    blocks = {block.name: b for b, block in enumerate(plan.blocks)}
    first = [block for block in plan.blocks if block.memory > 0 and not plan.predecessors[blocks[block.name]]]
    placed = tuple((blocks[block.name], m, m) for block in first for m in range(2))
    advice = Coaching(plan, 3, placed).solve(Control())
    assert advice.starts is None
    assert advice.proved


@pytest.mark.parametrize("shape", SHAPES)
def test_every_word_has_numbers_for_every_shape(shape: str) -> None:
    plan = build_shape(shape)
    for term in GLOSSARY:
        assert term.filled is None or "nan" not in term.filled(plan, 7)


def test_a_puzzle_has_its_limits() -> None:
    plan = build_shape("v-shape", ShapeParameters(devices=4))
    assert len(plan.blocks) * (MOST_RUNS // len(plan.blocks)) <= MOST_RUNS
    with pytest.raises(InputError, match="puzzle: has 408 runs, more than the 400"):
        Puzzle(plan, 51)
