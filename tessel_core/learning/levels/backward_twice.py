"""Level 5: backward takes twice as long."""

from __future__ import annotations

from tessel_core.learning.level import Level
from tessel_core.learning.solved import drawn, searched, waits
from tessel_core.learning.task import Facts, Puzzle
from tessel_core.model import MicroBatchPlan
from tessel_core.networks import ShapeParameters, build_shape

_DEVICES, _MICRO_BATCHES, _FORWARD, _BACKWARD = 3, 4, 1, 2


def _plan(backward: int) -> MicroBatchPlan:
    sizes = ShapeParameters(devices=_DEVICES, forward=_FORWARD, backward=backward, capacity=_DEVICES)
    return build_shape("v-shape", sizes)


def _task() -> Puzzle:
    return Puzzle(_plan(_BACKWARD), _MICRO_BATCHES)


def _facts() -> Facts:
    each = _FORWARD + _BACKWARD
    formula = f"({_MICRO_BATCHES} + {_DEVICES} − 1) × {each} = {(_MICRO_BATCHES + _DEVICES - 1) * each}"
    plans = (_plan(_BACKWARD), _plan(_FORWARD))
    now, before = (waits(drawn("1f1b", plan, _MICRO_BATCHES), _DEVICES // 2) for plan in plans)
    makespan = searched(plans[0], _MICRO_BATCHES).makespan
    facts = {"makespan": makespan, "each": each, "now": now, "before": before}
    return {"formula": formula, **{name: str(number) for name, number in facts.items()}}


LEVEL = Level(
    number=5,
    title="Backward takes twice as long",
    idea="A backward pass computes two gradients, of the input and of the weights, so it takes twice as long.",
    asks="Play again with backward passes of two steps. Which devices wait now that did not wait before?",
    task=_task,
    hints=(
        "Everything waits for backward passes now: never delay a backward pass for a forward pass.",
        "The second device has a free step between forward passes; nothing fits into it.",
    ),
    why=(
        "The shortest schedule takes {makespan} steps: {formula}, the bubble formula with {each} steps per "
        "micro-batch.",
        "Between its first and its last run the middle device waits {now} steps; with equal passes it waits {before}.",
        "No order ends earlier. Level 7 finds work that can fill this idle time.",
    ),
    facts=_facts,
)
