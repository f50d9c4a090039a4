"""Step time and memory of a placed pipeline and its replicas, from a schedule of its micro-batches.

A step ends when every device has finished its last run and the reduction of its gradients. Replicas reduce the
gradients of a device once per step, after its last run. With overlapped transfers, only the part of a reduction counts
that takes longer than the device's work on one micro-batch, as in `exposed_reductions`. The optimizer step is not
counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

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
from tessel_core.strategies.graphs.question import GraphConfiguration, GraphQuestion, GraphStrategy
from tessel_core.strategies.recommendation import TOO_LARGE, Candidate
from tessel_core.units import TICKS_PER_SECOND

LIST_ORDER = "list-scheduling"
"""Order for stages that no published order suits, and for those whose published order exceeds the memory."""
_LIST_RESTARTS = 8
"""Number of list schedules of which the shortest is taken."""
_TICKS = TICKS_PER_SECOND["ns"]


@dataclass(frozen=True)
class NoReductions:
    """Reductions that take no time, for plans whose reductions follow the last micro-batch."""

    def seconds(self, devices: tuple[int, ...], amount: float) -> float:
        """Return 0."""
        return 0.0


@dataclass(frozen=True, slots=True)
class PlacedCandidate(Candidate):
    """A strategy for an operator graph that fits into memory, with its placement and its schedule."""

    configuration: GraphConfiguration
    pipeline: Pipeline
    pipelines: tuple[tuple[int, ...], ...]
    """Devices of the mesh for each replica of the pipeline, in the order of the placement's devices."""
    report: ScheduleReport
    """Report on the schedule of the first replica."""
    tails: tuple[float, ...]
    """Seconds of the reduction that follows the last run, for each device of the plan."""

    @property
    def schedule(self) -> Schedule:
        """Schedule of the first replica."""
        assert self.report.solution is not None, "a candidate has a schedule within memory"
        return self.report.solution

    @property
    def plan(self) -> MicroBatchPlan:
        """Plan of the first replica. It has no reductions, because they follow the last micro-batch."""
        return self.schedule.plan

    @property
    def step_bound(self) -> float:
        """Lower bound in seconds of the step with any order of this plan that fits into memory.

        A device that is busy until the makespan still reduces its gradients, and so does every device after its work.
        """
        work = (count * self.schedule.micro_batches / _TICKS for count in self.plan.work)
        busy = max(each + tail for each, tail in zip(work, self.tails, strict=True))
        return max(busy, self.report.makespan_bound / _TICKS + min(self.tails))


class StepTimer:
    """Times placed pipelines of a question."""

    def __init__(self, question: GraphQuestion) -> None:
        self._question = question
        self._reductions = MeshReductions(question.mesh)

    def timed(
        self, configuration: GraphConfiguration, pipeline: Pipeline, order: str, control: Control, seconds: float = 0.0
    ) -> PlacedCandidate | StrategyResult:
        """Return the step with an order of micro-batches, or a result with the reason why there is none.

        `seconds` limits a search for the order. Raises InputError if a published order does not suit the stages.
        """
        micro_batches = self._question.micro_batches // configuration.data
        pipelines = self._question.pipelines_of(configuration)
        reports = [_ordered(plan, micro_batches, order, control, seconds) for plan in self._plans(pipeline, pipelines)]
        for report in reports:
            if report.solution is None:
                return StrategyResult(float("nan"), report.peak_memory or (), TOO_LARGE)
        schedules = [report.solution for report in reports if report.solution is not None]
        tails = self._tails(pipeline.placement, pipelines)
        ends = tuple(max(each) for each in zip(*map(_ends, schedules), strict=True))
        peaks = tuple(max(each) for each in zip(*(report.peak_memory or () for report in reports), strict=True))
        latency = max(end + tail for end, tail in zip(ends, tails, strict=True))
        outcome = StrategyResult(latency, peaks, "", ends)
        strategy = _strategy(configuration, pipeline, micro_batches, order)
        return PlacedCandidate(strategy, outcome, configuration, pipeline, pipelines, reports[0], tails)

    def _plans(self, pipeline: Pipeline, pipelines: Sequence[tuple[int, ...]]) -> list[MicroBatchPlan]:
        """Return the plan of each replica. Replicas whose devices are linked alike share one plan."""
        first, plans = pipeline.problem.transfers.mesh, list[MicroBatchPlan]()
        assert first is not None, "the question has a mesh"
        mesh = self._question.mesh
        for devices in {
            _links(mesh.devices, each) if not mesh.connections else each: each for each in pipelines
        }.values():
            on = replace(pipeline.placement, transfers=replace(pipeline.problem.transfers, mesh=mesh.part(devices)))
            plans.append(plan_without_reductions(on))
        return plans

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


@lru_cache(maxsize=64)
def plan_without_reductions(placement: Placement) -> MicroBatchPlan:
    """Return the plan of a placement whose gradients are reduced after the last micro-batch."""
    once = None if placement.replication is None else Replication(NoReductions())
    return plan_of(replace(placement, replication=once))


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


def _strategy(configuration: GraphConfiguration, pipeline: Pipeline, micro_batches: int, order: str) -> GraphStrategy:
    """Return the strategy with the stages of the placement, which may be fewer than the configuration allows."""
    layout, stages = configuration.layout, _stages_of(pipeline.placement)
    sizes = tuple(map(len, stages))
    return GraphStrategy(
        configuration.data,
        pipeline=len(sizes),
        micro_batches=micro_batches,
        schedule=order,
        stages_per_device=1 if layout is None else layout.stages_per_device,
        replicas=sizes if max(sizes) > 1 else (),
        shape=LayoutShape.LOOP if layout is None else layout.shape,
    )


def _stages_of(placement: Placement) -> list[tuple[int, ...]]:
    """Return the devices of each stage in the order in which tensors first reach them."""
    return list(dict.fromkeys(tuple(sorted(on)) for on in placement.assignment))
