"""Solve one point of a sweep, in any process. The only state is a small cache of placements."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Self

from tessel_core.control import Control
from tessel_core.costs.costed import with_batch_size
from tessel_core.errors import InputError
from tessel_core.formats import MeshFile
from tessel_core.inspection import IdleSplit
from tessel_core.model import Communication, PlacementReport, ScheduleReport, Status
from tessel_core.options import config_having
from tessel_core.placement import find_placer
from tessel_core.scheduling import find_scheduler, solve_schedule
from tessel_core.sweeps.sweep import SweepPoint
from tessel_core.workbench.placing import Placing
from tessel_core.workbench.planning import planned

_CACHED_PLACEMENTS = 4


class PointStatus(StrEnum):
    """Status of a point: the status of its search, or the reason why there was no search."""

    PROVED_OPTIMAL = "PROVED_OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    NOTHING_FOUND = "NOTHING_FOUND"
    DOES_NOT_APPLY = "DOES_NOT_APPLY"
    """The settings do not fit together, such as a published order on a plan of another shape."""
    FAILED = "FAILED"
    """A bug was found, or the worker died repeatedly."""

    @classmethod
    def of(cls, status: Status) -> Self:
        """Return the status of a point whose search has this status.

        If the time limit ended the search without a schedule, nothing was found.
        """
        return cls("NOTHING_FOUND" if status is Status.CANCELLED else str(status))


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResult:
    """Result of a point. A figure that does not exist is None. Times are in nanoseconds, and memory is in bytes."""

    status: PointStatus
    reason: str = ""
    """Why there is no schedule, or why the result is limited, for example by a placement without proof.

    May be empty.
    """
    devices: int | None = None
    """Number of devices in the plan."""
    period_ns: float | None = None
    """Shortest period per micro-batch of a steady state that was found. The schedule itself may be slower."""
    period_bound_ns: float | None = None
    """Lower bound on the period per micro-batch of every schedule of the plan."""
    makespan_ns: int | None = None
    makespan_bound_ns: int | None = None
    time_per_micro_batch_ns: float | None = None
    """Period per micro-batch of the schedule. If it has no steady state, makespan / micro-batches."""
    idle_rate: float | None = None
    """Idle fraction of the device time of the whole schedule. It is the sum of imbalance and bubble."""
    imbalance_rate: float | None = None
    bubble_rate: float | None = None
    peak_memory: int | None = None
    """Peak memory of the device with the largest peak."""
    samples_per_s: float | None = None
    """Throughput of the whole schedule, including warmup and cooldown."""
    wall_s: float = 0.0

    @classmethod
    def of(cls, report: ScheduleReport, point: SweepPoint, wall_s: float) -> Self:
        """Return the result for the report of a schedule search.

        Figures of the schedule are set only if the schedule obeys every rule.
        """
        schedule, period = report.solution, report.period_per_micro_batch
        answer = cls(
            status=PointStatus.of(report.status),
            reason=report.reason,
            period_bound_ns=float(report.period_bound),
            makespan_bound_ns=report.makespan_bound,
            wall_s=wall_s,
        )
        if schedule is None:
            return replace(answer, reason=report.reason or _DOES_NOT_FIT)
        idle = IdleSplit.of(schedule)
        return replace(
            answer,
            devices=len(schedule.plan.devices),
            period_ns=None if period is None else float(period),
            makespan_ns=schedule.makespan,
            time_per_micro_batch_ns=float(schedule.time_per_micro_batch),
            idle_rate=float(idle.idle),
            imbalance_rate=float(idle.imbalance),
            bubble_rate=report.bubble_rate,
            peak_memory=max(report.peak_memory or (0,)),
            samples_per_s=point.micro_batches * point.micro_batch_size * 1e9 / schedule.makespan,
        )


_DOES_NOT_FIT = "the schedule needs more memory than the devices have"
"""Reason for a published order that does not fit. Its solver reports only a status."""


def solve_point(point: SweepPoint) -> PointResult:
    """Compute the costs of a point, then its placement, its micro-batch plan and its schedule. Return the result.

    The result is the same on every machine, unless a time limit was reached. In that case, the reason says so.

    Raises RefereeError if a solver breaks a rule, which is a bug.
    """
    began = time.monotonic()
    try:
        return _solved(point, began)
    except InputError as error:
        reason, wall_s = str(error), time.monotonic() - began
        return PointResult(status=PointStatus.DOES_NOT_APPLY, reason=reason, wall_s=wall_s)


def _solved(point: SweepPoint, began: float) -> PointResult:
    placing, placed = _placed(_PlacementKey(point.placement_key, point))
    if placed.solution is None:
        reason = f"no placement: {placed.reason or 'none was found'}"
        status = PointStatus.of(placed.status)
        return PointResult(status=status, reason=reason, wall_s=time.monotonic() - began)
    plan = planned(placing.answered(placed), split_weights=point.terms.split_weights)
    half = point.terms.time_limit / 2
    options = {"time_limit": half, "workers": 1, "seed": point.terms.seed}
    config = config_having(find_scheduler(point.scheduler).config, options)
    report = solve_schedule(point.scheduler, plan, point.micro_batches, config, Control(half))
    result = PointResult.of(report, point, time.monotonic() - began)
    if placed.status is Status.PROVED_OPTIMAL or not placed.reason:
        return result
    return replace(result, reason="; ".join(filter(None, (f"placement: {placed.reason}", result.reason))))


@dataclass(frozen=True)
class _PlacementKey:
    """Cache key of a placement. Points with the same `key` have the same placement."""

    key: str
    point: SweepPoint = field(compare=False)


@lru_cache(maxsize=_CACHED_PLACEMENTS)
def _placed(key: _PlacementKey) -> tuple[Placing, PlacementReport]:
    """Return the placement for a point. Consecutive points that differ only in their schedules share it."""
    point, terms = key.point, key.point.terms
    mesh = point.mesh if point.memory is None else MeshFile.of(point.mesh.mesh.with_capacity(point.memory))
    graph = replace(point.graph, graph=with_batch_size(point.graph.graph, point.micro_batch_size))
    half = terms.time_limit / 2
    config = config_having(find_placer(point.placer).config, {"time_limit": half, "seed": terms.seed})
    placing = Placing(graph, mesh=mesh, costs=point.costs, communication=Communication(terms.communication))
    placing = placing.asking(point.placer, config)
    return placing, placing.question.solve(Control(half))
