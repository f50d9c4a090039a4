"""Level 4: the order 1F1B (one forward, one backward)."""

from __future__ import annotations

from tessel_core.learning.level import Level
from tessel_core.learning.solved import drawn, searched
from tessel_core.learning.task import Facts, Puzzle
from tessel_core.model import MemoryProfile
from tessel_core.networks import ShapeParameters, build_shape
from tessel_core.scheduling import Question, find_scheduler

_DEVICES, _MICRO_BATCHES = 3, 5


def _task() -> Puzzle:
    plan = build_shape("v-shape", ShapeParameters(devices=_DEVICES, forward=1, backward=1, capacity=_DEVICES))
    beside = Question("gpipe", plan, _MICRO_BATCHES, find_scheduler("gpipe").config())
    return Puzzle(plan, _MICRO_BATCHES, (beside,), order="1f1b")


def _facts() -> Facts:
    puzzle = _task()
    held = [MemoryProfile.of(drawn(name, puzzle.plan, _MICRO_BATCHES)).peaks for name in ("1f1b", "gpipe")]
    return {
        "first": str(held[0][0]),
        "last": str(held[0][-1]),
        "gpipe": str(held[1][0]),
        "makespan": str(searched(puzzle.plan, _MICRO_BATCHES).makespan),
    }


LEVEL = Level(
    number=4,
    title="One forward, one backward",
    idea="1F1B: each device warms up with a few forward passes, then takes one backward and one forward in turn.",
    asks="Place five micro-batches on three devices in the order of 1F1B. The order is recognised, not the start "
    "times.",
    task=_task,
    hints=(
        "The last device takes a backward pass after each forward pass, from the first one on.",
        "The first device runs three forward passes before its first backward pass, the second one two.",
        "If a device could run a forward or a backward pass, it runs the backward pass.",
    ),
    why=(
        "The first device holds {first} micro-batches at most and the last one {last}, however many there are.",
        "GPipe holds all {gpipe} on every device for the same {makespan} steps.",
        "This is why most training runs use 1F1B and not GPipe.",
    ),
    facts=_facts,
    source="Narayanan et al., PipeDream, SOSP 2019, arXiv 1806.03377",
)
