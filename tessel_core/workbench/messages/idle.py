"""Idle time in sentences: one for every number, the same on every surface."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from tessel_core.inspection import Cause, IdleSplit
from tessel_core.model import MicroBatchPlan

MEANINGS = {
    "idle": "Share of all devices' time in which they run nothing: 1 - mean work / length, the length being the "
    "makespan, or the period per micro-batch in the steady state. It is imbalance + bubble.",
    "imbalance": "(Most work - mean work) / length: what devices with less to do than the busiest stand idle. No order "
    "removes it; another placement may.",
    "bubble": "1 - most work / length: the idle share of the busiest device. It is unavoidable + open.",
    "unavoidable": "(Proved bound - most work) / length: no order of this placement removes it; another placement, "
    "more memory or another mesh may.",
    "open": "(Length - proved bound) / length: the most that another order of this placement could remove.",
}
"""Idle time by what could change it."""


def meanings() -> str:
    """All of them as one text."""
    return " ".join(f"{name.capitalize()}: {text}" for name, text in MEANINGS.items())


CAUSES_MEAN = {
    Cause.WARMUP: "the device has run nothing yet",
    Cause.COOLDOWN: "the device has run everything",
    Cause.ORDER: "one of its runs could start",
    Cause.MEMORY: "a run lacks only room",
    Cause.PARTNERS: "a run lacks only the other devices of its group",
    Cause.COMMUNICATION: "a run lacks only what is under way to it",
    Cause.DATA: "every run waits for another to end",
}
"""Idle time by what a device waits for: of these, the first that applies at a moment."""


def _by_cause(meanings: Mapping[Cause, str]) -> str:
    return f"Idle time by cause, the first that applies: {'; '.join(f'{c} - {t}' for c, t in meanings.items())}."


BY_CAUSE = _by_cause(CAUSES_MEAN)

PROGRAM_MEANINGS = (
    "Idle: share of all devices' time in which they do not compute, whether they communicate or not: 1 - mean work / "
    "length, the work of a device being the time in which it computes. It is imbalance + bubble. "
    f"Imbalance: {MEANINGS['imbalance']} "
    "Bubble: 1 - most work / length: the idle share of the busiest device; no bound of it is known for a program."
)
PROGRAM_BY_CAUSE = _by_cause(
    {
        **{cause: CAUSES_MEAN[cause] for cause in (Cause.WARMUP, Cause.COOLDOWN)},
        Cause.COMMUNICATION: "the device communicates, and does not compute meanwhile",
        Cause.DATA: "it does neither, and waits",
    }
)
"""The same of a program, whose devices have a stream for computing and one for communication."""

_LITTLE = 0.005
_ROUNDING = Fraction(1, 10**9)
"""Shares that are less come from the rounding of simulated times."""


def percent(share: Fraction) -> str:
    """A share as people read it, never 0.0% where it is more."""
    return "<0.1%" if _ROUNDING < share < Fraction(1, 2000) else f"{float(share):.1%}"


def imbalance_and_bubble(split: IdleSplit) -> str:
    """The two parts of idle time, beside their sum."""
    return f"imbalance {percent(split.imbalance)} + bubble {percent(split.bubble)}"


def who_limits(split: IdleSplit, plan: MicroBatchPlan) -> str:
    """The devices that limit every order, and those that do least, where imbalance is most of the idle time.

    Empty where it is not: then another order, or more memory, matters more.
    """
    if 2 * split.imbalance <= split.idle or not split.imbalance:
        return ""
    mean = Fraction(sum(split.work), len(split.work))
    least = [d for d, ticks in enumerate(split.work) if ticks == min(split.work)]
    busy, idle = _named(plan, split.busiest), _named(plan, least)
    times = f"{float(max(split.work) / mean):.2g}"
    does = "does" if len(split.busiest) == 1 else "do"
    share = float(min(split.work) / mean)
    little = "nothing" if not share else "almost nothing" if share < _LITTLE else f"{share:.2g} times"
    return (
        f"Most of the idle time is imbalance, which no order removes: {busy} {does} {times} times the mean work, "
        f"{idle} {little}. Another placement may remove it."
    )


def _named(plan: MicroBatchPlan, devices: tuple[int, ...] | list[int]) -> str:
    """Up to two devices by name, more by number."""
    names = [plan.devices[d].name for d in devices]
    return " and ".join(names) if len(names) <= 2 else f"{len(names)} devices"
