"""Waiting: the neighbours of an operation that hold it up, and the causes of idle time on a device."""

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
    """An operation on one of its devices; times in seconds."""

    device: int
    start: float
    seconds: float


def runs_of(trace: Trace, op: int) -> tuple[OpRun, ...]:
    """A run for each device; none of an operation that keeps no device busy."""
    events = trace.events_of(op)
    return tuple(OpRun(int(trace.device[i]), float(trace.start[i]), float(trace.seconds[i])) for i in events)


def longest_operation(trace: Trace) -> int | None:
    """The operation that keeps a device busy for longest, the first of several; None where none does."""
    return int(trace.op[trace.seconds.argmax()]) if trace.seconds.any() else None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An operation before or after another one."""

    op: int
    why: str
    """The tie of the two: the value that the one makes and the other takes, or the device that runs both in turn."""
    gap: float
    """Seconds from the end of the earlier to the start of the later; with 0 the one held the other up."""


def waited_for(trace: Trace, op: int) -> tuple[Neighbour, ...]:
    """The operations that make its inputs and those before it on its devices, the last to end first.

    A device has several streams; the one before on another stream counts only where nothing else says why the
    operation did not start sooner.
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
    """The operations that count this one among those that they waited for, the first to start first."""
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
    """Of two ties between the same operations, the one that binds stays."""
    if each.op not in found or each.gap < found[each.op].gap:
        found[each.op] = each


def _sorted(found: dict[int, Neighbour], tolerance: float) -> tuple[Neighbour, ...]:
    rounded = (Neighbour(each.op, each.why, each.gap if each.gap > tolerance else 0.0) for each in found.values())
    return tuple(sorted(rounded, key=lambda each: (each.gap, each.op)))


def _next(trace: Trace, event: int) -> Iterator[int]:
    """The events before which this one is the latest of a stream of its device."""
    for later in np.flatnonzero(trace.device[event + 1 :] == trace.device[event]).tolist():
        own, elsewhere = trace.previous[event + 1 + later]
        if event == own or event in elsewhere:
            yield event + 1 + later
        if event == own:
            return


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Seconds of a device; computing + communicating - both + neither is the latency of the whole."""

    device: int
    computing: float
    communicating: float
    both: float
    """Seconds of both at once; 0 without overlap."""
    neither: float


def device_times(trace: Trace) -> tuple[DeviceTime, ...]:
    """Per device of the trace."""
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
    """Seconds for which a device does not compute because of what a stage does for a micro-batch."""

    what: str
    """The phase of computations, the kind of communication; empty where nothing is under way."""
    stage: int | None
    micro_batch: int | None
    seconds: float

    @property
    def title(self) -> str:
        """The cause in words, such as "stage 2's send of micro-batch 5"."""
        if not self.what:
            return "nothing that the program says"
        if self.what == "wait":
            return "its turn in the schedule"
        stage = "" if self.stage is None else f"stage {self.stage}'s "
        return f"{stage}{self.what}" + ("" if self.micro_batch is None else f" of micro-batch {self.micro_batch}")


def why_waiting(trace: Trace, device: int, *, by_micro_batch: bool = True) -> tuple[Waiting, ...]:
    """The causes for which a device waits between the start and its last computation, the longest waits first.

    Every wait is followed back along what holds the next operation up: the input that comes last or the stream that is
    free last, then what held that one up, and so on to where the wait began.  Each stretch of the wait is counted for
    the operation that was then under way on this path.
    """
    sums: dict[tuple[str, int | None, int | None], float] = defaultdict(float)
    for op, seconds in _Causes(trace).of(device):
        sums[_doing(trace.program.ops[op], by_micro_batch) if op >= 0 else ("", None, None)] += seconds
    found = (Waiting(*what, seconds) for what, seconds in sums.items())
    return tuple(sorted(found, key=lambda each: (-each.seconds, each.title)))


def _doing(op: Op, by_micro_batch: bool) -> tuple[str, int | None, int | None]:
    """The cause that an operation counts as; a delay that only keeps to a schedule is no communication."""
    communicates = bool(find_operator(op.kind).pattern) and op.tag.phase != "wait"
    what = op.kind if communicates or not op.tag.phase else op.tag.phase
    return what, op.tag.stage, op.tag.micro_batch if by_micro_batch else None


class _Causes:
    def __init__(self, trace: Trace) -> None:
        self._trace, self._tolerance = trace, trace.latency * SAME_MOMENT
        self._end = (trace.start + trace.seconds).tolist()

    def of(self, device: int) -> Iterator[tuple[int, float]]:
        """(Operation, seconds) of every stretch of every wait; -1 where nothing is under way."""
        cursor, trace = 0.0, self._trace
        for event in np.flatnonzero((trace.device == device) & ~trace.communicates).tolist():
            start = float(trace.start[event])
            if start > cursor + self._tolerance:
                yield from self._stretches(int(trace.op[event]), cursor, start)
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
            began = min(until, max(since, self._trace.start_of(held_by)))
            yield held_by, max(0.0, until - began)
            op, until = held_by, began

    def _held_up(self, op: int) -> tuple[float, int]:
        """When the last thing that an operation waits for ends, and which operation that is; of several the input."""
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
