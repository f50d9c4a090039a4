"""Level 9."""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from math import ceil

from tessel_core.control import Control
from tessel_core.learning.level import Facts, Knob, Level, Outcome, least
from tessel_core.model import MicroBatchPlan, Repetend
from tessel_core.networks import ShapeParameters, build_shape
from tessel_core.scheduling.bounds import period_bound
from tessel_core.units import counted

_UNROLLS, _SHOWN = (1, 2, 3, 4), 12
_SLOTS = 3


def plan() -> MicroBatchPlan:
    """Four devices, of which each has room for three micro-batches."""
    return build_shape("v-shape", ShapeParameters(devices=4, forward=1, backward=3, capacity=_SLOTS))


@lru_cache(maxsize=8)
def repetend_of(unroll: int) -> Repetend:
    """A repetend of so many micro-batches whose period is least: every shorter one is proved impossible."""
    from tessel_core.cpsat import Effort, Verdict
    from tessel_core.scheduling.search.modulo import Goal, find_repetend

    effort, control = Effort(20.0, 2, 0), Control()
    for period in count(ceil(unroll * period_bound(plan()))):
        verdict, found = find_repetend(plan(), period, unroll, Goal.LATENCY, effort, control)
        assert verdict is not Verdict.UNKNOWN, "a question of this size is settled"
        if found is not None:
            return found
    raise AssertionError("one micro-batch after the other always repeats")


def _outcome(stop: int) -> Outcome:
    unroll = _UNROLLS[stop]
    found = repetend_of(unroll)
    each = found.period_per_micro_batch
    many = counted(unroll, "micro-batch")
    says = (
        f"A block of {many} repeats every {found.period} steps: {each} per micro-batch. "
        f"The bound for any block is {period_bound(plan())}."
    )
    return Outcome(each, f"{each} steps", says, ((f"A block of {many}, stamped", found.expand(_SHOWN)),))


def _task() -> Knob:
    return Knob("Micro-batches in the block", tuple(map(str, _UNROLLS)), _outcome, least, "Time per micro-batch")


def _facts() -> Facts:
    best = min((repetend_of(unroll) for unroll in _UNROLLS), key=lambda each: each.period_per_micro_batch)
    one = repetend_of(1).period_per_micro_batch
    saved = 1 - best.period_per_micro_batch / one
    return {
        **{"one": str(one), "unroll": str(best.unroll), "period": str(best.period), "slots": str(_SLOTS)},
        **{
            "each": str(best.period_per_micro_batch),
            "bound": str(period_bound(plan())),
            "saved": f"{float(saved):.0%}",
        },
    }


LEVEL = Level(
    number=9,
    title="What repeats: the repetend",
    idea="A long schedule repeats one block of work, the repetend: fold it there, and stamp the block across.",
    asks="Four devices have room for three micro-batches each. How many micro-batches should the block hold?",
    task=_task,
    hints=(
        "The period of a block is the time until it may be stamped again; divide it by its micro-batches.",
        "With one micro-batch in the block, every micro-batch waits equally long. With more, some may wait less.",
        "Three micro-batches fit at once, and each is under way for at least sixteen steps.",
    ),
    why=(
        "One micro-batch at a time repeats every {one} steps, because memory is full before a device is busy.",
        "A block of {unroll} repeats every {period} steps: {each} per micro-batch, {saved} less.",
        "With {slots} slots no block of any size is below {bound}: {unroll} is as good as it gets.",
    ),
    facts=_facts,
    source="Lin et al., Tessel, HPCA 2024, arXiv 2311.15269",
)
