"""What devices do with their time, and what they wait for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op
from tessel_core.model.intervals import worked_until
from tessel_core.simulation.live_memory import SAME_MOMENT
from tessel_core.simulation.trace import Trace


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Seconds of a device; computing + communicating - both + idle is the latency of the whole."""

    device: int
    computing: float
    communicating: float
    both: float
    """At once; 0 without overlap."""
    idle: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """Seconds for which a device does not compute because of what a stage does for a micro-batch."""

    what: str
    """The phase of computations, the kind of communication; empty where nothing is under way."""
    stage: int | None
    micro_batch: int | None
    seconds: float

    @property
    def told(self) -> str:
        """What is waited for, such as "stage 2's send of micro-batch 5"."""
        if not self.what:
            return "nothing that the program says"
        if self.what == "wait":
            return "its turn in the schedule"
        stage = "" if self.stage is None else f"stage {self.stage}'s "
        return f"{stage}{self.what}" + ("" if self.micro_batch is None else f" of micro-batch {self.micro_batch}")


def device_times(trace: Trace) -> tuple[DeviceTime, ...]:
    """Per device of the trace."""
    return tuple(_device_time(trace, device) for device in trace.devices)


def _device_time(trace: Trace, device: int) -> DeviceTime:
    here = trace.device == device
    computes, talks = here & ~trace.communicates, here & trace.communicates
    worked, talked = float(trace.seconds[computes].sum()), float(trace.seconds[talks].sum())
    start, end = trace.start[talks], trace.start[talks] + trace.seconds[talks]
    ticks = np.column_stack((start, end)).ravel()
    both = float(np.diff(worked_until(ticks, trace.start[computes], trace.seconds[computes]))[::2].sum())
    idle = max(0.0, trace.latency - worked - talked + both)
    return DeviceTime(device, worked, talked, both, idle)


def why_waiting(trace: Trace, device: int, *, by_micro_batch: bool = True) -> tuple[Waiting, ...]:
    """What a device waits for between the start and its last computation, the longest waits first.

    Every wait is followed back along what holds the next operation up: the input that comes last or the stream that is
    free last, then what held that one up, and so on to where the wait began.  Each stretch of the wait is counted for
    the operation that was then under way on this path.
    """
    sums: dict[tuple[str, int | None, int | None], float] = defaultdict(float)
    for op, seconds in _Causes(trace).of(device):
        sums[_doing(trace.program.ops[op], by_micro_batch) if op >= 0 else ("", None, None)] += seconds
    found = (Waiting(*what, seconds) for what, seconds in sums.items())
    return tuple(sorted(found, key=lambda each: (-each.seconds, each.told)))


def _doing(op: Op, by_micro_batch: bool) -> tuple[str, int | None, int | None]:
    """What an operation is counted as; a delay that only keeps to a schedule is no communication."""
    communicates = bool(find_operator(op.kind).pattern) and op.tag.phase != "wait"
    what = op.kind if communicates or not op.tag.phase else op.tag.phase
    return what, op.tag.stage, op.tag.micro_batch if by_micro_batch else None


class _Causes:
    def __init__(self, trace: Trace) -> None:
        self._trace, self._tolerance = trace, trace.latency * SAME_MOMENT
        self._start, self._end = trace.start.tolist(), (trace.start + trace.seconds).tolist()
        self._first = np.searchsorted(trace.op, np.arange(len(trace.program.ops) + 1)).tolist()
        self._ready, self._maker = trace.ready.tolist(), trace.made_by.tolist()
        self._before = _events_before(trace)

    def of(self, device: int) -> Iterator[tuple[int, float]]:
        """(Operation, seconds) of every stretch of every wait; -1 where nothing is under way."""
        cursor, trace = 0.0, self._trace
        for event in np.flatnonzero((trace.device == device) & ~trace.communicates).tolist():
            if self._start[event] > cursor + self._tolerance:
                yield from self._stretches(int(trace.op[event]), cursor, self._start[event])
            cursor = max(cursor, self._end[event])

    def _stretches(self, op: int, since: float, until: float) -> Iterator[tuple[int, float]]:
        # Ends: what holds an operation up stands before it in the program.
        while until > since + self._tolerance:
            end, held_by = self._held_up(op)
            if end < until - self._tolerance:
                yield -1, until - max(since, end)
                until = end
            if held_by < 0:
                return
            began = min(until, max(since, self._op_start(held_by)))
            yield held_by, max(0.0, until - began)
            op, until = held_by, began

    def _held_up(self, op: int) -> tuple[float, int]:
        """When the last thing that an operation waits for ends, and which operation that is; of several the input."""
        start = self._op_start(op)
        found = [(self._ready[value], 2, self._maker[value]) for value in self._trace.program.ops[op].inputs]
        for event in range(self._first[op], self._first[op + 1]):
            for rank, before in enumerate(self._before[event]):
                if before >= 0 and self._end[before] <= start + self._tolerance:
                    found.append((self._end[before], rank, int(self._trace.op[before])))
        end, _, held_by = max(found, default=(0.0, 0, -1))
        return end, held_by

    def _op_start(self, op: int) -> float:
        """Of an operation that keeps nobody busy: when its inputs are there."""
        event = self._first[op]
        if event < self._first[op + 1]:
            return float(self._start[event])
        return max((self._ready[value] for value in self._trace.program.ops[op].inputs), default=0.0)


def _events_before(trace: Trace) -> list[tuple[int, int]]:
    """Per event, the one before it on its device's other stream and the one on its own, in program order; else -1."""
    latest: dict[int, list[int]] = {device: [-1, -1] for device in trace.program.devices}
    found = []
    for event, (device, talks) in enumerate(zip(trace.device.tolist(), trace.communicates.tolist(), strict=True)):
        last = latest[device]
        found.append((last[1 - talks], last[talks]))
        last[talks] = event
    return found
