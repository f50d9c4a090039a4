"""What became of a schedule when it ran."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tessel_core.errors import InputError
from tessel_core.model.schedule import IntColumn, Schedule


@dataclass(frozen=True, slots=True)
class Expected:
    """What an earlier run made one expect of the next, in nanoseconds and bytes."""

    block_ns: tuple[int, ...]
    """Per block, how long it lasts."""
    turn_ns: tuple[int, ...]
    """Per block, from its end until the next on its device begins, if that waits for nothing else."""
    lag_ns: tuple[int, ...]
    """Per dependency of the plan."""
    peak_bytes: tuple[int, ...]
    """Per device."""


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """When each run of a schedule began and ended on real processes, in nanoseconds since they all began."""

    schedule: Schedule
    engine: str
    """What the blocks were."""
    start_ns: tuple[tuple[int, ...], ...]
    """Of each run, in the order of the schedule's columns, on each of its block's devices."""
    end_ns: tuple[tuple[int, ...], ...]
    peak_bytes: tuple[int, ...]
    """Most that the blocks of each device held at a time."""
    losses: tuple[float, ...] = ()
    """Per micro-batch, where the blocks were a network that is trained."""
    equal: bool | None = None
    """Whether all that was computed is what one process computes; None where nothing of use was."""
    difference: float | None = None
    """The largest |a - b| of a tensor over its largest |b|; None where nothing was compared or something lacks."""
    tick_ns: float | None = None
    """Nanoseconds that stood for one unit of the plan's time, where blocks stood in for others."""
    unit_bytes: float | None = None
    """Bytes that stood for one unit of the plan's memory."""
    expected: Expected | None = None
    """What a run just before made one expect; None where there was none."""

    def __post_init__(self) -> None:
        runs, devices = len(self.schedule.start), len(self.schedule.plan.devices)
        for name, column, wanted in (
            ("start_ns", self.start_ns, runs),
            ("end_ns", self.end_ns, runs),
            ("peak_bytes", self.peak_bytes, devices),
        ):
            if len(column) != wanted:
                raise InputError(name, f"has {len(column)} entries, there are {wanted}")
        self._check_expected()
        blocks = self.schedule.plan.blocks
        for row, b in enumerate(self.schedule.block.tolist()):
            starts, ends = self.start_ns[row], self.end_ns[row]
            wanted = len(blocks[b].devices)
            for name, found in (("start", starts), ("end", ends)):
                if len(found) != wanted:
                    raise InputError(f"{name}_ns[{row}]", f"has {len(found)} of {wanted} {name}s")
            if any(end < start for start, end in zip(starts, ends, strict=True)):
                raise InputError(f"end_ns[{row}]", "is before the run's start")

    def _check_expected(self) -> None:
        plan = self.schedule.plan
        counts = len(plan.blocks), len(plan.blocks), len(plan.dependencies), len(plan.devices)
        for name, count in zip(Expected.__slots__, counts, strict=True):
            found = count if self.expected is None else len(getattr(self.expected, name))
            if found != count:
                raise InputError(f"expected, {name}", f"has {found} entries, there are {count}")

    @cached_property
    def start(self) -> IntColumn:
        """When each run had begun on all of its devices."""
        return np.array([max(each) for each in self.start_ns], dtype=np.int64)

    @cached_property
    def end(self) -> IntColumn:
        """When each run had ended on all of its devices."""
        return np.array([max(each) for each in self.end_ns], dtype=np.int64)

    @property
    def makespan_ns(self) -> int:
        """From the common beginning to the end of the last run."""
        return int(self.end.max()) if len(self.end) else 0

    def on(self, device: int) -> tuple[IntColumn, IntColumn, IntColumn]:
        """Rows, starts and ends of the runs of a device, in the order of the schedule."""
        rows = self.schedule.runs_on(device)
        places = [self.schedule.plan.blocks[b].devices.index(device) for b in self.schedule.block[rows].tolist()]
        start, end = (
            np.array([column[row][place] for row, place in zip(rows.tolist(), places, strict=True)], dtype=np.int64)
            for column in (self.start_ns, self.end_ns)
        )
        return rows, start, end

    @property
    def idle(self) -> tuple[float, ...]:
        """Per device, the share of the makespan in which it runs nothing."""
        length = max(1, self.makespan_ns)
        on = (self.on(device) for device in range(len(self.schedule.plan.devices)))
        return tuple(1 - int((end - start).sum()) / length for _, start, end in on)

    @property
    def block_ns(self) -> tuple[int, ...]:
        """Per block, the median over its runs of how long they lasted, once they had begun everywhere."""
        lasting, block = np.maximum(0, self.end - self.start), self.schedule.block
        return tuple(int(np.median(lasting[block == b])) for b in range(len(self.schedule.plan.blocks)))
