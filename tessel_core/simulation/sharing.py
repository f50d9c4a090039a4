"""Simulation with shared uplinks: transfers of a node at the same time divide the bandwidth of its uplink.

Transfers are modelled as flows of a fluid. A transfer first waits for its latency, then flows. The rate of a flow is
the number of bytes per second between each of its pairs of devices. Rates are max-min fair: all rates rise together.
The rate of a flow stops rising when it reaches the bandwidth of its own link, or when an uplink on its way is full
[Bertsekas & Gallager 1992, section 6.5]. Rates change only when a flow starts or ends.

A pair of devices in different nodes uses the outgoing uplink of the sender's node and the incoming uplink of the
receiver's node. Links are full-duplex, so the two directions do not affect each other. The parts of a scatter or gather
are sent one after another. Its load on an uplink is the mean over the parts.
"""

from __future__ import annotations

import heapq
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op, Program
from tessel_core.ir.types import HOST
from tessel_core.simulation.costs import Costs, MeshCosts
from tessel_core.simulation.live_memory import per_operation
from tessel_core.simulation.streams import Effect, effect_of, traced
from tessel_core.simulation.trace import COMPUTE, Stream, Trace

Uplink = tuple[int, str]
"""Node, and the direction "out" or "in"."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The traffic of one communication between nodes."""

    latency: float
    """Seconds before the first byte is sent."""
    amount: float
    """Bytes that each pair of devices transfers."""
    fastest: float
    """Largest rate of each pair in bytes per second, which its links allow."""
    uses: tuple[tuple[Uplink, float], ...]
    """Uplinks that the flow uses, each with the number of pairs that use it."""


def flow_of(costs: MeshCosts, program: Program, op: Op) -> Flow | None:
    """Return the flow of an operation. None if no data leaves a node."""
    if not find_operator(op.kind).pattern or find_operator(op.kind).stated:
        return None
    transfers = costs.transfers(op.kind, program.types_of(op.inputs), program.types_of(op.outputs))
    loads: dict[Uplink, float] = defaultdict(float)
    for transfer in transfers:
        share = transfer.amount / transfer.rails
        for one, other in transfer.all_pairs:
            if HOST in (one, other):
                continue
            nodes = [costs.mesh.devices[costs.position(device)].node for device in (one, other)]
            if nodes[0] != nodes[1]:
                loads[nodes[0], "out"] += share
                loads[nodes[1], "in"] += share
    amount = sum(each.amount / each.rails for each in transfers)
    if not loads or not amount:
        return None
    alone = sum(each.amount / each.bandwidth for each in transfers)
    uses = tuple((uplink, load / amount) for uplink, load in sorted(loads.items()))
    return Flow(sum(each.latency for each in transfers), amount, amount / alone, uses)


def fair_rates(flows: Sequence[Flow], uplink: float) -> list[float]:
    """Return the max-min fair rate of each flow if every uplink carries `uplink` bytes per second."""
    rates, rising, level = [0.0] * len(flows), set(range(len(flows))), 0.0
    left: dict[Uplink, float] = {each: uplink for flow in flows for each, _ in flow.uses}
    while rising:
        load: dict[Uplink, float] = defaultdict(float)
        for i in rising:
            for each, times in flows[i].uses:
                load[each] += times
        full = {each: level + left[each] / times for each, times in load.items()}
        reached = min(*(flows[i].fastest for i in rising), *full.values())
        for each, times in load.items():
            left[each] -= times * (reached - level)
        level = reached
        stopped = {
            i
            for i in rising
            if flows[i].fastest <= level or any(full[each] <= level * (1 + 1e-12) for each, _ in flows[i].uses)
        }
        for i in stopped:
            rates[i] = level
        rising -= stopped
    return rates


def simulate_shared(program: Program, costs: Costs, *, overlap: bool = True) -> Trace:
    """Simulate like `simulate_streams`, but with shared uplinks. Raises InputError for costs without a mesh."""
    if not isinstance(costs, MeshCosts):
        raise InputError("link sharing", "needs a mesh, because the devices of a node share links")
    return _Shared(program, costs, overlap).trace()


