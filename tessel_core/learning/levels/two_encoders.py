"""Level 11: a network with two encoders."""

from __future__ import annotations

from tessel_core.learning.level import Level
from tessel_core.learning.solved import searched, solved
from tessel_core.learning.task import Facts, Puzzle
from tessel_core.networks import ShapeParameters, build_shape
from tessel_core.scheduling import BASELINES

_MICRO_BATCHES, _SLOTS = 3, 3


def _task() -> Puzzle:
    sizes = ShapeParameters(devices=4, forward=1, backward=2, wide=1, capacity=_SLOTS)
    return Puzzle(build_shape("k-shape", sizes), _MICRO_BATCHES)


def _facts() -> Facts:
    plan = _task().plan
    fits = [
        report.makespan
        for name in BASELINES
        if not BASELINES[name].why_not(plan, _MICRO_BATCHES)
        and (report := solved(name, plan, _MICRO_BATCHES)).solution is not None
    ]
    return {
        "one": str(searched(plan, 1).makespan),
        "apart": str(sum(block.duration for block in plan.blocks)),
        "makespan": str(searched(plan, _MICRO_BATCHES).makespan),
        "published": str(min(each for each in fits if each is not None)),
        "count": str(_MICRO_BATCHES),
    }


LEVEL = Level(
    number=11,
    title="Two encoders that meet",
    idea="A text and a vision branch run on half of the devices each, and meet in a block J on all four: the K shape.",
    asks="Place three micro-batches. J and its backward pass Jb need all four devices at the same time.",
    task=_task,
    hints=(
        "Both branches can begin at time 0: they share no device.",
        "J occupies all devices. Run it when both branches are ready.",
        "After Jb, both branches run backward passes. Fill the remaining idle time with forward passes.",
    ),
    why=(
        "With branches in parallel, one micro-batch takes {one} steps; one block after the other takes {apart}.",
        "{count} micro-batches take {makespan} steps at least, and {published} in the best published order that fits.",
        "Published schedules were not made for such shapes, with two encoders or an encoder and a decoder.",
    ),
    facts=_facts,
    source="Lin et al., Tessel, HPCA 2024, arXiv 2311.15269",
)
