"""Find the operations that delay an operation, and the reasons why a device is idle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tessel_core.inspection.stretches import union
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op
from tessel_core.model.intervals import worked_until
from tessel_core.simulation.live_memory import SAME_MOMENT
from tessel_core.simulation.trace import Trace


@dataclass(frozen=True, slots=True)
class OpRun:
    """An operation on one of its devices. Times are in seconds."""

    device: int
    start: float
    seconds: float


def runs_of(trace: Trace, op: int) -> tuple[OpRun, ...]:
    """Return one run per device that an operation keeps busy."""
    events = trace.events_of(op)
    return tuple(OpRun(int(trace.device[i]), float(trace.start[i]), float(trace.seconds[i])) for i in events)


def longest_operation(trace: Trace) -> int | None:
    """Return the first operation with the longest event. None if no operation takes any time."""
    return int(trace.op[trace.seconds.argmax()]) if trace.seconds.any() else None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An operation that comes before or after another operation on a device, or exchanges a value with it."""

    op: int
    why: str
    """The value that leads from one operation to the other, or the device that runs both in sequence."""
    gap: float
    """Seconds from the end of the earlier operation to the start of the later one. 0 if the earlier one delayed it."""


def waited_for(trace: Trace, op: int) -> tuple[Neighbour, ...]:
    """Return the operations for which an operation waited, latest end first.

    These are the operations that compute its inputs, and the operations before it on its devices. A device has several
    streams. An operation on another stream counts only if no other operation explains the start.
    """
    program, start = trace.program, trace.start_of(op)
    found = dict[int, Neighbour]()
    for value in program.ops[op].inputs:
        maker = int(trace.made_by[value])
        if maker >= 0:
            _add(found, Neighbour(maker, f"%{program.value_name(value)}", start - float(trace.ready[value])))
    others = list[Neighbour]()
    for event in trace.events_of(op):
        own, elsewhere = trace.previous[event]
        for before in (own, *elsewhere):
            if before < 0:
                continue
            gap = start - float(trace.start[before] + trace.seconds[before])
            each = Neighbour(int(trace.op[before]), f"in turn on device {int(trace.device[event])}", gap)
            if before == own:
                _add(found, each)
            else:
                others.append(each)
    tolerance = trace.latency * SAME_MOMENT
    if all(each.gap > tolerance for each in found.values()):
        for each in others:
            if abs(each.gap) <= tolerance:
                _add(found, each)
    return _sorted(found, tolerance)


def came_after(trace: Trace, op: int) -> tuple[Neighbour, ...]:
    """Return the operations that waited for this one, earliest start first."""
    made = set(trace.program.ops[op].outputs)
    later = {i for i, each in enumerate(trace.program.ops[op + 1 :], op + 1) if not made.isdisjoint(each.inputs)}
    for event in trace.events_of(op):
        later.update(int(trace.op[after]) for after in _next(trace, event))
    found = dict[int, Neighbour]()
    for number in later:
        for each in waited_for(trace, number):
            if each.op == op:
                _add(found, Neighbour(number, each.why, each.gap))
    return _sorted(found, 0.0)


def _add(found: dict[int, Neighbour], each: Neighbour) -> None:
    """Add a neighbour. If the same operation was already added, keep the entry with the smaller gap."""
    if each.op not in found or each.gap < found[each.op].gap:
        found[each.op] = each


def _sorted(found: dict[int, Neighbour], tolerance: float) -> tuple[Neighbour, ...]:
    rounded = (Neighbour(each.op, each.why, each.gap if each.gap > tolerance else 0.0) for each in found.values())
    return tuple(sorted(rounded, key=lambda each: (each.gap, each.op)))


