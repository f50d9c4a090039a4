"""The result of a simulation: when every operation ran, and which values were in the memory of each device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op, Program
from tessel_core.ir.project import RankProgram, rank_lines
from tessel_core.ir.transforms.expansion import over_of
from tessel_core.ir.types import HOST
from tessel_core.ir.verify import unfreed
from tessel_core.model import BlockKind, DeviceMesh
from tessel_core.shown import Shown
from tessel_core.simulation.live_memory import SAME_MOMENT, MemorySteps, per_operation
from tessel_core.units import show_memory

Events = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]
"""Columns of events: operation, device, start and duration in seconds."""

_KINDS = {kind.value: kind for kind in BlockKind}


class Stream(NamedTuple):
    """Operations that a device runs one after another. Different streams of a device run at the same time."""

    what: str
    """"compute", "send", or "group" for a collective."""
    devices: tuple[int, ...] = ()
    """Sender and receiver, or the devices of the process group in order. Empty for computation."""
    over: str = ""
    """Dimension of parallelism of the process group, in the program of one rank. Otherwise ""."""


COMPUTE = Stream("compute")


def stream_of(program: Program, op: Op) -> Stream:
    """Return the stream of an operation: computation, a process group, or a direction between two devices."""
    pattern = find_operator(op.kind).pattern
    if not pattern:
        return COMPUTE
    devices = program.devices_of(op)
    return (
        Stream("send", devices)
        if pattern == "send"
        else Stream("group", tuple(sorted(devices)), over_of(op.attributes))
    )


def kind_of(op: Op) -> BlockKind:
    """Return the kind of block to which an operation belongs. Gradients are backward, and others follow their phase."""
    if op.tag.phase == BlockKind.FORWARD.value and op.kind.endswith("_grad"):
        return BlockKind.BACKWARD
    return _KINDS.get(op.tag.phase, BlockKind.OTHER)


def device_name(device: int, mesh: DeviceMesh | None) -> str:
    """Return the name of a worker in the mesh. Without a mesh, return its number."""
    return f"device {device}" if mesh is None else mesh.devices[device - 1].name


@dataclass(frozen=True, eq=False)
class Trace(Shown):
    """A simulated program. Event i is operation `op[i]` on device `device[i]` from `start[i]` for `seconds[i]`.

    Memory is stored as steps. From `memory_time[j]` on, device `memory_device[j]` holds `memory_bytes[j]`. The step
    allocates the memory of value `memory_value[j]`. If this number is negative, the step frees that of value -1 -
    `memory_value[j]`. The steps of each device are sorted by time.
    """

    program: Program
    devices: tuple[int, ...]
    """Workers that the program uses, in ascending order, without the host."""
    op: NDArray[np.int32]
    device: NDArray[np.int32]
    start: NDArray[np.float64]
    seconds: NDArray[np.float64]
    ready: NDArray[np.float64]
    """For each value, the time in seconds from which operations can use it."""
    device_end: tuple[float, ...]
    """For each device of `devices`, the time in seconds at which it ends."""
    peak_memory: tuple[int, ...]
    """Peak memory of each device of `devices`, in bytes."""
    memory_device: NDArray[np.int32]
    memory_time: NDArray[np.float64]
    memory_bytes: NDArray[np.int64]
    memory_value: NDArray[np.int32]

    @classmethod
    def of(
        cls, program: Program, events: Events, ready: NDArray[np.float64], ends: Sequence[float], steps: MemorySteps
    ) -> Trace:
        """Return the trace of events and memory steps. `ends` has the ends of all devices, by device number."""
        workers = tuple(device for device in program.devices if device != HOST)
        device_end = tuple(ends[each] for each in workers)
        peaks = tuple(int(steps.held[steps.device == each].max(initial=0)) for each in workers)
        memory = steps.device, steps.time, steps.held, steps.value
        return cls(program, workers, *events, ready, device_end, peaks, *memory)

    @cached_property
    def latency(self) -> float:
        """Time in seconds at which the last device ends."""
        return max(self.device_end, default=0.0)

    @cached_property
    def communicates(self) -> NDArray[np.bool_]:
        """Whether each event is a communication."""
        communicates = np.array([bool(find_operator(op.kind).pattern) for op in self.program.ops], bool)
        return communicates[self.op]

    @cached_property
    def first_event(self) -> list[int]:
        """Index of the first event of each operation, and at the end the number of events.

        Events are in program order.
        """
        first: list[int] = np.searchsorted(self.op, np.arange(len(self.program.ops) + 1)).tolist()
        return first

    def events_of(self, op: int) -> range:
        """Return the events of an operation, one for each device that it keeps busy."""
        return range(self.first_event[op], self.first_event[op + 1])

    def start_of(self, op: int) -> float:
        """Return the time in seconds at which an operation starts.

        If it keeps no device busy, this is the time at which its inputs are ready.
        """
        events = self.events_of(op)
        if events:
            return float(self.start[events[0]])
        return max((float(self.ready[value]) for value in self.program.ops[op].inputs), default=0.0)

    @cached_property
    def previous(self) -> list[tuple[int, tuple[int, ...]]]:
        """For each event, earlier events on its device.

        The first is the event before it on its own stream, or -1. The others are the latest event of each other stream.
        """
        latest: dict[int, dict[Stream, int]] = {device: {} for device in self.program.devices}
        streams = list(per_operation(self.program, lambda op: stream_of(self.program, op)))
        found = []
        for event, (op, device) in enumerate(zip(self.op.tolist(), self.device.tolist(), strict=True)):
            stream, last = streams[op], latest[device]
            found.append((last.get(stream, -1), tuple(e for each, e in last.items() if each != stream)))
            last[stream] = event
        return found

    @cached_property
    def lane(self) -> NDArray[np.int64]:
        """Row of each event in a timeline: 0 for computation, and 1 or more for communication.

        Events in a row do not overlap, and each device has as few rows as possible.
        """
        found = np.zeros(len(self.op), np.int64)
        talking = np.flatnonzero(self.communicates & (self.seconds > 0))
        order = talking[np.lexsort((self.start[talking], self.device[talking]))]
        found[self.communicates] = 1
        columns = (self.device[order], self.start[order], (self.start + self.seconds)[order])
        device_now, free = -1, list[float]()
        for event, device, start, end in zip(order.tolist(), *(each.tolist() for each in columns), strict=True):
            if device != device_now:
                device_now, free = device, []
            # Times that are equal in theory may differ by rounding.
            lane = next((i for i, until in enumerate(free) if until <= start * (1 + SAME_MOMENT)), len(free))
            free[lane : lane + 1] = [end]
            found[event] = 1 + lane
        return found

    @cached_property
    def made_by(self) -> NDArray[np.int32]:
        """For each value, the operation that computes it, or -1 for an input."""
        found = np.full(len(self.program.types), -1, np.int32)
        for i, op in enumerate(self.program.ops):
            found[list(op.outputs)] = i
        return found

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about unusual properties of the program, one sentence each."""
        program, fresh = self.program, []
        for value in unfreed(program):
            op = program.ops[self.made_by[value]]
            operator = find_operator(op.kind)
            # It is normal that a second output is unused, such as the mask of a dropout that is recomputed.
            beside = any(program.uses[each] for each in op.outputs)
            if program.types[value].bytes and not (operator.in_place or operator.view or beside):
                fresh.append(value)
        if not fresh:
            return ()
        amount = show_memory(sum(program.types[value].bytes for value in fresh), "B")
        more = f" (and {len(fresh) - 1:,} like it)" if len(fresh) > 1 else ""
        unused = f"No operation uses %{program.value_name(fresh[0])}{more}"
        return (f"{unused}, so a system that frees values after their last use keeps these {amount}.",)

    @property
    def events(self) -> int:
        """Number of events. An operation has one event on each of its devices."""
        return len(self.op)


