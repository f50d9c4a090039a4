"""Describe idle time: the meaning of each number, and sentences."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from tessel_core.inspection import Cause, IdleSplit
from tessel_core.model import MicroBatchPlan

MEANINGS = {
    "idle": "Share of all devices' time in which they run nothing: 1 - mean work / length. The length is the makespan, "
    "or the period per micro-batch in the steady state. Idle = imbalance + bubble.",
    "imbalance": "(Most work - mean work) / length: idle time because some devices have less work than the busiest. No "
    "order removes it; another placement may.",
    "bubble": "1 - most work / length: idle share of the busiest device. Bubble = unavoidable + open.",
    "unavoidable": "(Proved bound - most work) / length: no order of this placement removes it; another placement, "
    "more memory or another mesh may.",
    "open": "(Length - proved bound) / length: the most that another order of this placement could remove.",
}
"""Meaning of each part of idle time. It says which change could remove that part."""


def meanings() -> str:
    """Return all meanings as one text."""
    return " ".join(f"{name.capitalize()}: {text}" for name, text in MEANINGS.items())


CAUSES_MEAN = {
    Cause.WARMUP: "the device has not started its first run",
    Cause.COOLDOWN: "the device has ended its last run",
    Cause.ORDER: "a run could start",
    Cause.MEMORY: "a run waits only for memory",
    Cause.PARTNERS: "a run waits only for other devices of its group",
    Cause.COMMUNICATION: "a run waits only for a transfer",
    Cause.DATA: "every run waits for another run to end",
}
"""Meaning of each cause of idle time. If several causes apply at a moment, the first of this order counts."""


def _by_cause(meanings: Mapping[Cause, str]) -> str:
    return f"Idle time by cause, the first that applies: {'; '.join(f'{c} - {t}' for c, t in meanings.items())}."


BY_CAUSE = _by_cause(CAUSES_MEAN)

PROGRAM_MEANINGS = (
    "Idle: share of all devices' time in which they do not compute: 1 - mean work / length. The work of a device is "
    f"the time in which it computes. Idle = imbalance + bubble. Imbalance: {MEANINGS['imbalance']} Bubble: 1 - most "
    "work / length: idle share of the busiest device. No bound on it is known for a program."
)
PROGRAM_BY_CAUSE = _by_cause(
    {
        **{cause: CAUSES_MEAN[cause] for cause in (Cause.WARMUP, Cause.COOLDOWN)},
        Cause.COMMUNICATION: "the device communicates and does not compute",
        Cause.DATA: "the device does neither",
    }
)
"""Meaning of each cause for a program, whose devices compute and communicate on separate streams."""

_MIN_REPORTED_SHARE = 0.005
_ROUNDING = Fraction(1, 10**9)
"""Smaller shares are rounding errors of simulated times."""


def percent(share: Fraction) -> str:
    """Return a share in percent. A small positive share is shown as 0.1% or less, never as 0.0%."""
    return "<0.1%" if _ROUNDING < share < Fraction(1, 2000) else f"{float(share):.1%}"


def imbalance_and_bubble(split: IdleSplit) -> str:
    """Return the imbalance and the bubble of idle time as text."""
    return f"imbalance {percent(split.imbalance)} + bubble {percent(split.bubble)}"


def who_limits(split: IdleSplit, plan: MicroBatchPlan) -> str:
    """Return a sentence on the busiest and the least busy devices, if most of the idle time is imbalance.

    Otherwise return an empty text, because then another order or more memory matters more.
    """
    if 2 * split.imbalance <= split.idle or not split.imbalance:
        return ""
    mean = Fraction(sum(split.work), len(split.work))
    least = [d for d, ticks in enumerate(split.work) if ticks == min(split.work)]
    busy, idle = _named(plan, split.busiest), _named(plan, least)
    times = f"{float(max(split.work) / mean):.2g}"
    does = "does" if len(split.busiest) == 1 else "do"
    share = float(min(split.work) / mean)
    little = "nothing" if not share else "almost nothing" if share < _MIN_REPORTED_SHARE else f"{share:.2g} times"
    return (
        f"Most of the idle time is imbalance, which no order removes: {busy} {does} {times} times the mean work, "
        f"{idle} {little}. Another placement may remove it."
    )


def _named(plan: MicroBatchPlan, devices: tuple[int, ...] | list[int]) -> str:
    """Return the names of at most two devices, or the number of devices if there are more."""
    names = [plan.devices[d].name for d in devices]
    return " and ".join(names) if len(names) <= 2 else f"{len(names)} devices"
