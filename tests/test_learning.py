"""The course: each level is solved by its solver and by its hints, and all its texts are computed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tessel_core.control import Control
from tessel_core.costs.meshes import find_mesh
from tessel_core.deadlock import Verdict
from tessel_core.errors import InputError
from tessel_core.inspection.recognise import same_order
from tessel_core.ir.execute import execute
from tessel_core.ir.types import places_here
from tessel_core.learning import (
    GLOSSARY,
    Assigning,
    Assignment,
    Knob,
    KnobAnswers,
    Level,
    Ordering,
    Puzzle,
    Stamping,
    StopResult,
    find_level,
    list_levels,
)
from tessel_core.learning.assignment import judge_assignment
from tessel_core.learning.coach import Coaching
from tessel_core.learning.level import MAX_WORDS_PER_SENTENCE, sentences
from tessel_core.learning.levels import (
    causal_ring,
    gathered_weights,
    huge_vocabulary,
    overloaded_expert,
    place_first,
    repetend,
    who_wins,
    why_micro_batches,
)
from tessel_core.learning.solved import idle, searched
from tessel_core.learning.stamping import judge_stamp, least_period
from tessel_core.learning.task import MAX_PUZZLE_RUNS
from tessel_core.learning.verdict import judge, orders_like, schedule_of, target_of
from tessel_core.model import MemoryProfile, Repetend, Schedule, ScheduleReport, Status
from tessel_core.networks import SHAPES, ShapeParameters, build_shape
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.bounds import period_bound
from tessel_core.simulation import device_times
from tessel_core.simulation.idle import idle_of
from tessel_core.strategies.families import find_family
from tessel_core.strategies.strategy import Strategy, simulate_strategy

LEVELS = list_levels()
PUZZLES = [level for level in LEVELS if isinstance(level.task(), Puzzle)]
ASSIGNMENTS = [level for level in LEVELS if isinstance(level.task(), Assignment)]
KNOBS = [level for level in LEVELS if isinstance(level.task(), Knob)]
SLOTS_HELD = {"4": Fraction(3, 4), "8": Fraction(5, 8)}
"""Memory of V-Half divided by that of ZB-V, by number of devices [Qi 2024]."""


def named(level: Level) -> str:
    return level.name


def answer(level: Level) -> tuple[Puzzle, ScheduleReport]:
    task = level.task()
    assert isinstance(task, Puzzle)
    return task, searched(task.plan, task.micro_batches)


def outcomes(number: int) -> tuple[Knob, tuple[StopResult, ...]]:
    task = find_level(str(number)).task()
    assert isinstance(task, Knob)
    return task, KnobAnswers(number).solve(Control())


def test_there_are_eighteen_levels_each_once() -> None:
    assert [level.number for level in LEVELS] == [*range(1, 19)]
    with pytest.raises(InputError, match="must be a number from 1 to 18"):
        find_level("19")


@pytest.mark.parametrize("level", LEVELS, ids=named)
def test_what_a_level_says_is_short_and_filled_in(level: Level) -> None:
    said = [level.title, level.idea, level.asks, *level.hints, *level.reasons()]
    if isinstance(level.task(), Knob):
        said += [each.says for each in outcomes(level.number)[1]]
    if isinstance(task := level.task(), Assignment):
        said += [*task.parts, *(judge_assignment(task, given).sentence for given in (task.start, task.best))]
    assert not re.search(r"[{}]", " ".join(said))
    assert [each for each in sentences(said) if len(each.split()) > MAX_WORDS_PER_SENTENCE] == []


@pytest.mark.parametrize("level", PUZZLES, ids=named)
def test_a_puzzle_is_proved_and_solved_by_its_coach(level: Level) -> None:
    """Run by run, each time as the coach completes the present schedule."""
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
    assert judged.sentence.endswith("proved optimal.")
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
    for number, first in ((2, 13), (8, 5)):  # the least of all numbers, not only of the slider's stops
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
    assert judge_stamp(task, best).sentence.startswith("16 steps for 3 micro-batches, 16/3 steps each. Proved")
    late = judge_stamp(task, Repetend(task.plan, 20, best.first_start))
    assert late.sentence.endswith("This block can already repeat every 16 steps.")
    with pytest.raises(InputError, match=r"stamped every 15: .*memory|stamped every 15: .*overlap"):
        judge_stamp(task, Repetend(task.plan, 15, best.first_start))
    with pytest.raises(InputError, match="has no run 9 of micro-batch 0"):
        task.block_of([(9, 0, 0)], 3)
    assert task.block_of([(0, 0, 0)], 3) is None


@pytest.mark.parametrize("level", ASSIGNMENTS, ids=named)
def test_an_assignment_is_solved_by_its_coach_and_by_nothing_slower(level: Level) -> None:
    task = level.task()
    assert isinstance(task, Assignment)
    first = Assigning(level.number, task.start).solve(Control())
    given = task.start
    while (after := task.helped(given)) != given:
        given = after
    found = Assigning(level.number, given).solve(Control())
    assert (first.reached, found.reached) == (False, True)
    assert task.helped(given) == given == task.best
    longer = first.traced[0].latency / found.traced[0].latency - 1
    assert f"this takes {longer:.1%} longer than necessary." in first.sentence
    for trace, _ in (first.traced, found.traced):
        idle_of_it = idle_of(trace)
        assert idle_of_it is not None
        works = [float(trace.seconds[(trace.device == d) & ~trace.communicates].sum()) for d in trace.devices]
        imbalance = (max(works) - sum(works) / len(works)) / trace.latency
        assert float(idle_of_it.split.imbalance) == pytest.approx(imbalance, abs=1e-9)
    turned = tuple(tuple(sorted((device + 1) % len(task.devices) for device in row)) for row in task.best)
    assert judge_assignment(task, turned).reached, "devices are alike"


def test_an_assignment_is_complete_fits_and_is_one_of_the_parts() -> None:
    chunks, experts = (find_level(name).task() for name in ("18", "17"))
    assert isinstance(chunks, Assignment)
    assert isinstance(experts, Assignment)
    with pytest.raises(InputError, match="gpu0: has 3 parts, but room for only 2"):
        judge_assignment(chunks, ((0,), *chunks.start[1:2], (0,), *chunks.start[3:]))
    with pytest.raises(InputError, match="Chunk 1: attends to 1 of 8: is not on any device"):
        judge_assignment(chunks, ((), *chunks.start[1:]))
    for wrong in ((), ((0,),), ((9,),) * 8, ((0, 1),) * 8):
        assert chunks.given_of(wrong) == chunks.start
    assert experts.given_of(((1, 0, 1),) * 8) == ((0, 1),) * 8
    assert chunks.given_of(((),) * 8) == ((),) * 8, "what was begun is kept"


def test_weights_are_gathered_once_or_twice_per_micro_batch_and_the_fastest_that_fits_is_best() -> None:
    knob, found = outcomes(16)
    fitting = dict[float, int]()
    for stop in range(len(knob.stops)):
        trace, mesh = gathered_weights.traced(stop)
        strategy, capacity = gathered_weights.strategy(stop), mesh.devices[0].memory_capacity
        assert capacity is not None
        assert gathered_weights.gathers(trace) == (2 * strategy.micro_batches if strategy.reshard else 1)
        assert gathered_weights.fits(stop) == (max(trace.peak_memory) <= capacity)
        if max(trace.peak_memory) <= capacity:
            fitting[trace.latency] = stop
    assert knob.answers(found) == {fitting[min(fitting)]}
    best = gathered_weights.strategy(fitting[min(fitting)])
    assert (best.reshard, best.micro_batches) == (False, 16)
    for stop, outcome in enumerate(found):
        trace, _ = gathered_weights.traced(stop)
        times = device_times(trace)
        alone = max(1 - (each.computing + each.neither) / trace.latency for each in times)
        assert gathered_weights.exposed(trace) == pytest.approx(alone)
        assert (f"{alone:.1%}" in outcome.says) == gathered_weights.fits(stop)
    kept, _ = gathered_weights.traced(knob.stops.index("Keep, 8 micro-batches"))
    assert max(kept.peak_memory) > 1.1 * capacity, "not by a hair"
    assert max(gathered_weights.traced(fitting[min(fitting)])[0].peak_memory) < 0.9 * capacity


def test_experts_take_the_time_of_the_strategy_with_their_imbalance() -> None:
    level = overloaded_expert
    family, mesh = find_family("moe"), find_mesh("h100-4")
    for given in (level.START, level.MOVED, level.BEST):
        sizes = {"size": "mixtral-8x7b", "layers": 2, "batch": 4, "sequence": 4096, "mode": "inference"}
        spec = family.spec(**sizes, imbalance=level.imbalance(given))
        simulated = simulate_strategy(family, spec, Strategy(data=4, expert=4), mesh).trace.latency
        trace, _ = level.traced(given)
        assert trace.latency == pytest.approx(simulated, rel=1e-9)
        experts = np.array([op.kind == "grouped_matmul" for op in trace.program.ops])[trace.op]
        times = np.array([trace.seconds[experts & (trace.device == d)].sum() for d in trace.devices])
        shares = np.array([float(each) for each in level.loads(given)])
        assert times / times.max() == pytest.approx(shares / shares.max(), abs=0.03), "fewer rows are slower"
    without_copies = [
        max(sum(share for share, on in zip(level.SHARES, where, strict=True) if on == d) for d in range(4))
        for where in product(range(4), repeat=len(level.SHARES))
        if max(map(where.count, range(4))) <= 3
    ]
    assert min(without_copies) == max(level.loads(level.MOVED)) == 36
    assert level.loads(level.BEST) == (25,) * 4


def test_chunks_of_a_causal_mask_take_the_time_of_context_parallelism_where_they_are_paired() -> None:
    level = causal_ring
    family, mesh = find_family("llama"), find_mesh("h100-4")
    spec = family.spec(size="llama-3-8b", layers=1, batch=1, sequence=level.TOKENS, mode="inference")
    ring = simulate_strategy(family, spec, Strategy(context=4), mesh).trace
    attends = np.array([op.kind.startswith("attention_") for op in ring.program.ops])[ring.op]
    by_strategy = max(ring.seconds[attends & (ring.device == d)].sum() for d in ring.devices)
    paired, contiguous = (level.traced(given)[0].latency for given in (level.BEST, level.START))
    assert paired == pytest.approx(by_strategy, rel=0.05)
    assert contiguous / paired == pytest.approx(
        float(max(level.work(level.START)) / max(level.work(level.BEST))), rel=0.05
    )
    for device in range(level.DEVICES):
        tokens = places_here(2, device, level.DEVICES, balanced=True).tolist()
        assert [i for i, row in enumerate(level.BEST) if device in row] == tokens
    even = {
        frozenset(frozenset(i for i in range(8) if where[i] == d) for d in range(4))
        for where in product(range(4), repeat=8)
        if all(where.count(d) == 2 for d in range(4)) and len(set(level.work(tuple((d,) for d in where)))) == 1
    }
    assert len(even) == 1, "only this pairing is even"


@pytest.mark.parametrize(
    "given", [causal_ring.START, causal_ring.BEST, ((3,), (0,), (2,), (1,), (3,), (2,), (0,), (1,))]
)
def test_attention_over_chunks_on_any_devices_is_causal_attention(given: tuple[tuple[int, ...], ...]) -> None:
    tokens, size, heads, keys = 16, 2, causal_ring.HEADS, causal_ring.KEY_HEADS
    program, draw = causal_ring.ring(given, tokens, size, "fp64"), np.random.default_rng(3)
    arrays = {value: draw.normal(size=program.types[value].shape) for value in program.inputs}
    q, k, v = (np.concatenate([arrays[value] for value in program.inputs[i::3]], axis=1)[0] for i in range(3))
    mask, expected = np.tril(np.ones((tokens, tokens), bool)), []
    for head in range(heads):
        of_key = head // (heads // keys)
        mine, theirs = (slice(each * size, (each + 1) * size) for each in (head, of_key))
        scores = np.where(mask, q[:, mine] @ k[:, theirs].T / np.sqrt(size), -np.inf)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        expected.append(powers / powers.sum(axis=1, keepdims=True) @ v[:, theirs])
    found = np.concatenate(execute(program, arrays), axis=1)[0]
    np.testing.assert_allclose(found, np.concatenate(expected, axis=1), rtol=1e-10)


def goes_on(first: Sequence[str], second: Sequence[str]) -> bool:
    """Return whether two lists finish if each send waits for its receive."""
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
        "Mismatched: gpu1 would receive activations 0 while gpu0 would send activations 1, "
        "so the wrong tensor would arrive."
    )
    assert not task.crossed(task.start, task.check(task.start))


def test_lists_are_moved_only_where_that_makes_sense() -> None:
    task = find_level("15").task()
    assert isinstance(task, Ordering)
    with pytest.raises(InputError, match="gpu1: cannot send gradients 0 before this action: receive activations 0"):
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
    starts[[0, 1], 0] = starts[[1, 0], 0]  # only F0 of two micro-batches
    assert not same_order(schedule, Schedule.at_starts(plan, starts))
    assert not same_order(schedule, Schedule.at_starts(plan, schedule.starts[:4]))


def test_only_what_is_least_and_valid_is_reached() -> None:
    puzzle, best = answer(find_level("3"))
    slow = solve_schedule("sequential", puzzle.plan, puzzle.micro_batches).solution
    assert slow is not None
    judged = judge(slow, best)
    assert not judged.reached
    assert "longer than necessary" in judged.sentence
    assert idle(slow) > idle(best.solution)
    other = judge(best.solution, best, "gpipe")
    assert not other.reached
    assert other.sentence.endswith("The task asks for another order, GPipe.")
    broken = slow.starts.copy()
    broken[0, 1] = 0
    with pytest.raises(InputError, match=r"dependency|no overlap"):
        judge(Schedule.at_starts(puzzle.plan, broken), best)
    assert schedule_of(puzzle, [(0, 0, 0)]) is None
    with pytest.raises(InputError, match="has no block 0 of micro-batch 9"):
        schedule_of(puzzle, [(0, 9, 0)])


def test_the_coach_says_when_nothing_can_follow() -> None:
    """Two micro-batches fill the memory of three blocks, whose releases would have to come first."""
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
    assert len(plan.blocks) * (MAX_PUZZLE_RUNS // len(plan.blocks)) <= MAX_PUZZLE_RUNS
    with pytest.raises(InputError, match="puzzle: has 408 runs, more than 400"):
        Puzzle(plan, 51)