class _Shared:
    def __init__(self, program: Program, costs: MeshCosts, overlap: bool) -> None:
        self._program, self._costs, self._overlap = program, costs, overlap
        shared = costs.mesh.node_uplink is not None

        def effect_and_flow(op: Op) -> tuple[Effect, Flow | None]:
            return effect_of(program, op, costs), flow_of(costs, program, op) if shared else None

        known = list(per_operation(program, effect_and_flow))
        self._effects, self._flows = [effect for effect, _ in known], [flow for _, flow in known]
        count = len(program.ops)
        self._start, self._stretch = [0.0] * count, [1.0] * count
        self._after: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        """For each operation, the operations that wait for it.

        Each comes with the device that must become free, or -1 if it waits for an output.
        """
        self._missing = self._link()
        self._due = [(0.0, 1, i) for i, missing in enumerate(self._missing) if not missing]
        """Heap of events (seconds, what starts, operation). What starts is 1 for the operation and 0 for its flow."""
        self._now = 0.0
        self._left: dict[int, float] = {}
        """Bytes that remain to be transferred, for each operation that flows."""
        self._rates: Mapping[int, float] = {}

    def _link(self) -> list[int]:
        """Return for how many operations each operation waits.

        These are the operations that compute its inputs, and the previous operation on each of its streams.
        """
        made_by: dict[int, int] = {}
        last: dict[tuple[int, Stream], int] = {}
        missing = [0] * len(self._program.ops)
        for i, op in enumerate(self._program.ops):
            stream, seconds, _ = self._effects[i]
            waits = [(made_by[value], -1) for value in op.inputs if value in made_by]
            for device, _ in seconds:
                place = (device, stream if self._overlap else COMPUTE)
                if place in last:
                    waits.append((last[place], device))
                last[place] = i
            for before, device in waits:
                self._after[before].append((i, device))
            missing[i] = len(waits)
            made_by.update(dict.fromkeys(op.outputs, i))
        return missing

    def trace(self) -> Trace:
        while self._due or self._left:
            done = min(self._left, key=self._end_of, default=-1)
            if done >= 0 and (not self._due or self._end_of(done) <= self._due[0][0]):
                self._flow_until(self._end_of(done))
                del self._left[done]
                self._share()
                self._finish(done, self._now - self._start[done])
                continue
            time, starts, op = heapq.heappop(self._due)
            if starts:
                self._begin(op, time)
            else:
                self._flow_until(time)
                flow = self._flows[op]
                assert flow is not None
                self._left[op] = flow.amount
                self._share()
        return self._traced()

    def _end_of(self, op: int) -> float:
        return self._now + self._left[op] / self._rates[op]

    def _flow_until(self, time: float) -> None:
        for op, rate in self._rates.items():
            self._left[op] = max(0.0, self._left[op] - rate * (time - self._now))
        self._now = time

    def _share(self) -> None:
        """Compute the rates again, after a flow has started or ended."""
        flows = [flow for op in self._left if (flow := self._flows[op]) is not None]
        uplink = self._costs.mesh.node_uplink
        assert uplink is not None
        self._rates = dict(zip(self._left, fair_rates(flows, uplink), strict=True))

    def _begin(self, op: int, time: float) -> None:
        _, seconds, least = self._effects[op]
        self._start[op] = time
        flow = self._flows[op]
        if flow is None:
            self._finish(op, max([least, *(span for _, span in seconds)]))
        else:
            heapq.heappush(self._due, (time + flow.latency, 0, op))

    def _finish(self, op: int, duration: float) -> None:
        """End an operation and free its devices. Its busy time on each device is lengthened by the same factor."""
        _, seconds, least = self._effects[op]
        alone = max([least, *(span for _, span in seconds)])
        self._stretch[op] = duration / alone if alone else 1.0
        spans = dict(seconds)
        for after, device in self._after[op]:
            free = duration if device < 0 else spans[device] * self._stretch[op]
            self._start[after] = max(self._start[after], self._start[op] + free)
            self._missing[after] -= 1
            if not self._missing[after]:
                heapq.heappush(self._due, (self._start[after], 1, after))

    def _traced(self) -> Trace:
        ops, on, starts, spans = array("i"), array("i"), array("d"), array("d")
        ends, op_end = [0.0] * (max(self._program.devices) + 1), array("d")
        for i, (_, seconds, least) in enumerate(self._effects):
            start = self._start[i]
            end = start + least
            for device, span in seconds:
                ops.append(i)
                on.append(device)
                starts.append(start)
                spans.append(span * self._stretch[i])
                done = start + spans[-1]
                ends[device], end = max(ends[device], done), max(end, done)
            op_end.append(end)
        return traced(self._program, (ops, on, starts, spans), self._start, op_end, ends)
