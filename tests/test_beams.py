"""Searches around pinned runs: what beams and literals exclude is impossible, and they find what they have room for."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from helpers.seeds import examples

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict, ask
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice, Schedule
from tessel_core.model.schedule import IntColumn
from tessel_core.samples import load_sample
from tessel_core.scheduling.finish import Finish
from tessel_core.scheduling.order import Run
from tessel_core.scheduling.search.beam_search import BeamResult, BeamSearch
from tessel_core.scheduling.search.runs_model import RunsModel

WIDTH = 3_000


def any_plan(chance: random.Random) -> MicroBatchPlan:
    """Return a plan with a few stages on two devices. It may have blocks on both devices, or tight memory."""
    devices, stages = 2, chance.choice((2, 3))
    seats = [chance.randrange(devices) for _ in range(stages)]
    amounts = [chance.choice((1, 1, 2)) for _ in range(stages)]
    end = chance.choice((1, 1, 2))
    blocks = [Block(f"F{i}", BlockKind.FORWARD, (seats[i],), chance.randint(1, 2), amounts[i]) for i in range(stages)]
    blocks += [
        Block(f"B{i}", BlockKind.BACKWARD, (seats[i],), chance.randint(1, 3), -amounts[i])
        for i in reversed(range(stages))
    ]
    if chance.random() < 0.6:
        both = tuple(range(devices))
        blocks = [
            Block("E", BlockKind.FORWARD, both, 1, 0),
            *blocks,
            *([Block("Eb", BlockKind.BACKWARD, both, end, 0)] if chance.random() < 0.8 else []),
        ]
    lag = chance.choice((0, 0, 0, 2))
    arcs = tuple(Dependency(a.name, b.name, chance.choice((0, lag))) for a, b in pairwise(blocks))
    needed = [sum(amount for seat, amount in zip(seats, amounts, strict=True) if seat == d) for d in range(devices)]
    rooms = [chance.choice((None, max(1, need), need + 1, need + 2)) for need in needed]
    return MicroBatchPlan(
        "any", tuple(PlanDevice(f"gpu{d}", room) for d, room in enumerate(rooms)), tuple(blocks), arcs
    )


def any_schedule_of(plan: MicroBatchPlan, micro_batches: int, chance: random.Random) -> IntColumn:
    """Return starts of a schedule with gaps: the order of a random narrow beam, with some runs delayed."""
    search = BeamSearch(plan, micro_batches)
    starts = search.search(5, 10**6, chance.randint(1, 10**6), lambda: False).starts
    if starts is None:  # one micro-batch after another
        starts = search.search(300, 10**6, 0, lambda: False).starts
    assert starts is not None
    later = 0
    for start in sorted(set(starts.ravel().tolist())):
        if chance.random() < 0.2:
            put_off = chance.randint(1, 4)
            starts[starts >= start + later] += put_off
            later += put_off
    return starts


def least(plan: MicroBatchPlan, starts: IntColumn, pinned: dict[Run, int], orders: list[tuple[Run, Run]]) -> int:
    """Return the least makespan, computed by CP-SAT."""
    horizon = int((starts + [block.duration for block in plan.blocks]).max())
    model = RunsModel(plan, len(starts), horizon, pinned=pinned, orders=orders)
    model.minimise_makespan(0)
    answer = ask(model.cp, Effort(20.0, 1, 0), Control())
    assert answer.verdict is Verdict.PROVED
    found = model.starts(answer)
    return int((found + [block.duration for block in plan.blocks]).max())


def within(
    plan: MicroBatchPlan, micro_batches: int, horizon: int, pinned: dict[Run, int], orders: list[tuple[Run, Run]]
) -> Verdict:
    """Ask the model with literals for the order of runs for any schedule that ends by `horizon`."""
    model = RunsModel(plan, micro_batches, horizon, pinned=pinned, orders=orders)
    model.add_order_literals()
    return ask(model.cp, Effort(20.0, 1, 0, relaxation=False), Control(), presolve=False).verdict


def outcomes(search: BeamSearch, limit: int, width: int = WIDTH) -> tuple[BeamResult, BeamResult]:
    return (
        search.search(width, limit, 0, lambda: False),
        search.search_backwards(width, limit, lambda: False),
    )


@pytest.mark.parametrize("seed", range(examples(200)))
def test_what_a_beam_excludes_is_impossible_and_what_it_has_room_for_it_finds(seed: int) -> None:
    chance = random.Random(seed)
    plan, micro_batches = any_plan(chance), chance.choice((2, 3, 4))
    starts = any_schedule_of(plan, micro_batches, chance)
    runs = [(b, m) for m in range(micro_batches) for b in range(len(plan.blocks))]
    whole = [(b, chance.randrange(micro_batches)) for b in range(len(plan.blocks))]
    pins = chance.choice((chance.sample(runs, chance.randint(0, 5)), whole, [(b, 1) for b in range(len(plan.blocks))]))
    by_start = sorted(set(pins), key=lambda run: starts[run[1], run[0]])
    by_order = chance.random() < 0.25
    lines = ([run for run in by_start if d in plan.blocks[run[0]].devices] for d in range(len(plan.devices)))
    orders = sorted({pair for line in lines for pair in pairwise(line)}) if by_order else []
    pinned = {} if by_order else {(b, m): int(starts[m, b]) for b, m in by_start}
    length, search = least(plan, starts, pinned, orders), BeamSearch(plan, micro_batches, pinned, orders)
    assert within(plan, micro_batches, length, pinned, orders) is Verdict.PROVED
    for outcome in outcomes(search, length - 1):
        assert outcome.starts is None
        assert outcome.excluded
    for outcome in outcomes(search, length):
        assert not outcome.excluded
        assert outcome.starts is not None
        assert all(outcome.starts[m, b] == start for (b, m), start in pinned.items())
        assert int((outcome.starts + [block.duration for block in plan.blocks]).max()) == length
        alike = [m for m in range(micro_batches) if m not in {m for _, m in pins}]
        assert (np.diff(outcome.starts[alike], axis=0) > 0).all(), "micro-batches that are alike come in order"
        ends = {run: int(outcome.starts[run[1], run[0]]) + plan.blocks[run[0]].duration for run in runs}
        assert all(outcome.starts[second[1], second[0]] >= ends[first] for first, second in orders)


def any_v_plan(chance: random.Random) -> MicroBatchPlan:
    """Return a V-shaped plan of two or three devices with tight memory."""
    devices, held = chance.choice((2, 3)), chance.choice((1, 2))
    blocks = [Block(f"F{d}", BlockKind.FORWARD, (d,), chance.randint(1, 3), held) for d in range(devices)]
    blocks += [Block(f"B{d}", BlockKind.BACKWARD, (d,), chance.randint(1, 5), -held) for d in reversed(range(devices))]
    arcs = tuple(Dependency(a.name, b.name, chance.choice((0, 0, 1))) for a, b in pairwise(blocks))
    rooms = [held * chance.choice((1, 2, 3)) + chance.randrange(held) for _ in range(devices)]
    return MicroBatchPlan(
        "any-v", tuple(PlanDevice(f"gpu{d}", room) for d, room in enumerate(rooms)), tuple(blocks), arcs
    )


@pytest.mark.parametrize("seed", range(examples(200)))
@pytest.mark.parametrize("special", [0, 1, 2])
def test_literals_exclude_all_horizons_below_the_optimum_and_no_others(seed: int, special: int) -> None:
    chance = random.Random(seed)
    plan, micro_batches = any_v_plan(chance), chance.choice((4, 5, 6))
    starts = any_schedule_of(plan, micro_batches, chance)
    pinned = {
        (b, m): int(starts[m, b])
        for m in chance.sample(range(micro_batches), special)
        for b in range(len(plan.blocks))
        if special == 1 or chance.random() < 0.7
    }
    length = least(plan, starts, pinned, [])
    assert within(plan, micro_batches, length, pinned, []) is Verdict.PROVED
    assert within(plan, micro_batches, length - 1, pinned, []) is Verdict.IMPOSSIBLE


def test_a_beam_that_had_to_drop_something_excludes_nothing() -> None:
    search = BeamSearch(load_sample("m-shape-4"), 8, {(5, 2): 40})
    starts = search.search(WIDTH, 66, 0, lambda: False).starts
    assert starts is not None
    found = [outcome for width in (1, 3, 10) for outcome in outcomes(search, 66, width)]
    assert any(outcome.starts is None for outcome in found)
    assert not any(outcome.excluded for outcome in found)


def test_a_pin_beyond_the_limit_excludes_it() -> None:
    plan = load_sample("v-shape-4")
    for outcome in outcomes(BeamSearch(plan, 2, {(0, 1): 50}), 60):
        assert outcome.excluded


@pytest.mark.parametrize(
    ("micro_batch", "starts", "least"),
    [
        (7, (32, 36, 39, 42, 43, 46, 67, 70, 73, 77), 109),
        (1, (2, 3, 6, 7, 11, 12, 31, 34, 37, 40), 109),
        (12, (61, 67, 70, 73, 100, 101, 104, 107, 110, 113), 115),
    ],
)
def test_what_pins_cost_is_proved_where_no_bound_tells(micro_batch: int, starts: tuple[int, ...], least: int) -> None:
    plan = load_sample("m-shape-4")
    search = BeamSearch(plan, 16, {(b, micro_batch): start for b, start in enumerate(starts)})
    longer = search.search(30, least + 20, 0, lambda: False).starts
    assert longer is not None
    pins = frozenset((b, micro_batch) for b in range(len(starts)))
    completion = Finish.of(Schedule.at_starts(plan, longer), pins, least=108).solve(Control())
    assert completion.proved
    assert completion.bound == completion.report.makespan == least
