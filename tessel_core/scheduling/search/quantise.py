"""Coarser copies of plans with fine costs: what they teach is combinatorial, and is timed exactly afterwards."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from tessel_core.model import Block, MicroBatchPlan

FINE = 600
"""Periods above this many ticks are searched on coarser copies of the plan."""
_STEPS = (400, 100)
"""Steps that the period has on the coarser copies."""


def quanta(period: Fraction | int) -> tuple[int, ...]:
    """Ticks in one quantum, for each copy to search when the period is about `period`; 1 is the plan itself."""
    if period <= FINE:
        return (1,)
    return tuple(max(1, int(period) // steps) for steps in _STEPS)


def quantised(plan: MicroBatchPlan, quantum: int) -> MicroBatchPlan:
    """The plan with durations and lags rounded to the nearest multiple of `quantum`, counted in quanta."""
    if quantum == 1:
        return plan

    def coarse(block: Block) -> Block:
        return replace(block, duration=max(1, round(block.duration / quantum)))

    return replace(
        plan,
        blocks=tuple(map(coarse, plan.blocks)),
        dependencies=tuple(replace(dep, lag=round(dep.lag / quantum)) for dep in plan.dependencies),
    )
