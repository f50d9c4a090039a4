"""Level 1: one micro-batch on two devices."""

from __future__ import annotations

from tessel_core.learning.level import Level
from tessel_core.learning.solved import idle, percent, searched
from tessel_core.learning.task import Facts, Puzzle
from tessel_core.networks import ShapeParameters, build_shape


def _task() -> Puzzle:
    return Puzzle(build_shape("v-shape", ShapeParameters(devices=2, forward=1, backward=1, capacity=1)), 1)


def _facts() -> Facts:
    puzzle = _task()
    best = searched(puzzle.plan, puzzle.micro_batches).solution
    assert best is not None
    return {"makespan": str(best.makespan), "idle": percent(idle(best))}


LEVEL = Level(
    number=1,
    title="One micro-batch, two devices",
    idea="A network that is too large for one device is cut in two: each device holds one stage.",
    asks="Place the forward passes F0 and F1, then the backward passes B1 and B0, as early as you can.",
    task=_task,
    hints=(
        "A pass can run when the passes that it needs have ended. Passes that can run now are highlighted.",
        "F1 needs the output of F0. B1 needs F1, and B0 needs B1.",
    ),
    why=(
        "Each pass needs the one before it, so the shortest schedule takes {makespan} steps.",
        "Only one device works at a time: {idle} of all device time is idle.",
        "Two devices hold a larger network than one, but with one micro-batch they are no faster.",
    ),
    facts=_facts,
)
