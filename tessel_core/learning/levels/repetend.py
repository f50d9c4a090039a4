"""Level 9: the repetend, the part of a schedule that repeats."""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from math import ceil

from tessel_core.control import Control
from tessel_core.learning.level import Level
from tessel_core.learning.stamping import Stamping
from tessel_core.learning.task import Facts
from tessel_core.model import MicroBatchPlan, Repetend
from tessel_core.networks import ShapeParameters, build_shape
from tessel_core.scheduling.bounds import period_bound

_UNROLLS = (1, 2, 3, 4)
_SLOTS = 3


def plan() -> MicroBatchPlan:
    """Return a plan on four devices, each with room for three micro-batches."""
    return build_shape("v-shape", ShapeParameters(devices=4, forward=1, backward=3, capacity=_SLOTS))


@lru_cache(maxsize=8)
def repetend_of(unroll: int) -> Repetend:
    """Return a repetend of `unroll` micro-batches with the shortest period. Shorter periods are proved impossible."""
    from tessel_core.cpsat import Effort, Verdict
    from tessel_core.scheduling.search.modulo import Goal, find_repetend

    effort, control = Effort(20.0, 2, 0), Control()
    for period in count(ceil(unroll * period_bound(plan()))):
        verdict, found = find_repetend(plan(), period, unroll, Goal.LATENCY, effort, control)
        assert verdict is not Verdict.UNKNOWN, "a question of this size is settled"
        if found is not None:
            return found
    raise AssertionError("one micro-batch after the other always repeats")


def refused(unroll: int) -> tuple[int, ...]:
    """Return the results for the periods from the bound to that of `repetend_of`.

    Each shorter period is proved impossible.
    """
    return tuple(range(ceil(unroll * period_bound(plan())), repetend_of(unroll).period))


def best() -> Repetend:
    """Return the repetend with the least time per micro-batch. It has at most four micro-batches."""
    return min(map(repetend_of, _UNROLLS), key=lambda each: each.period_per_micro_batch)


def _task() -> Stamping:
    return Stamping(plan(), max(_UNROLLS), best)


def _facts() -> Facts:
    found, one = best(), repetend_of(1).period_per_micro_batch
    saved = 1 - found.period_per_micro_batch / one
    return {
        **{"one": str(one), "unroll": str(found.unroll), "period": str(found.period), "slots": str(_SLOTS)},
        **{
            "each": str(found.period_per_micro_batch),
            "bound": str(period_bound(plan())),
            "saved": f"{float(saved):.0%}",
        },
    }


LEVEL = Level(
    number=9,
    title="What repeats: the repetend",
    idea="A long schedule repeats one part, called the repetend. Copies of it, one period apart, make the schedule.",
    asks="Place a block of one to four micro-batches, then stamp it to repeat it. Which block has the least time per "
    "micro-batch?",
    task=_task,
    hints=(
        "The period is the time until the block may be stamped again. Divide it by the block's micro-batches.",
        "With one micro-batch in the block, every micro-batch waits equally long. With more, some may wait less.",
        "Three micro-batches fit at once, and each is under way for at least sixteen steps.",
        "Place three micro-batches close together. Their copies need free devices and enough free memory.",
    ),
    why=(
        "One micro-batch at a time repeats every {one} steps: memory is full before any device is busy all the time.",
        "A block of {unroll} repeats every {period} steps: {each} per micro-batch, {saved} less.",
        "With memory for {slots} micro-batches, no block is below {bound}, so a block of {unroll} is optimal.",
    ),
    facts=_facts,
    source="Lin et al., Tessel, HPCA 2024, arXiv 2311.15269",
)