def worker_peaks(trace: Trace) -> tuple[int, ...]:
    """Return the peak memory of workers 1, 2, … in bytes. It is 0 for workers that the program does not use."""
    held = dict(zip(trace.devices, trace.peak_memory, strict=True))
    return tuple(held.get(worker, 0) for worker in range(1, max(held, default=0) + 1))


def shortage(peaks: Sequence[int], mesh: DeviceMesh) -> str:
    """Return a sentence about the first device that needs more memory than it has, or "" if there is none.

    `peaks` are the peaks in bytes of the mesh's first devices, in order.
    """
    for device, peak in zip(mesh.devices, peaks, strict=False):
        if device.memory_capacity is not None and peak > device.memory_capacity:
            missing, held = show_memory(peak - device.memory_capacity, "B"), show_memory(peak, "B")
            return f"{device.name} needs {held} of memory, {missing} more than it has"
    return ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A line of a listing. Its times are None if it shows no operation, or an operation that keeps its device free."""

    text: str
    op: int | None = None
    """Index of the operation in the whole program."""
    start: float | None = None
    """Start in seconds."""
    seconds: float | None = None


def listing(trace: Trace, rank: RankProgram) -> tuple[Listed, ...]:
    """Return the lines of `rank_text` with their times."""
    here = np.flatnonzero(trace.device == rank.rank)
    columns = (trace.op[here].tolist(), trace.start[here].tolist(), trace.seconds[here].tolist())
    times = {op: (start, seconds) for op, start, seconds in zip(*columns, strict=True)}
    return tuple(Listed(text, op, *times.get(-1 if op is None else op, ())) for op, text in rank_lines(rank))
