"""Step time and memory of a placed pipeline and its replicas, from a schedule of its micro-batches.

A step ends when every device has finished its last run and the reduction of its gradients. Replicas reduce the
gradients of a device once per step, after its last run. With overlapped transfers, only the part of a reduction counts
that takes longer than the device's work on one micro-batch, as in `exposed_reductions`. The optimizer step is not
counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessel_core.control import Control
from tessel_core.costs.reductions import MeshReductions
from tessel_core.model import (
    MAKESPAN,
    Device,
    LayoutShape,
    MicroBatchPlan,
    Placement,
    PlacementLoads,
    Replication,
    Schedule,
    ScheduleReport,
)
from tessel_core.model.replicas import gradient_bytes
from tessel_core.planning import plan_of
from tessel_core.scheduling import BASELINES, find_scheduler, solve_schedule
from tessel_core.strategies.configuration import StrategyResult
from tessel_core.strategies.graphs.pipelines import Pipeline
from tessel_core.strategies.graphs.question import LIST_ORDER, GraphConfiguration, GraphQuestion, GraphStrategy
from tessel_core.strategies.recommendation import Candidate
from tessel_core.units import TICKS_PER_SECOND

_LIST_RESTARTS = 8
"""Number of list schedules of which the shortest is taken."""
_TICKS = TICKS_PER_SECOND["ns"]


@dataclass(frozen=True)
class NoReductions:
    """Reductions that take no time, for plans whose reductions follow the last micro-batch."""

    def seconds(self, devices: tuple[int, ...], amount: float) -> float:
        """Return 0."""
        return 0.0


@dataclass(frozen=True)
class PlacedPipeline:
    """A placed pipeline and its replicas, for which schedules can be built."""

    configuration: GraphConfiguration
    pipeline: Pipeline
    devices: tuple[tuple[int, ...], ...]
    """Devices of the mesh for each replica of the pipeline, in the order of the placement's devices."""
    micro_batches: int
    """Number of micro-batches of each replica."""
    plans: tuple[MicroBatchPlan, ...]
    """Distinct plans of the replicas, that of the first one first. Reductions follow the last micro-batch."""
    tails: tuple[float, ...]
    """Seconds of the reduction that follows the last run, for each device of the plans."""

    def timed(self, order: str, control: Control, seconds: float = 0.0) -> PlacedCandidate | None:
        """Return the step with an order of micro-batches. None if no such order fits into memory.

        `seconds` limits a search for the order. Raises InputError if a published order does not suit the stages.
        """
        reports = [_ordered(plan, self.micro_batches, order, control, seconds) for plan in self.plans]
        schedules = [report.solution for report in reports if report.solution is not None]
        if len(schedules) < len(reports):
            return None
        ends = tuple(max(each) for each in zip(*map(_ends, schedules), strict=True))
        peaks = tuple(max(each) for each in zip(*(report.peak_memory or () for report in reports), strict=True))
        latency = max(end + tail for end, tail in zip(ends, self.tails, strict=True))
        return PlacedCandidate(self._strategy(order), StrategyResult(latency, peaks, "", ends), self, reports[0])

    def _strategy(self, order: str) -> GraphStrategy:
        """Return the strategy with the stages of the placement, which may be fewer than the configuration allows."""
        layout = self.configuration.layout
        sizes = tuple(map(len, sorted({tuple(sorted(on)) for on in self.pipeline.placement.assignment})))
        return GraphStrategy(
            self.configuration.data,
            pipeline=len(sizes),
            micro_batches=self.micro_batches,
            schedule=order,
            stages_per_device=1 if layout is None else layout.stages_per_device,
            replicas=sizes if max(sizes) > 1 else (),
            shape=LayoutShape.LOOP if layout is None else layout.shape,
        )


