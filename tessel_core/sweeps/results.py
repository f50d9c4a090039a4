"""What became of a point, and the row that is kept of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Self

from tessel_core.model import ScheduleReport, Status
from tessel_core.sweeps.sweep import SweepPoint


class PointStatus(StrEnum):
    """How a point ended: as its search did, or without one."""

    PROVED_OPTIMAL = "PROVED_OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    NOTHING_FOUND = "NOTHING_FOUND"
    DOES_NOT_APPLY = "DOES_NOT_APPLY"
    """What is asked makes no sense together, such as a published order on a plan of another shape."""
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
    """Per micro-batch, in the steady state."""
    period_bound_ns: float | None = None
    """Of the plan: no schedule of it has a shorter period."""
    makespan_ns: int | None = None
    makespan_bound_ns: int | None = None
    bubble_rate: float | None = None
    """Of the whole schedule, a fraction."""
    peak_memory: int | None = None
    """Most that any device holds."""
    samples_per_s: float | None = None
    """Of the whole schedule, warmup and cooldown included."""
    wall_s: float = 0.0

    @classmethod
    def of(cls, report: ScheduleReport, point: SweepPoint, wall_s: float) -> Self:
        """What the schedule search says; figures only of a schedule that keeps every rule."""
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
        return replace(
            answer,
            devices=len(schedule.plan.devices),
            period_ns=None if period is None else float(period),
            makespan_ns=schedule.makespan,
            bubble_rate=report.bubble_rate,
            peak_memory=max(report.peak_memory or (0,)),
            samples_per_s=point.micro_batches * point.micro_batch_size * 1e9 / schedule.makespan,
        )


_UNSAID = "the schedule does not fit the devices' memory"
"""Published orders that do not fit say so by their status alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow(PointResult):
    """A point with its result, flat: a row of the results' file and of the table that people see."""

    key: str
    number: int
    """Position in the sweep, from 0."""
    graph: str
    mesh: str
    memory: int | None
    placer: str
    micro_batch_size: int
    in_flight: int
    scheduler: str
    micro_batches: int

    @classmethod
    def joined(cls, number: int, point: SweepPoint, result: PointResult) -> Self:
        """The row of a point."""
        return cls(
            key=point.key,
            number=number,
            graph=point.graph.graph.name,
            mesh=point.mesh.mesh.name,
            memory=point.memory,
            placer=point.placer,
            micro_batch_size=point.micro_batch_size,
            in_flight=point.in_flight,
            scheduler=point.scheduler,
            micro_batches=point.micro_batches,
            **asdict(result),
        )
