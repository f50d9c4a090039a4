"""The result of a simulation: when every operation ran, and which values every device held."""

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
"""Columns: operation, device, start, seconds."""

_KINDS = {kind.value: kind for kind in BlockKind}


class Stream(NamedTuple):
    """Work that a device does in sequence. Different streams of a device run at the same time."""

    what: str
    """"compute", "send", or "group" for a collective."""
    devices: tuple[int, ...] = ()
    """Sender and receiver, or the devices of the process group in order. Empty for computing."""
    over: str = ""
    """Dimension of the process group, in a program written for one device of several."""


COMPUTE = Stream("compute")


def stream_of(program: Program, op: Op) -> Stream:
    """Return the stream of an operation: computing, a process group, or one direction between two devices."""
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
    """Return the kind of block of an operation: backward for a gradient, or else by its phase."""
    if op.tag.phase == BlockKind.FORWARD.value and op.kind.endswith("_grad"):
        return BlockKind.BACKWARD
    return _KINDS.get(op.tag.phase, BlockKind.OTHER)


def device_name(device: int, mesh: DeviceMesh | None) -> str:
    """Return the mesh's name of a worker, or its number without a mesh."""
    return f"device {device}" if mesh is None else mesh.devices[device - 1].name


@dataclass(frozen=True, eq=False)
class Trace(Shown):
    """A simulated program. Event i is operation `op[i]` on device `device[i]` from `start[i]` for `seconds[i]`.

    Live memory is stored as steps. From `memory_time[j]` on, device `memory_device[j]` holds `memory_bytes[j]`. The
    step acquires value `memory_value[j]`, or if that is negative, it frees value -1 - `memory_value[j]`. The steps of
    each device are in order.
    """

    program: Program
    devices: tuple[int, ...]
    """Workers that the program uses, in order, without the host."""
    op: NDArray[np.int32]
    device: NDArray[np.int32]
    start: NDArray[np.float64]
    seconds: NDArray[np.float64]
    ready: NDArray[np.float64]
    """Seconds from which operations can use each value."""
    device_end: tuple[float, ...]
    """End of each device of `devices`, in seconds."""
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
        """Build a trace from events and memory steps. `ends` are the ends of all devices, by number."""
        workers = tuple(device for device in program.devices if device != HOST)
        device_end = tuple(ends[each] for each in workers)
        peaks = tuple(int(steps.held[steps.device == each].max(initial=0)) for each in workers)
        memory = steps.device, steps.time, steps.held, steps.value
        return cls(program, workers, *events, ready, device_end, peaks, *memory)

    @cached_property
    def latency(self) -> float:
        """Seconds until the last device ends."""
        return max(self.device_end, default=0.0)

    @cached_property
    def communicates(self) -> NDArray[np.bool_]:
        """Whether each event is a communication."""
        communicates = np.array([bool(find_operator(op.kind).pattern) for op in self.program.ops], bool)
        return communicates[self.op]

    @cached_property
    def first_event(self) -> list[int]:
        """Index of the first event of each operation, then the number of events. Events are in program order."""
        first: list[int] = np.searchsorted(self.op, np.arange(len(self.program.ops) + 1)).tolist()
        return first

    def events_of(self, op: int) -> range:
        """Return the events of an operation, one per device that it keeps busy."""
        return range(self.first_event[op], self.first_event[op + 1])

    def start_of(self, op: int) -> float:
        """Return when an operation starts, or when its inputs are ready if it keeps no device busy."""
        events = self.events_of(op)
        if events:
            return float(self.start[events[0]])
        return max((float(self.ready[value]) for value in self.program.ops[op].inputs), default=0.0)

    @cached_property
    def previous(self) -> list[tuple[int, tuple[int, ...]]]:
        """Earlier events of each event on its device.

        These are the one before it on its own stream, or -1, and the latest on each other stream.
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
        """Lane of each event: 0 for computing, and from 1 on for communication.

        Events of a lane do not overlap, and each device has the fewest lanes that this needs.
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
            # Times of the same moment may differ by rounding.
            lane = next((i for i, until in enumerate(free) if until <= start * (1 + SAME_MOMENT)), len(free))
            free[lane : lane + 1] = [end]
            found[event] = 1 + lane
        return found

    @cached_property
    def made_by(self) -> NDArray[np.int32]:
        """Operation that computes each value, or -1 for an input."""
        found = np.full(len(self.program.types), -1, np.int32)
        for i, op in enumerate(self.program.ops):
            found[list(op.outputs)] = i
        return found

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about oddities of the program."""
        program, fresh = self.program, []
        for value in unfreed(program):
            op = program.ops[self.made_by[value]]
            operator = find_operator(op.kind)
            # A second output, such as the mask of a dropout that is recomputed, may be unused.
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
    """Return the peak memory of workers 1, 2 … in bytes; 0 for workers that the program does not use."""
    held = dict(zip(trace.devices, trace.peak_memory, strict=True))
    return tuple(held.get(worker, 0) for worker in range(1, max(held, default=0) + 1))


def shortage(peaks: Sequence[int], mesh: DeviceMesh) -> str:
    """Return a sentence about the first device with too little memory, or "" if all have enough.

    `peaks` are the peaks of the mesh's first devices, in order, in bytes.
    """
    for device, peak in zip(mesh.devices, peaks, strict=False):
        if device.memory_capacity is not None and peak > device.memory_capacity:
            missing, held = show_memory(peak - device.memory_capacity, "B"), show_memory(peak, "B")
            return f"{device.name} needs {held} of memory, {missing} more than it has"
    return ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A line of a listing. Times are None if the line is no operation, or one that keeps its device free."""

    text: str
    op: int | None = None
    """Index of the operation in the whole program."""
    start: float | None = None
    """Seconds."""
    seconds: float | None = None


def listing(trace: Trace, rank: RankProgram) -> tuple[Listed, ...]:
    """Return the lines of `rank_text` with their times."""
    here = np.flatnonzero(trace.device == rank.rank)
    columns = (trace.op[here].tolist(), trace.start[here].tolist(), trace.seconds[here].tolist())
    times = {op: (start, seconds) for op, start, seconds in zip(*columns, strict=True)}
    return tuple(Listed(text, op, *times.get(-1 if op is None else op, ())) for op, text in rank_lines(rank))
