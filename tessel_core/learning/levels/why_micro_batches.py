"""Level 2: the reason for micro-batches."""

from __future__ import annotations

from fractions import Fraction

from tessel_core.learning.level import Level
from tessel_core.learning.solved import drawn, idle, percent
from tessel_core.learning.task import Facts, Knob, StopResult, first_below
from tessel_core.networks import ShapeParameters, build_shape
from tessel_core.units import counted

_DEVICES, _STOPS, _LIMIT = 4, (1, 2, 4, 8, 12, 13, 16, 32), Fraction(1, 5)


def bubble(devices: int, micro_batches: int) -> Fraction:
    """Return the idle share of GPipe with equal stages [Huang 2019, section 2.3]."""
    return Fraction(devices - 1, micro_batches + devices - 1)


def _outcome(stop: int) -> StopResult:
    count = _STOPS[stop]
    plan = build_shape("v-shape", ShapeParameters(devices=_DEVICES, forward=1, backward=1, capacity=max(_STOPS)))
    schedule = drawn("gpipe", plan, count)
    share = idle(schedule)
    formula = f"({_DEVICES} − 1) / ({count} + {_DEVICES} − 1) = {percent(bubble(_DEVICES, count))}"
    micro_batches = counted(count, "micro-batch")
    says = f"With {micro_batches} the devices are idle {percent(share)} of the time. The formula says {formula}."
    return StopResult(share, percent(share), says, ((f"GPipe, {micro_batches}", schedule),))


def _task() -> Knob:
    return Knob("Micro-batches", tuple(map(str, _STOPS)), _outcome, first_below(_LIMIT), "Idle time")


def _facts() -> Facts:
    knob = _task()
    outcomes = [knob.outcome(i) for i in range(len(_STOPS))]
    (best,) = knob.answers(outcomes)
    return {"count": knob.stops[best], "idle": outcomes[best].shown, "devices": str(_DEVICES), "one": outcomes[0].shown}


LEVEL = Level(
    number=2,
    title="Why micro-batches",
    idea="A batch is cut into micro-batches, so that devices work on different micro-batches at the same time.",
    asks="GPipe runs on 4 devices. With how many micro-batches does idle time first fall below a fifth?",
    task=_task,
    hints=(
        "The idle time at the beginning and the end, the bubble, stays constant. The work in between grows.",
        "With p devices and m micro-batches, the idle share is (p − 1) / (m + p − 1).",
    ),
    why=(
        "The pipeline fills and empties once per batch, whatever the number of micro-batches is.",
        "More micro-batches spread that cost: from {one} idle with one to {idle} with {count}.",
        "The formula holds if all stages last equally long, which is not so in later levels.",
    ),
    facts=_facts,
    source="Huang et al., GPipe, NeurIPS 2019, arXiv 1811.06965",
)
