"""Fake measured runs of schedules, without processes."""

from __future__ import annotations

import random

from tessel_core.model import Expected, MeasuredRun, Schedule

TICK_NS = 1_000_000
"""Nanoseconds per time unit of the plan."""


def as_measured(schedule: Schedule, *, seed: int = 0, expected: bool = True) -> MeasuredRun:
    """Return a measured run with small random delays, and differences of some microseconds between devices of a
    block."""
    chance, plan = random.Random(seed), schedule.plan
    starts, ends = list[tuple[int, ...]](), list[tuple[int, ...]]()
    for b, start in zip(schedule.block.tolist(), schedule.start.tolist(), strict=True):
        begun = tuple(start * TICK_NS + chance.randrange(1000) for _ in plan.blocks[b].devices)
        starts.append(begun)
        ends.append(tuple(each + plan.blocks[b].duration * TICK_NS - 2000 for each in begun))
    lasting = tuple(block.duration * TICK_NS for block in plan.blocks)
    lags = tuple(arc.lag * TICK_NS for arc in plan.dependencies)
    peaks = tuple(4096 * (d + 1) for d in range(len(plan.devices)))
    before = Expected(lasting, (0,) * len(lasting), lags, peaks) if expected else None
    losses = tuple(1.0 + m for m in range(schedule.micro_batches))
    result = {"losses": losses, "equal": True, "difference": 1e-15}
    return MeasuredRun(schedule, "toy", tuple(starts), tuple(ends), peaks, **result, expected=before)
