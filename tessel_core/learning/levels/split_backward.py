"""Level 7: split the backward pass into input gradient and weight gradient."""

from __future__ import annotations

from tessel_core.learning.level import Level
from tessel_core.learning.solved import drawn, waits
from tessel_core.learning.task import Facts, Puzzle
from tessel_core.model import MemoryProfile, Schedule
from tessel_core.networks import ShapeParameters, build_shape
from tessel_core.scheduling import Question, find_scheduler

_DEVICES, _MICRO_BATCHES = 3, 5


def _task() -> Puzzle:
    sizes = ShapeParameters(devices=_DEVICES, forward=1, backward=1, weight=1, capacity=_DEVICES)
    plan = build_shape("split-v", sizes)
    beside = tuple(Question(each, plan, _MICRO_BATCHES, find_scheduler(each).config()) for each in ("zb-h1", "zb-h2"))
    return Puzzle(plan, _MICRO_BATCHES, beside, order="zb-h1")


def holes(schedule: Schedule) -> int:
    """Return the idle steps of all devices. Count only steps between the first and the last run of each device."""
    return sum(waits(schedule, device) for device in range(len(schedule.plan.devices)))


def _facts() -> Facts:
    plan = _task().plan
    small, large = (drawn(name, plan, _MICRO_BATCHES) for name in ("zb-h1", "zb-h2"))
    return {
        "small": str(max(MemoryProfile.of(small).peaks)),
        "large": str(max(MemoryProfile.of(large).peaks)),
        "holes": str(holes(small)),
        "none": "no idle steps" if not holes(large) else f"{holes(large)} idle steps",
        "either": f"{small.makespan} steps with {'either' if small.makespan == large.makespan else 'ZB-H1'}",
    }


LEVEL = Level(
    number=7,
    title="Split the backward pass",
    idea="Only the gradient of the input, B, is urgent. The gradient of the weights, W, can wait and fill idle time.",
    asks="Place F, B and W of five micro-batches in the order of ZB-H1, which needs no more memory than 1F1B.",
    task=_task,
    hints=(
        "B has priority over F, and F over W. Run W where nothing else can run.",
        "W frees memory, so a full device has to run a W before its next F.",
        "At the end, the delayed W blocks fill the time in which 1F1B waits.",
    ),
    why=(
        "ZB-H1 holds {small} micro-batches as 1F1B does, and leaves {holes} idle steps between first and last runs.",
        "ZB-H2 holds {large}, and leaves {none} between a device's first and last run.",
        "If F, B and W last equally long, that does not shorten the makespan: {either}.",
    ),
    facts=_facts,
    source="Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, arXiv 2401.10241",
)
