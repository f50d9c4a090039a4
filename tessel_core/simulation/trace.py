"""The outcome of a simulation: when every operation ran, and which values every device held."""

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
    """What a device does in turn; different streams of a device run at the same time."""

    what: str
    """compute, send, or group for a collective."""
    devices: tuple[int, ...] = ()
    """The sender and the receiver, or the devices of the process group in order; empty for computing."""
    over: str = ""
    """In a program of one device of several, the dimension of the process group."""


COMPUTE = Stream("compute")


def stream_of(program: Program, op: Op) -> Stream:
    """The stream of an operation: computing, one per process group, and one per direction between two devices."""
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
    """The kind of block that an operation counts as: backward for a gradient, else as its phase says."""
    if op.tag.phase == BlockKind.FORWARD.value and op.kind.endswith("_grad"):
        return BlockKind.BACKWARD
    return _KINDS.get(op.tag.phase, BlockKind.OTHER)


def device_name(device: int, mesh: DeviceMesh | None) -> str:
    """The mesh's name of a worker; without a mesh, its number."""
    return f"device {device}" if mesh is None else mesh.devices[device - 1].name


@dataclass(frozen=True, eq=False)
class Trace(Shown):
    """Events as columns: event i is operation `op[i]` on device `device[i]` from `start[i]` for `seconds[i]`.

    Live memory as steps: from `memory_time[j]` on, device `memory_device[j]` holds `memory_bytes[j]`, because it has
    taken value `memory_value[j]`, or where that is negative, freed value -1 - `memory_value[j]`; steps of one device
    come in order.
    """

    program: Program
    devices: tuple[int, ...]
    """Workers that the program uses, in order; the host is left out."""
    op: NDArray[np.int32]
    device: NDArray[np.int32]
    start: NDArray[np.float64]
    seconds: NDArray[np.float64]
    ready: NDArray[np.float64]
    """Seconds, per value of the program, from which operations can take it."""
    device_end: tuple[float, ...]
    """Seconds, per device of `devices`."""
    peak_memory: tuple[int, ...]
    """Bytes, per device of `devices`."""
    memory_device: NDArray[np.int32]
    memory_time: NDArray[np.float64]
    memory_bytes: NDArray[np.int64]
    memory_value: NDArray[np.int32]

    @classmethod
    def of(
        cls, program: Program, events: Events, ready: NDArray[np.float64], ends: Sequence[float], steps: MemorySteps
    ) -> Trace:
        """The trace of these events and memory steps; `ends` are those of all devices by number."""
        workers = tuple(device for device in program.devices if device != HOST)
        device_end = tuple(ends[each] for each in workers)
        peaks = tuple(int(steps.held[steps.device == each].max(initial=0)) for each in workers)
        memory = steps.device, steps.time, steps.held, steps.value
        return cls(program, workers, *events, ready, device_end, peaks, *memory)

    @cached_property
    def latency(self) -> float:
        """Seconds until the last device is done."""
        return max(self.device_end, default=0.0)

    @cached_property
    def communicates(self) -> NDArray[np.bool_]:
        """Per event, whether it is communication."""
        communicates = np.array([bool(find_operator(op.kind).pattern) for op in self.program.ops], bool)
        return communicates[self.op]

    @cached_property
    def first_event(self) -> list[int]:
        """Per operation its first event, and at the end the number of events; events are in program order."""
        first: list[int] = np.searchsorted(self.op, np.arange(len(self.program.ops) + 1)).tolist()
        return first

    def events_of(self, op: int) -> range:
        """The events of an operation, one for each device that it keeps busy."""
        return range(self.first_event[op], self.first_event[op + 1])

    def start_of(self, op: int) -> float:
        """When an operation starts; if it keeps no device busy, when its inputs are there."""
        events = self.events_of(op)
        if events:
            return float(self.start[events[0]])
        return max((float(self.ready[value]) for value in self.program.ops[op].inputs), default=0.0)

    @cached_property
    def previous(self) -> list[tuple[int, tuple[int, ...]]]:
        """Per event, the one before it on its stream of its device, -1 if none, and the latest on each other stream."""
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
        """Per event, 0 for computing, else a lane of communication from 1 on; events of a lane do not overlap.

        A device has as few lanes as that takes.
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
            # Ends and starts of one moment differ by rounding.
            lane = next((i for i, until in enumerate(free) if until <= start * (1 + SAME_MOMENT)), len(free))
            free[lane : lane + 1] = [end]
            found[event] = 1 + lane
        return found

    @cached_property
    def made_by(self) -> NDArray[np.int32]:
        """Per value, the operation that makes it; -1 for inputs."""
        found = np.full(len(self.program.types), -1, np.int32)
        for i, op in enumerate(self.program.ops):
            found[list(op.outputs)] = i
        return found

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about what is odd in the program."""
        program, fresh = self.program, []
        for value in unfreed(program):
            op = program.ops[self.made_by[value]]
            operator = find_operator(op.kind)
            # A mask of dropout is made beside what is taken, and nothing takes it where dropout runs again.
            beside = any(program.uses[each] for each in op.outputs)
            if program.types[value].bytes and not (operator.in_place or operator.view or beside):
                fresh.append(value)
        if not fresh:
            return ()
        amount = show_memory(sum(program.types[value].bytes for value in fresh), "B")
        more = f" (and {len(fresh) - 1:,} like it)" if len(fresh) > 1 else ""
        nothing = f"Nothing takes or returns %{program.value_name(fresh[0])}{more}"
        return (f"{nothing}: where values are freed by their last use, these {amount} never are.",)

    @property
    def events(self) -> int:
        """How many there are; an operation is one on each of its devices."""
        return len(self.op)


def worker_peaks(trace: Trace) -> tuple[int, ...]:
    """Bytes that workers 1, 2 … hold at most; 0 for one that the program leaves out."""
    held = dict(zip(trace.devices, trace.peak_memory, strict=True))
    return tuple(held.get(worker, 0) for worker in range(1, max(held, default=0) + 1))


def shortage(peaks: Sequence[int], mesh: DeviceMesh) -> str:
    """The shortage of the first device whose memory does not suffice, as a sentence; empty where all suffice.

    `peaks` are those of the mesh's first devices, in order.
    """
    for device, peak in zip(mesh.devices, peaks, strict=False):
        if device.memory_capacity is not None and peak > device.memory_capacity:
            missing, held = show_memory(peak - device.memory_capacity, "B"), show_memory(peak, "B")
            return f"the memory of {device.name} is {missing} short of the {held} that it has to hold"
    return ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A line; times in seconds, None where it is no operation or one that keeps the device not busy."""

    text: str
    op: int | None = None
    """Its place in the whole program."""
    start: float | None = None
    seconds: float | None = None


def listing(trace: Trace, rank: RankProgram) -> tuple[Listed, ...]:
    """The lines of `rank_text`."""
    mine = np.flatnonzero(trace.device == rank.rank)
    columns = (trace.op[mine].tolist(), trace.start[mine].tolist(), trace.seconds[mine].tolist())
    times = {op: (start, seconds) for op, start, seconds in zip(*columns, strict=True)}
    return tuple(Listed(text, op, *times.get(-1 if op is None else op, ())) for op, text in rank_lines(rank))
