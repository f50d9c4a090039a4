"""What levels are made of: plans with slow links, and schedules that are built or searched once."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from tessel_core.inspection import IdleSplit
from tessel_core.model import MicroBatchPlan, Schedule, ScheduleReport
from tessel_core.scheduling import DEFAULT_SCHEDULER, find_scheduler, solve_schedule


@lru_cache(maxsize=256)
def solved(scheduler: str, plan: MicroBatchPlan, micro_batches: int) -> ScheduleReport:
    """The answer of a scheduler with its usual options."""
    return solve_schedule(scheduler, plan, micro_batches)


def drawn(scheduler: str, plan: MicroBatchPlan, micro_batches: int) -> Schedule:
    """Its schedule, whether that fits the memory or not."""
    schedule = solved(scheduler, plan, micro_batches).drawable
    assert schedule is not None, "levels ask for what there is"
    return schedule


@lru_cache(maxsize=64)
def searched(plan: MicroBatchPlan, micro_batches: int, seconds: float = 20.0) -> ScheduleReport:
    """The answer of the two-phase search, in so many seconds at most."""
    config = find_scheduler(DEFAULT_SCHEDULER).config(time_limit=seconds)
    return solve_schedule(DEFAULT_SCHEDULER, plan, micro_batches, config)


def idle(schedule: Schedule) -> Fraction:
    """Share of all devices' time, from 0 to the makespan, in which they run nothing."""
    return IdleSplit.of(schedule).idle


def waits(schedule: Schedule, device: int) -> int:
    """Ticks between a device's first and its last run in which it runs nothing."""
    on = schedule.runs_on(device)
    return int(schedule.end[on].max() - schedule.start[on].min() - schedule.duration[on].sum()) if len(on) else 0


def with_links(plan: MicroBatchPlan, ticks: int) -> MicroBatchPlan:
    """The plan with so long a wait between two blocks of which the second is on another device."""

    def devices(name: str) -> set[int]:
        return set(plan.blocks[plan.block_index(name)].devices)

    lags = (ticks if devices(each.predecessor) != devices(each.successor) else 0 for each in plan.dependencies)
    arcs = tuple(replace(each, lag=lag) for each, lag in zip(plan.dependencies, lags, strict=True))
    return replace(plan, dependencies=arcs)


def messages(plan: MicroBatchPlan) -> int:
    """Tensors that one micro-batch sends from device to device."""
    where = [set(block.devices) for block in plan.blocks]
    return sum(where[before] != where[after] for before, after, _ in plan.arcs)


def percent(share: Fraction) -> str:
    """A share with one digit."""
    return f"{float(share):.1%}"
