"""Helper functions of levels: plans with slow links, and cached schedules."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from tessel_core.inspection import IdleSplit
from tessel_core.model import MicroBatchPlan, Schedule, ScheduleReport
from tessel_core.scheduling import DEFAULT_SCHEDULER, find_scheduler, solve_schedule


@lru_cache(maxsize=256)
def solved(scheduler: str, plan: MicroBatchPlan, micro_batches: int) -> ScheduleReport:
    """Return the report of a scheduler with default options. The report is cached."""
    return solve_schedule(scheduler, plan, micro_batches)


def drawn(scheduler: str, plan: MicroBatchPlan, micro_batches: int) -> Schedule:
    """Return the schedule of `solved`, even if it exceeds the memory."""
    schedule = solved(scheduler, plan, micro_batches).drawable
    assert schedule is not None, "levels only use schedulers that apply"
    return schedule


@lru_cache(maxsize=64)
def searched(plan: MicroBatchPlan, micro_batches: int, seconds: float = 20.0) -> ScheduleReport:
    """Return the report of the two-phase search with a time limit in seconds. The report is cached."""
    config = find_scheduler(DEFAULT_SCHEDULER).config(time_limit=seconds)
    return solve_schedule(DEFAULT_SCHEDULER, plan, micro_batches, config)


def idle(schedule: Schedule) -> Fraction:
    """Return the share of time in which devices are idle, from 0 to the makespan, as the mean of all devices."""
    return IdleSplit.of(schedule).idle


def waits(schedule: Schedule, device: int) -> int:
    """Return the idle ticks of a device between its first and its last run."""
    on = schedule.runs_on(device)
    return int(schedule.end[on].max() - schedule.start[on].min() - schedule.duration[on].sum()) if len(on) else 0


def with_links(plan: MicroBatchPlan, ticks: int) -> MicroBatchPlan:
    """Return the plan with a lag of `ticks` between dependent blocks on different devices."""

    def devices(name: str) -> set[int]:
        return set(plan.blocks[plan.block_index(name)].devices)

    lags = (ticks if devices(each.predecessor) != devices(each.successor) else 0 for each in plan.dependencies)
    arcs = tuple(replace(each, lag=lag) for each, lag in zip(plan.dependencies, lags, strict=True))
    return replace(plan, dependencies=arcs)


def messages(plan: MicroBatchPlan) -> int:
    """Return the number of tensors that one micro-batch sends between devices."""
    where = [set(block.devices) for block in plan.blocks]
    return sum(where[before] != where[after] for before, after, _ in plan.arcs)


def percent(share: Fraction) -> str:
    """Format a share as a percentage with one decimal."""
    return f"{float(share):.1%}"
