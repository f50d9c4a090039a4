"""Solving one point, in any process: no state but a few placements that the next points share."""

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

_PLACEMENTS_KEPT = 4


class PointStatus(StrEnum):
    """How a point ended: as its search did, or without one."""

    PROVED_OPTIMAL = "PROVED_OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    NOTHING_FOUND = "NOTHING_FOUND"
    DOES_NOT_APPLY = "DOES_NOT_APPLY"
    """The parts of the question do not go together, such as a published order on a plan of another shape."""
    FAILED = "FAILED"
    """A bug of ours, or a worker that died over it again and again."""

    @classmethod
    def of(cls, status: Status) -> Self:
        """The same word; a search that its own time limit stopped has found nothing."""
        return cls("NOTHING_FOUND" if status is Status.CANCELLED else str(status))


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResult:
    """The answer to a point; None is "there is none", times in ns, memory in bytes."""

    status: PointStatus
    reason: str = ""
    """Why there is no schedule, or what limits the claim; empty where nothing needs saying."""
    devices: int | None = None
    """That the plan uses."""
    period_ns: float | None = None
    """Per micro-batch, in the steady state; of the steadiest found, which the schedule may not keep."""
    period_bound_ns: float | None = None
    """The bound of the plan: no schedule of it has a shorter period."""
    makespan_ns: int | None = None
    makespan_bound_ns: int | None = None
    time_per_micro_batch_ns: float | None = None
    """The period that the schedule keeps, else its makespan / micro-batches."""
    idle_rate: float | None = None
    """The idle time of the whole schedule, a fraction, which is imbalance + bubble."""
    imbalance_rate: float | None = None
    bubble_rate: float | None = None
    peak_memory: int | None = None
    """Most that any device holds."""
    samples_per_s: float | None = None
    """The rate of the whole schedule, warmup and cooldown included."""
    wall_s: float = 0.0

    @classmethod
    def of(cls, report: ScheduleReport, point: SweepPoint, wall_s: float) -> Self:
        """The result of a schedule search, with figures only of a schedule that keeps every rule."""
        schedule, period = report.solution, report.period_per_micro_batch
        answer = cls(
            status=PointStatus.of(report.status),
            reason=report.reason,
            period_bound_ns=float(report.period_bound),
            makespan_bound_ns=report.makespan_bound,
            wall_s=wall_s,
        )
        if schedule is None:
            return replace(answer, reason=report.reason or _UNSAID)
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


_UNSAID = "the schedule does not fit the devices' memory"
"""Published orders that do not fit say so by their status alone."""


def solve_point(point: SweepPoint) -> PointResult:
    """Cost, place, plan and schedule; the same answer everywhere, unless a time limit struck, which it says.

    Raises RefereeError when a solver broke a rule: our bug.
    """
    began = time.monotonic()
    try:
        return _solved(point, began)
    except InputError as error:
        reason, wall_s = str(error), time.monotonic() - began
        return PointResult(status=PointStatus.DOES_NOT_APPLY, reason=reason, wall_s=wall_s)


def _solved(point: SweepPoint, began: float) -> PointResult:
    placing, placed = _placed(_Asked(point.placement_key, point))
    if placed.solution is None:
        reason = f"no placement: {placed.reason or 'none was found'}"
        status = PointStatus.of(placed.status)
        return PointResult(status=status, reason=reason, wall_s=time.monotonic() - began)
    plan = planned(placing.answered(placed), split_weights=point.terms.split_weights)
    half = point.terms.time_limit / 2
    options = {"time_limit": half, "workers": 1, "seed": point.terms.seed}
    config = config_having(find_scheduler(point.scheduler).config, options)
    report = solve_schedule(point.scheduler, plan, point.micro_batches, config, Control(half))
    found = PointResult.of(report, point, time.monotonic() - began)
    if placed.status is Status.PROVED_OPTIMAL or not placed.reason:
        return found
    return replace(found, reason="; ".join(filter(None, (f"placement: {placed.reason}", found.reason))))


@dataclass(frozen=True)
class _Asked:
    """A point as far as its placement goes."""

    key: str
    point: SweepPoint = field(compare=False)


@lru_cache(maxsize=_PLACEMENTS_KEPT)
def _placed(asked: _Asked) -> tuple[Placing, PlacementReport]:
    """Shared by points that differ in their schedules only, which follow each other."""
    point, terms = asked.point, asked.point.terms
    mesh = point.mesh if point.memory is None else MeshFile.of(point.mesh.mesh.with_capacity(point.memory))
    graph = replace(point.graph, graph=with_batch_size(point.graph.graph, point.micro_batch_size))
    half = terms.time_limit / 2
    config = config_having(find_placer(point.placer).config, {"time_limit": half, "seed": terms.seed})
    placing = Placing(graph, mesh=mesh, costs=point.costs, communication=Communication(terms.communication))
    placing = placing.asking(point.placer, config)
    return placing, placing.question.solve(Control(half))
