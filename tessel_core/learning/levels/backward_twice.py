"""Level 5."""

from __future__ import annotations

from tessel_core.learning.level import Facts, Level, Puzzle
from tessel_core.learning.solved import searched
from tessel_core.networks import ShapeParameters, build_shape

_DEVICES, _MICRO_BATCHES, _FORWARD, _BACKWARD = 3, 4, 1, 2


def _task() -> Puzzle:
    sizes = ShapeParameters(devices=_DEVICES, forward=_FORWARD, backward=_BACKWARD, capacity=_DEVICES)
    return Puzzle(build_shape("v-shape", sizes), _MICRO_BATCHES)


def _facts() -> Facts:
    each = _FORWARD + _BACKWARD
    formula = f"({_MICRO_BATCHES} + {_DEVICES} − 1) × {each} = {(_MICRO_BATCHES + _DEVICES - 1) * each}"
    return {"makespan": str(searched(_task().plan, _MICRO_BATCHES).makespan), "formula": formula, "each": str(each)}


LEVEL = Level(
    number=5,
    title="Backward takes twice as long",
    idea="A backward pass computes two gradients, of the input and of the weights, so it takes twice as long.",
    asks="Play again with backward passes of two steps. Holes open that were not there before: where?",
    task=_task,
    hints=(
        "Backward passes are now what everything waits for: never let one that may run wait for a forward pass.",
        "The second device has a free step between forward passes; nothing fits into it.",
    ),
    why=(
        "The least is {makespan} steps: {formula}, as the bubble formula says with {each} steps per micro-batch.",
        "The holes between runs move work later, but not the end: only the first and last device decide that.",
        "Those holes come back as room for other work in level 7.",
    ),
    facts=_facts,
)