@dataclass(frozen=True, slots=True)
class PlacedCandidate(Candidate):
    """A strategy for an operator graph that fits into memory, with its placement and its schedule."""

    placed: PlacedPipeline
    report: ScheduleReport
    """Report on the schedule of the first replica."""

    @property
    def pipeline(self) -> Pipeline:
        """The placement of one replica."""
        return self.placed.pipeline

    @property
    def schedule(self) -> Schedule:
        """Schedule of the first replica."""
        assert self.report.solution is not None, "a candidate has a schedule within memory"
        return self.report.solution

    @property
    def step_bound(self) -> float:
        """Lower bound in seconds of the step with any order of these stages that fits into memory.

        Each device reduces its gradients after all of its work. So does the device that finishes last.
        """
        plan, tails = self.placed.plans[0], self.placed.tails
        work = (ticks * self.placed.micro_batches / _TICKS for ticks in plan.work)
        busy = max(each + tail for each, tail in zip(work, tails, strict=True))
        return max(busy, self.report.makespan_bound / _TICKS + min(tails))


class StepTimer:
    """Builds the plans and the reductions of placed pipelines of a question."""

    def __init__(self, question: GraphQuestion) -> None:
        self._question = question
        self._reductions = MeshReductions(question.mesh)

    def placed(self, configuration: GraphConfiguration, pipeline: Pipeline) -> PlacedPipeline:
        """Return a placed pipeline of a configuration, with its plans and reductions."""
        devices = self._question.pipelines_of(configuration)
        plans, tails = self._plans(pipeline, devices), self._tails(pipeline.placement, devices)
        micro_batches = self._question.micro_batches // configuration.data
        return PlacedPipeline(configuration, pipeline, devices, micro_batches, plans, tails)

    def _plans(self, pipeline: Pipeline, pipelines: Sequence[tuple[int, ...]]) -> tuple[MicroBatchPlan, ...]:
        """Return the plan of each replica. Replicas whose devices are linked alike share one plan."""
        placement, mesh = pipeline.placement, self._question.mesh
        free = None if placement.replication is None else Replication(NoReductions())
        plans, alike = list[MicroBatchPlan](), dict[tuple[int, ...], tuple[int, ...]]()
        for each in pipelines:
            alike.setdefault(each if mesh.connections else _links(mesh.devices, each), each)
        for devices in alike.values():
            part = mesh.part(devices)
            transfers = replace(placement.transfers, mesh=part)
            on = replace(placement, devices=part.placement_devices, transfers=transfers, replication=free)
            plans.append(plan_of(on))
        return tuple(plans)

    def _tails(self, placement: Placement, pipelines: Sequence[tuple[int, ...]]) -> tuple[float, ...]:
        """Return the exposed seconds of the reduction of each device that has operators."""
        gradients, work = gradient_bytes(placement.graph), PlacementLoads.of(placement).work
        hides = not placement.transfers.load_devices
        tails = list[float]()
        for device, operators in enumerate(placement.operators_on):
            if not operators:
                continue
            sharing = tuple(sorted(devices[each] for devices in pipelines for each in placement.stage_at(device)))
            amount = sum(gradients[i] for i in operators)
            seconds = self._reductions.seconds(sharing, amount) if len(sharing) > 1 else 0.0
            tails.append(max(0.0, seconds - work[device] * hides))
        return tuple(tails)


def _links(devices: Sequence[Device], chosen: Sequence[int]) -> tuple[int, ...]:
    """Return the node of each device, numbered in order of appearance. Equal results mean equal links."""
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(devices[i].node, len(numbers)) for i in chosen)


def _ordered(plan: MicroBatchPlan, micro_batches: int, order: str, control: Control, seconds: float) -> ScheduleReport:
    """Return the schedule of an order. A search for it ends after `seconds`."""
    if order in BASELINES:
        return solve_schedule(order, plan, micro_batches)
    kind = find_scheduler(order).config
    config = kind(restarts=_LIST_RESTARTS) if order == LIST_ORDER else kind(time_limit=max(0.1, seconds))
    return solve_schedule(order, plan, micro_batches, config, control.quiet()).about(MAKESPAN)


def _ends(schedule: Schedule) -> tuple[float, ...]:
    """Return the seconds at which each device finishes its last run."""
    rows = (schedule.runs_on(device) for device in range(len(schedule.plan.devices)))
    return tuple(int(schedule.end[each].max()) / _TICKS for each in rows)
