"""The rules of the board in the browser agree with the referee, in what they accept and in what they refuse."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.plans import random_plan
from helpers.seeds import one_in, seeds

from tessel_core.charts.timeline import plan_header
from tessel_core.learning import Puzzle, Stamping
from tessel_core.learning.stamping import broken_by, least_period
from tessel_core.model import MicroBatchPlan, Schedule
from tessel_core.networks import ShapeParameters, build_shape
from tessel_core.rules import Violation, check_schedule
from tessel_core.scheduling import solve_schedule

PLAYS = Path(__file__).parent / "helpers" / "puzzle_answers.mjs"


def played(
    folder: Path, puzzle: Puzzle, seed: int, placed: Iterable[Sequence[int]] = (), attempts: int = 60, **more: Any
) -> dict[str, Any]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine to run the board's script")
    game = folder / "game.json"
    reach = puzzle.micro_batches * puzzle.plan.total_time
    asked = {
        "plan": plan_header(puzzle.plan, puzzle.micro_batches),
        "placed": [list(each) for each in placed],
        "seed": seed + 1,
        **more,
    }
    game.write_text(json.dumps({**asked, "reach": reach, "attempts": attempts}))
    ended = subprocess.run([node, PLAYS, game], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def broken(puzzle: Puzzle, runs: Sequence[Sequence[int]]) -> list[Violation]:
    """Return the rules that these runs break, whatever runs are added later."""
    block, micro_batch, start = zip(*runs, strict=True) if runs else ((), (), ())
    schedule = Schedule(puzzle.plan, puzzle.micro_batches, block, micro_batch, start)  # type: ignore[arg-type]
    return check_schedule(schedule, without=("coverage",))


def plans() -> list[MicroBatchPlan]:
    shapes = (build_shape(name, ShapeParameters(devices=2, capacity=3)) for name in ("v-shape", "m-shape", "split-v"))
    return [*shapes, *(random_plan(seed) for seed in range(5))]


@pytest.mark.parametrize("which", one_in(2, range(8)))
def test_the_board_and_the_referee_agree_on_every_move(which: int, tmp_path: Path) -> None:
    puzzle = Puzzle(plans()[which], 3)
    for seed in seeds(2, 6):
        found = played(tmp_path, puzzle, seed)
        for each in found["tried"]:
            before, (b, m, start) = each["before"], each["run"]
            missing = [a for a, _ in puzzle.plan.predecessors[b] if not any(run[:2] == [a, m] for run in before)]
            assert bool(each["lacks"]) == bool(missing)
            if not missing:
                assert bool(each["why"]) == bool(broken(puzzle, [*before, [b, m, start]])), each
            if each["earliest"] is not None:
                moments = range(each["earliest"] + 1)
                legal = [at for at in moments if not broken(puzzle, [*before, [b, m, at]])]
                assert legal == [each["earliest"]]
        assert broken(puzzle, found["placed"]) == []
        if found["complete"]:
            ends = [at + puzzle.plan.blocks[b].duration for b, _, at in found["placed"]]
            assert found["makespan"] == max(ends)


def test_a_board_begins_from_what_was_kept_or_anew(tmp_path: Path) -> None:
    puzzle = Puzzle(build_shape("v-shape", ShapeParameters(devices=2, capacity=2)), 3)
    schedule = solve_schedule("1f1b", puzzle.plan, 3).solution
    assert schedule is not None
    runs = [[b, m, int(schedule.starts[m, b])] for b in range(len(puzzle.plan.blocks)) for m in range(3)]
    kept = played(tmp_path, puzzle, 0, runs[::-1], attempts=0)
    assert kept["began"]
    assert sorted(kept["placed"]) == sorted(runs)
    for wrong in ([[0, 0, 5], [1, 0, 0]], [[99, 0, 0]], [[0, 7, 0]], [[1, 0, 3]]):
        assert played(tmp_path, puzzle, 0, wrong, attempts=0)["began"] is False


def test_the_coach_goes_run_by_run_from_wherever_it_can(tmp_path: Path) -> None:
    """If nothing frees memory before a run at the end, it starts with runs that fit, and completes the schedule."""
    for shape, scheduler in (("v-shape", "1f1b"), ("split-v", "zb-h1"), ("m-shape", "tessel")):
        puzzle = Puzzle(build_shape(shape, ShapeParameters(devices=2, capacity=3)), 4)
        schedule = solve_schedule(scheduler, puzzle.plan, 4).solution
        assert schedule is not None
        starts = schedule.starts.tolist()
        for m in (0, 3):
            last = [[b, m, starts[m][b]] for b in range(len(puzzle.plan.blocks))]
            for placed in ([], last):
                found = played(tmp_path, puzzle, 0, placed, attempts=0, target=starts)
                assert broken(puzzle, found["placed"]) == []
                assert found["complete"], (shape, m)
                assert all(starts[m][b] == at for b, m, at in found["placed"])


@pytest.mark.parametrize("which", range(3))
def test_the_board_and_the_referee_agree_on_what_may_be_stamped(which: int, tmp_path: Path) -> None:
    """Blocks are placed at random, at every period up to their length. What the browser accepts can repeat for ever."""
    task = Stamping(plans()[which], 2, lambda: pytest.fail("nothing is held against the best"))
    for seed in seeds(3, 8):
        found = played(tmp_path, task.puzzle, seed, attempts=200, periods=[*range(1, 25)])
        assert found["block"] == 2
        allowed = []
        for period, why in enumerate(found["stamped"], 1):
            block = task.block_of([(b, m, at) for b, m, at in found["placed"]], period)
            assert block is not None
            assert bool(why) == bool(check_schedule(block.expand(40), without=("repetend repeats",))), (period, why)
            assert bool(why) == bool(broken_by(block))
            if not why:
                allowed.append(period)
        if allowed:
            assert least_period(block) == allowed[0]


def test_a_block_is_whole_or_none(tmp_path: Path) -> None:
    puzzle = Puzzle(build_shape("v-shape", ShapeParameters(devices=2, capacity=2)), 2)
    first, some = [[b, 0, 9 * b] for b in range(4)], [[0, 0, 0], [0, 1, 30]]
    for placed, block in (([], 0), (first, 1), (some, 0), ([*first, [0, 1, 90]], 0)):
        found = played(tmp_path, puzzle, 0, placed, attempts=0, periods=[100])
        assert found["block"] == block
        assert (found["stamped"] == [""]) == bool(block)
