"""Describe plans of placements: the bound on their period, and results of a joint search of placement and order."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from tessel_core.errors import InputError
from tessel_core.formats.tables import Row
from tessel_core.model import MicroBatchPlan, Placement
from tessel_core.planning import JointEntry, JointReport, plan_of, ranked
from tessel_core.scheduling.bounds import period_bound
from tessel_core.units import show_gap, show_time
from tessel_core.workbench.messages.placement import Tone, Verdict
from tessel_core.workbench.messages.schedule import KeyNumber, sentence
from tessel_core.workbench.placing import Placing

_MAX_BLOCKS = 128
"""Number of blocks of the largest plan whose bound is computed while the user waits.

The bound needs one maximum flow per device.
"""


def period_number(placing: Placing, placement: Placement, *, split_weights: bool = False) -> KeyNumber:
    """Return the proved bound on the period of the placement's plan.

    If no plan is possible, return a dash and the reason.
    """
    try:
        plan, bound = _bounded(placement, split_weights)
    except InputError as error:
        return KeyNumber(_PERIOD, "–", "no plan", sentence(str(error)))
    if bound is None:
        why = f"The plan has {len(plan.blocks):,} blocks. The bound is shown for up to {_MAX_BLOCKS} blocks."
        return KeyNumber(_PERIOD, "–", "too many blocks", why)
    beside = "limited by work" if bound == plan.busiest_work else "limited by memory"
    return KeyNumber(_PERIOD, show_time(float(bound), plan.time_unit), beside, _PERIOD_HELP)


_PERIOD = "Period at least"
_PERIOD_HELP = (
    "Lower bound on the period per micro-batch of every schedule. By work: the work of the busiest device. By memory: "
    "memory × time that a micro-batch needs on a device, divided by the device's memory (Little's law)."
)


@lru_cache(maxsize=16)
def _bounded(placement: Placement, split_weights: bool) -> tuple[MicroBatchPlan, Fraction | None]:
    plan = plan_of(placement, split_weights=split_weights)
    return plan, period_bound(plan) if len(plan.blocks) <= _MAX_BLOCKS else None


JOINT_COLUMNS = (
    *("rank", "placement", "largest load", "period"),
    *("against the first", "bound of its plan", "makespan", "status"),
)


def joint_rows(entries: Sequence[JointEntry], unit: str) -> tuple[Row, ...]:
    """Return one row per entry, the best first. The first of `entries` must be the placement of least load.

    Loads are in `unit`, the graph's time unit. All other times are in nanoseconds.
    """
    return tuple(_row(each, entries[0], place, unit) for place, each in enumerate(ranked(entries), start=1))


def _row(entry: JointEntry, first: JointEntry, place: int, unit: str) -> Row:
    period, makespan = entry.period, entry.report.makespan
    cells = (
        "best" if place == 1 and period is not None else str(place),
        entry.candidate.origin,
        show_time(entry.candidate.load, unit),
        None if period is None else show_time(float(period), "ns"),
        None if period is None or not first.period else f"{float(period / first.period):.3f} ×",
        show_time(float(entry.report.period_bound), "ns"),
        None if makespan is None or entry.report.solution is None else show_time(makespan, "ns"),
        entry.report.status.label,
    )
    return dict(zip(JOINT_COLUMNS, cells, strict=True))


def joint_verdict(report: JointReport) -> Verdict:
    """Return a verdict on a joint search: the shortest period, and what is proved about it."""
    best = report.best
    if best is None or best.period is None:
        why = report.placement.reason or "no placement that was tried has a repeating schedule"
        return Verdict(Tone.BROKEN, sentence(why))
    lead = f"Period {show_time(float(best.period), 'ns')} per micro-batch"
    if report.proved:
        return Verdict(
            Tone.PROVED, f"{lead}, proved optimal: no placement of this kind has a shorter period with any schedule."
        )
    if report.bound is None:
        return Verdict(Tone.FOUND, f"{lead}, not proved optimal.")
    gap = float(1 - report.bound / best.period)
    limit = f"no placement of this kind has a period below {show_time(float(report.bound), 'ns')} with any schedule"
    return Verdict(Tone.FOUND, f"{lead}: {limit} (gap {show_gap(gap)}).")
