"""Level 3: memory limits the order."""

from __future__ import annotations

from tessel_core.learning.level import Level
from tessel_core.learning.solved import searched, solved
from tessel_core.learning.task import Facts, Puzzle
from tessel_core.networks import ShapeParameters, build_shape

_SLOTS = 2


def _task() -> Puzzle:
    return Puzzle(build_shape("v-shape", ShapeParameters(devices=2, forward=1, backward=1, capacity=_SLOTS)), 4)


def _facts() -> Facts:
    puzzle = _task()
    best, gpipe = searched(puzzle.plan, puzzle.micro_batches), solved("gpipe", puzzle.plan, puzzle.micro_batches)
    return {
        "needs": str(gpipe.least_capacity),
        "slots": str(_SLOTS),
        "makespan": str(best.makespan),
        "gpipe": str(gpipe.makespan),
    }


LEVEL = Level(
    number=3,
    title="The memory wall",
    idea="Each forward pass leaves activations on its device, and they stay until its backward pass has used them.",
    asks="Begin as GPipe does, with all forward passes. When memory stops you, find an order that fits.",
    task=_task,
    hints=(
        "A backward pass frees the memory of its micro-batch.",
        "Run B1 on the second device as soon as possible.",
        "Start two micro-batches. After that, start another one only when one has finished.",
    ),
    why=(
        "GPipe would hold {needs} micro-batches at once, and the memory holds {slots}.",
        "An order that runs backward passes early fits, and takes {makespan} steps; GPipe would take {gpipe}.",
        "So the order decides how much memory is needed, and here it costs no time.",
    ),
    facts=_facts,
    source="Narayanan et al., PipeDream, SOSP 2019, arXiv 1806.03377",
)
