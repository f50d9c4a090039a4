"""Write a simulation in the Trace Event Format, as `chrome_trace` does for schedules.

Each device becomes a process with one thread for computation and other threads for communication. Times are rounded to
nanoseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tessel_core.exports.chrome_trace import COLOURS, MAX_TRACE_NS, microseconds, trace_file, track_names
from tessel_core.ir.operators import OPERATORS
from tessel_core.ir.program import Op, Tag
from tessel_core.model import DeviceMesh
from tessel_core.simulation import Trace
from tessel_core.simulation.costs import MeshCosts, costs_on, formula
from tessel_core.simulation.trace import device_name, kind_of
from tessel_core.version import __version__

_DIRECTED = ("send", "delay", "broadcast", "scatter", "gather", "reduce")
"""Communication patterns with a single sender or a single receiver."""

MAX_EVENTS = 500_000
"""Largest number of events that a viewer in a browser can read. The file has then about 200 MB."""


def too_much_for_a_trace(trace: Trace) -> str:
    """Return why viewers could not display the simulation, in one sentence. Empty if they can."""
    if trace.latency * 1e9 > MAX_TRACE_NS:
        return "the simulation lasts more than 292 years, the longest time that trace viewers can count in nanoseconds"
    if trace.events > MAX_EVENTS:
        return f"the simulation has {trace.events:,} events, more than {MAX_EVENTS:,}, the limit of trace viewers"
    return ""


def simulation_trace(trace: Trace, mesh: DeviceMesh | None = None, by_mesh: bool = True) -> bytes:
    """Return the trace: one slice per event, one memory counter per device, and an arrow for each transfer.

    `mesh` has the names of the devices. If the durations come from its costs (`by_mesh`), slices show the formulas of
    `MeshCosts`. `too_much_for_a_trace` must return an empty text.
    """
    about: dict[str, object] = {
        "program": trace.program.name,
        "latency_s": trace.latency,
        "made_by": f"Tessel Explorer {__version__}",
    }
    parts = _Parts(trace, mesh, costs_on(mesh, trace.program) if mesh and by_mesh else None)
    return trace_file(about, parts.names(), parts.slices(), parts.counters(), parts.arrows())


class _Parts:
    def __init__(self, trace: Trace, mesh: DeviceMesh | None, costs: MeshCosts | None) -> None:
        self._trace, self._mesh, self._costs = trace, mesh, costs
        self._alike: dict[object, tuple[str, str]] = {}
        """For each kind of operation: the first part of its events as text, and its formula."""
        self._tags: dict[Tag, str] = {}
        self._process = {device: 1 + i for i, device in enumerate(trace.devices)}
        self._begin = _ns(trace.start)
        self._end = _ns(trace.start + trace.seconds)
        self._thread = trace.lane.tolist()

    def names(self) -> Iterator[str]:
        for device, process in self._process.items():
            yield from track_names(self._track(device, 0), "process", device_name(device, self._mesh), process)
            lanes = 1 + int(self._trace.lane[self._trace.device == device].max(initial=0))
            for thread, what in enumerate(("computing", *["communication"] * (lanes - 1))):
                yield from track_names(self._track(device, thread), "thread", what, thread)

    def slices(self) -> Iterator[str]:
        """Yield one slice per event of a worker."""
        begin, lasts = microseconds(self._begin), microseconds(self._end - self._begin)
        ops, devices = self._trace.op.tolist(), self._trace.device.tolist()
        details, last = "", -1
        for i, (number, device) in enumerate(zip(ops, devices, strict=True)):
            if device not in self._process:
                continue
            if number != last:
                details, last = self._details(number), number
            yield f'{{"ph":"X",{self._at(device, self._thread[i])},"ts":{begin[i]},"dur":{lasts[i]},{details}'

    def _details(self, number: int) -> str:
        """Return the text of an event after its times."""
        program, op = self._trace.program, self._trace.program.ops[number]
        key = op.kind, op.attributes, kind_of(op), *[id(program.types[value]) for value in op.inputs]
        if key not in self._alike:
            kind = kind_of(op)
            fixed = {"name": op.kind, "cat": str(kind), "cname": COLOURS[kind]}
            explained = json.dumps({"formula": formula(program, op, self._costs)})
            self._alike[key] = json.dumps(fixed)[1:-1], explained[1:]
        head, tail = self._alike[key]
        if op.tag not in self._tags:
            about = {"stage": op.tag.stage, "micro_batch": op.tag.micro_batch, "phase": op.tag.phase}
            self._tags[op.tag] = json.dumps(about)[1:-1]
        makes = json.dumps(", ".join(map(program.value_name, op.outputs[:3])))
        return f'{head},"args":{{"operation":{number},"makes":{makes},{self._tags[op.tag]},{tail}}}'

    def counters(self) -> Iterator[str]:
        """Yield the memory of each device when it changes.

        Of several changes in one nanosecond, yield only the last.
        """
        for device in self._process:
            here = self._trace.memory_device == device
            time, held = _ns(self._trace.memory_time[here]), self._trace.memory_bytes[here]
            last = np.append(time[1:] != time[:-1], True) if len(time) else here[:0]
            for when, amount in zip(microseconds(time[last]), held[last].tolist(), strict=True):
                yield f'{{"ph":"C",{self._at(device, 0)},"ts":{when},"name":"memory","args":{{"B":{amount}}}}}'

    def arrows(self) -> Iterator[str]:
        """Yield one arrow per transfer.

        It leads from the operation that computed the value to the first operation that uses it after the transfer.
        """
        program, flow = self._trace.program, 0
        event_of = {
            pair: i for i, pair in enumerate(zip(self._trace.op.tolist(), self._trace.device.tolist(), strict=True))
        }
        for op, taken, made, taker in self._sent():
            here, there = program.types[taken].device, program.types[made].device
            leaves, enters = event_of.get((int(self._trace.made_by[taken]), here)), event_of.get((taker, there))
            if leaves is None or enters is None or not self._open(leaves, enters):
                continue
            flow += 1
            fixed = f'"id":{flow},"cat":"transfer","name":{json.dumps(op.kind)}'
            left, entered = microseconds(np.array([self._end[leaves] - 1, self._begin[enters]]))
            yield f'{{"ph":"s",{self._at(here, self._thread[leaves])},"ts":{left},{fixed}}}'
            yield f'{{"ph":"f","bp":"e",{self._at(there, self._thread[enters])},"ts":{entered},{fixed}}}'

    def _sent(self) -> Iterator[tuple[Op, int, int, int]]:
        """Yield (operation, sent value, received value, first user) for transfers with one sender or one receiver.

        A collective in which all devices send to all others has no arrows.
        """
        types = self._trace.program.types
        takers = dict[int, int]()
        for i, op in enumerate(self._trace.program.ops):
            for value in op.inputs:
                takers.setdefault(value, i)
        directed = {kind for kind, operator in OPERATORS.items() if operator.pattern in _DIRECTED}
        for op in self._trace.program.ops:
            if op.kind in directed:
                for taken, made in product(op.inputs, op.outputs):
                    if made in takers and types[taken].device != types[made].device:
                        yield op, taken, made, takers[made]

    def _open(self, leaves: int, enters: int) -> bool:
        """Return whether both events have a positive length and are drawn as slices.

        Viewers can attach an arrow only to such events.
        """
        pair = np.array([leaves, enters])
        workers = all(int(device) in self._process for device in self._trace.device[pair])
        return workers and bool((self._end[pair] > self._begin[pair]).all())

    def _track(self, device: int, thread: int) -> dict[str, int]:
        process = self._process[device]
        return {"pid": process, "tid": 2 * process - 1 + thread}

    def _at(self, device: int, thread: int) -> str:
        track = self._track(device, thread)
        return f'"pid":{track["pid"]},"tid":{track["tid"]}'


def _ns(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(seconds * 1e9).astype(np.int64)
