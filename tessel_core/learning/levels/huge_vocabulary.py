"""Level 10: a placement with imbalance cannot be repaired by a better order."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from tessel_core.inspection import IdleSplit
from tessel_core.learning.level import Level
from tessel_core.learning.solved import percent, searched
from tessel_core.learning.task import Facts, Knob, StopResult, first_below
from tessel_core.model import MicroBatchPlan, Schedule, ScheduleReport
from tessel_core.units import show_time

_DEVICES, _MICRO_BATCHES = 4, 8
_VOCABULARIES, _SECONDS = (40_000, 100_000, 200_000, 1_000_000), 0.5


@lru_cache(maxsize=16)
def plans(vocabulary: int) -> tuple[MicroBatchPlan, MicroBatchPlan]:
    """Return two plans of a GPT with this vocabulary on four devices: V-shaped and M-shaped."""
    from tessel_core.networks.forms import FORMS, layered

    gpt = layered("gpt-1m-vocab", 1, vocabulary=vocabulary)
    v, m = (FORMS[form].build(f"gpt-{name}", gpt, _DEVICES) for name, form in (("v", "v"), ("m", "sharded")))
    return replace(v, samples=None), replace(m, samples=None)


def reports(vocabulary: int) -> tuple[ScheduleReport, ScheduleReport]:
    """Search schedules of both plans. The makespan of the winner is below the bound of the loser."""
    v, m = (searched(plan, _MICRO_BATCHES, _SECONDS) for plan in plans(vocabulary))
    return v, m


def schedules(vocabulary: int) -> tuple[Schedule, Schedule]:
    """Return the searched schedules of both plans."""
    v, m = (report.drawable for report in reports(vocabulary))
    assert v is not None
    assert m is not None
    return v, m


def _outcome(stop: int) -> StopResult:
    vocabulary = _VOCABULARIES[stop]
    v, m = schedules(vocabulary)
    ratio = Fraction(m.makespan, v.makespan)
    times = " and ".join(show_time(each.makespan, "ns") for each in (v, m))
    idle = percent(IdleSplit.of(v).imbalance)
    says = f"With {vocabulary:,} tokens V and M take {times}; {idle} of the V's time is imbalance."
    return StopResult(ratio, f"{float(ratio):.3f}", says, (("V, searched", v), ("M, searched", m)))


def _task() -> Knob:
    stops = tuple(f"{vocabulary:,}" for vocabulary in _VOCABULARIES)
    return Knob("Tokens in the vocabulary", stops, _outcome, first_below(1), "M's makespan over the V's")


def _facts() -> Facts:
    small, large = (schedules(each) for each in (_VOCABULARIES[0], _VOCABULARIES[-1]))
    bound = reports(_VOCABULARIES[-1])[0].makespan_bound
    split = IdleSplit.of(large[0], bound)
    return {
        "imbalance": percent(split.imbalance),
        "bubble": percent(split.bubble),
        "open": percent(split.open or Fraction(0)),
        "spread": percent(IdleSplit.of(large[1]).imbalance),
        "ends": show_time(large[1].makespan, "ns"),
        "few": f"{_VOCABULARIES[0]:,}",
        "many": f"{_VOCABULARIES[-1]:,}",
        "bound": show_time(bound, "ns"),
        "loss": percent(Fraction(small[1].makespan, small[0].makespan) - 1),
    }


LEVEL = Level(
    number=10,
    title="Imbalance is not a bubble",
    idea="The output layer grows with the vocabulary. In a V it is on one device; in an M it is spread over all.",
    asks="Compare a GPT on four devices as a V and as an M. From which vocabulary on does the M end first?",
    task=_task,
    hints=(
        "In the V, the device with the vocabulary limits every order once it works longer than the others.",
        "In the M, all devices work on the vocabulary at once, which interrupts the pipeline.",
    ),
    why=(
        "With {few} tokens the M takes {loss} longer, because blocks on all devices stop the pipeline.",
        "With {many} tokens, {imbalance} of the V's time is imbalance and {bubble} bubble. Orders change at most "
        "{open}.",
        "The M has {spread} imbalance and ends after {ends}; it is proved that no order of the V ends before {bound}.",
    ),
    facts=_facts,
    source="Lin et al., Tessel, HPCA 2024, arXiv 2311.15269",
)