def _next(trace: Trace, event: int) -> Iterator[int]:
    """Yield the later events on the same device that this event may have delayed.

    For each of them, this event is the latest earlier event on one of the device's streams.
    """
    for later in np.flatnonzero(trace.device[event + 1 :] == trace.device[event]).tolist():
        own, elsewhere = trace.previous[event + 1 + later]
        if event == own or event in elsewhere:
            yield event + 1 + later
        if event == own:
            return


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Busy time of a device in seconds.

    computing + communicating - both + neither is the latency of the program.
    """

    device: int
    computing: float
    communicating: float
    both: float
    """Seconds in which the device computes and communicates at the same time. 0 without overlap."""
    neither: float


def device_times(trace: Trace) -> tuple[DeviceTime, ...]:
    """Return the busy time of each device of the trace."""
    return tuple(_device_time(trace, device) for device in trace.devices)


def _device_time(trace: Trace, device: int) -> DeviceTime:
    here, end = trace.device == device, trace.start + trace.seconds
    computes, communicates = here & ~trace.communicates, here & trace.communicates
    talking = union(trace.start[communicates], end[communicates])
    worked, talked = float(trace.seconds[computes].sum()), float((talking.end - talking.start).sum())
    ticks = np.column_stack(talking).ravel()
    both = float(np.diff(worked_until(ticks, trace.start[computes], trace.seconds[computes]))[::2].sum())
    neither = max(0.0, trace.latency - worked - talked + both)
    return DeviceTime(device, worked, talked, both, neither)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Time in seconds during which a device does not compute because of one stage and micro-batch."""

    what: str
    """Phase of a computation, or operator of a communication. Empty if no operation is running."""
    stage: int | None
    micro_batch: int | None
    seconds: float

    @property
    def title(self) -> str:
        """Cause of the waiting time, such as "stage 2's send of micro-batch 5"."""
        if not self.what:
            return "nothing in the program"
        if self.what == "wait":
            return "its turn in the schedule"
        stage = "" if self.stage is None else f"stage {self.stage}'s "
        return f"{stage}{self.what}" + ("" if self.micro_batch is None else f" of micro-batch {self.micro_batch}")


def why_waiting(trace: Trace, device: int, *, by_micro_batch: bool = True) -> tuple[Waiting, ...]:
    """Return the causes for which a device waits before its last computation, the longest waiting time first.

    Each wait is traced back along a path. The path begins at the operation after the wait. It goes to the input or
    stream that became available last, then to the operation that delayed this one, and so on until the start of the
    wait. Each part of the wait counts for the operation on the path that was running at that time.
    """
    sums: dict[tuple[str, int | None, int | None], float] = defaultdict(float)
    for op, seconds in _Causes(trace).of(device):
        sums[_doing(trace.program.ops[op], by_micro_batch) if op >= 0 else ("", None, None)] += seconds
    found = (Waiting(*what, seconds) for what, seconds in sums.items())
    return tuple(sorted(found, key=lambda each: (-each.seconds, each.title)))


def _doing(op: Op, by_micro_batch: bool) -> tuple[str, int | None, int | None]:
    """Return the cause that an operation stands for.

    A delay that only keeps the order of a schedule is no communication.
    """
    communicates = bool(find_operator(op.kind).pattern) and op.tag.phase != "wait"
    what = op.kind if communicates or not op.tag.phase else op.tag.phase
    return what, op.tag.stage, op.tag.micro_batch if by_micro_batch else None


class _Causes:
    def __init__(self, trace: Trace) -> None:
        self._trace, self._tolerance = trace, trace.latency * SAME_MOMENT
        self._end = (trace.start + trace.seconds).tolist()

    def of(self, device: int) -> Iterator[tuple[int, float]]:
        """Yield (operation, seconds) for each part of every wait. The operation is -1 if nothing is running."""
        cursor, trace = 0.0, self._trace
        for event in np.flatnonzero((trace.device == device) & ~trace.communicates).tolist():
            start = float(trace.start[event])
            if start > cursor + self._tolerance:
                yield from self._stretches(int(trace.op[event]), cursor, start)
            cursor = max(cursor, self._end[event])

    def _stretches(self, op: int, since: float, until: float) -> Iterator[tuple[int, float]]:
        # The loop ends, because only operations earlier in the program delay an operation.
        while until > since + self._tolerance:
            end, held_by = self._held_up(op)
            if end < until - self._tolerance:
                yield -1, until - max(since, end)
                until = end
            if held_by < 0:
                return
            began = min(until, max(since, self._trace.start_of(held_by)))
            yield held_by, max(0.0, until - began)
            op, until = held_by, began

    def _held_up(self, op: int) -> tuple[float, int]:
        """Return the latest end for which an operation waits, and the operation that ends then.

        If an input and a stream become available at the same time, choose the input.
        """
        trace, start = self._trace, self._trace.start_of(op)
        inputs = trace.program.ops[op].inputs
        found = [(float(trace.ready[value]), 2, int(trace.made_by[value])) for value in inputs]
        for event in trace.events_of(op):
            own, elsewhere = trace.previous[event]
            for before in (*elsewhere, own):
                rank = int(before == own)
                if before >= 0 and self._end[before] <= start + self._tolerance:
                    found.append((self._end[before], rank, int(trace.op[before])))
        end, _, held_by = max(found, default=(0.0, 0, -1))
        return end, held_by
