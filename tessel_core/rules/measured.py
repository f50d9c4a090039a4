"""Rules for measured runs: runs must keep the dependencies of the plan and the order of the schedule."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tessel_core.model import MeasuredRun
from tessel_core.rules.referee import Violation


def check_run(run: MeasuredRun) -> list[Violation]:
    """Return all violations of these rules. Runs that are missing in the schedule are not checked."""
    return [*_dependency(run), *_order(run)]


def _dependency(run: MeasuredRun) -> Iterator[Violation]:
    """A block starts on a device after its predecessors have ended there, or else on the device that sends."""
    plan, schedule = run.schedule.plan, run.schedule
    rows = zip(schedule.block.tolist(), schedule.micro_batch.tolist(), run.start_ns, run.end_ns, strict=True)
    times = {(b, m): (starts, ends) for b, m, starts, ends in rows}
    for before, after, _ in plan.arcs:
        makers, takers = plan.blocks[before].devices, plan.blocks[after].devices
        for m in range(schedule.micro_batches):
            if (before, m) not in times or (after, m) not in times:
                continue
            ends, starts = times[before, m][1], times[after, m][0]
            for device, start in zip(takers, starts, strict=True):
                end = ends[makers.index(device)] if device in makers else min(ends)
                if start < end:
                    where = f"block {plan.blocks[after].name} of micro-batch {m} on {plan.devices[device].name}"
                    why = f"began {end - start:,} ns before {plan.blocks[before].name} had ended"
                    yield Violation("dependency", where, why)


def _order(run: MeasuredRun) -> Iterator[Violation]:
    """The runs of a device follow one another in the order of the schedule."""
    schedule = run.schedule
    for d, device in enumerate(schedule.plan.devices):
        rows, start, end = run.on(d)
        for i in np.flatnonzero(start[1:] < end[:-1]).tolist():
            late, early = (
                f"{schedule.plan.blocks[int(schedule.block[row])].name} #{schedule.micro_batch[row]}"
                for row in (rows[i + 1], rows[i])
            )
            yield Violation("order", f"device {device.name}", f"{late} began before {early} had ended")
