"""Loads of devices and transfers between them, derived from a placement alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tessel_core.model.placement import Placement
from tessel_core.model.replicas import gradient_bytes


@dataclass(frozen=True, slots=True)
class Crossing:
    """One operator's output on its way from the devices that have it to those that lack it."""

    source: int
    """The operator's index."""
    senders: tuple[int, ...]
    receivers: tuple[int, ...]
    sending: tuple[float, ...]
    """Per sender, in the graph's time unit: its part of the output over the slowest of its links."""
    receiving: tuple[float, ...]
    """Per receiver, in the graph's time unit: its part over the fastest of its links."""

    def seconds_at(self, device: int) -> float:
        """Time at one of the devices."""
        if device in self.senders:
            return self.sending[self.senders.index(device)]
        return self.receiving[self.receivers.index(device)]


def crossings(placement: Placement) -> Iterator[Crossing]:
    """Outputs with a consumer on a device where the producer is not; free ones, and unplaced operators, are left out.

    Raises InputError where a link of a mesh is to carry an output of unknown size.
    """
    graph, transfers = placement.graph, placement.transfers
    for source, consumers in enumerate(graph.consumers):
        senders = placement.assignment[source]
        receivers = sorted({device for each in consumers for device in placement.assignment[each]} - set(senders))
        if not receivers or not senders or (transfers.mesh is None and graph.output_cost[source] == 0.0):
            continue

        def seconds(one: int, other: int, parts: int, moved: int = source) -> float:
            return transfers.seconds(graph, moved, one, other, parts)

        parts, taken = placement.replicas(source), _parts_taken(placement, consumers)
        sending = tuple(max(seconds(one, other, parts) for other in receivers) for one in senders)
        receiving = tuple(min(seconds(one, other, taken[other]) for one in senders) for other in receivers)
        yield Crossing(source, senders, tuple(receivers), sending, receiving)


def _parts_taken(placement: Placement, consumers: Iterable[int]) -> dict[int, int]:
    """Per device of the consumers, into how many parts they divide what they take."""
    found: dict[int, int] = {}
    for consumer in consumers:
        parts = placement.replicas(consumer)
        for device in placement.assignment[consumer]:
            found[device] = min(found.get(device, parts), parts)
    return found


def exposed_reductions(placement: Placement) -> dict[tuple[int, ...], float]:
    """Per set of replicas, the time per micro-batch by which reducing their gradients prolongs their backward pass.

    All of it, or where it overlaps what is longer than their work.  In the graph's time unit.
    """
    replication, gradients = placement.replication, gradient_bytes(placement.graph)
    found: dict[tuple[int, ...], float] = {}
    for devices, operators in placement.replicated.items():
        assert replication is not None, "there are no replicas without one"
        seconds = replication.reductions.seconds(devices, sum(gradients[i] for i in operators))
        kind, hidden = placement.devices[devices[0]].kind, 0.0
        if replication.overlapped:
            hidden = sum(placement.graph.operators[i].time_on(kind) or 0.0 for i in operators) / len(devices)
        found[devices] = max(0.0, seconds - hidden)
    return found


THROUGHPUT = "throughput"
"""The objective: least largest load of a device, which is the time per sample in a pipeline."""
FORWARD_BACKWARD = "forward-backward"
"""The objective: least sum of the largest forward load and the largest backward load of a device."""


@dataclass(frozen=True, slots=True)
class PassLoads:
    """Per device, what one pass of a sample takes: time of its operators, and of the transfers of their outputs."""

    work: tuple[float, ...]
    communication: tuple[float, ...]

    @property
    def load(self) -> tuple[float, ...]:
        """Work and communication together."""
        return _sums(self.work, self.communication)


@dataclass(frozen=True, slots=True)
class PlacementLoads:
    """Per device: time of its operators, time of its transfers (both in the graph's unit), and bytes held.

    An accelerator with operator set S spends `sum of times in S + sum over u of cost(u) * [e(u) meets S and its
    complement]` where e(u) is u with its consumers: a sender pays once however many take its output, a receiving
    device once per distinct source.  Hosts pay nothing.  [Tarnawski et al., NeurIPS 2020]  On a mesh whose transfers
    block, cost(u) is that of the link, for a sender the slowest of those it uses; where they overlap it is 0.
    An output is moved in the pass of its producer.

    Each of r replicas spends 1/r of the times and moves 1/r of the outputs, and `communication` of its backward pass
    has the reduction of its gradients as `Replication` counts it.
    """

    forward: PassLoads
    backward: PassLoads
    memory: tuple[float, ...]
    reduction: tuple[float, ...]
    """Of the backward communication, what reducing the gradients of replicas takes."""

    @classmethod
    def of(cls, placement: Placement) -> PlacementLoads:
        """The loads; an operator without a time on its device counts as 0, which the referee refuses."""
        moved, reduction = _communication(placement), _reduction(placement)
        moved[True] = _sums(moved[True], reduction)
        forward, backward = (PassLoads(_work(placement, backward=way), moved[way]) for way in (False, True))
        return cls(forward, backward, placement.memory, reduction)

    @property
    def work(self) -> tuple[float, ...]:
        """Time of the operators of both passes."""
        return _sums(self.forward.work, self.backward.work)

    @property
    def communication(self) -> tuple[float, ...]:
        """Time of the transfers of both passes."""
        return _sums(self.forward.communication, self.backward.communication)

    @property
    def transfers(self) -> tuple[float, ...]:
        """Of the communication, what is no reduction."""
        pairs = zip(self.communication, self.reduction, strict=True)
        return tuple(max(0.0, moved - reduced) for moved, reduced in pairs)

    @property
    def load(self) -> tuple[float, ...]:
        """Work and communication together."""
        return _sums(self.work, self.communication)

    @property
    def largest(self) -> float:
        """The busiest device's load: time per sample in a pipeline, the throughput objective."""
        return max(self.load)

    @property
    def largest_passes(self) -> float:
        """The largest forward load and the largest backward load together, be they on one device or on two."""
        return max(self.forward.load) + max(self.backward.load)


OBJECTIVES: dict[str, Callable[[PlacementLoads], float]] = {
    THROUGHPUT: lambda loads: loads.largest,
    FORWARD_BACKWARD: lambda loads: loads.largest_passes,
}
"""Functions to minimise, by the names that reports carry."""


def _work(placement: Placement, *, backward: bool) -> tuple[float, ...]:
    operators = placement.graph.operators
    return tuple(
        sum(
            (operators[i].time_on(device.kind) or 0.0) / placement.replicas(i)
            for i in sorted(on)
            if operators[i].backward == backward
        )
        for device, on in zip(placement.devices, placement.operators_on, strict=True)
    )


def _communication(placement: Placement) -> dict[bool, tuple[float, ...]]:
    """Per device, by whether the producer is a backward operator."""
    found = {backward: [0.0] * len(placement.devices) for backward in (False, True)}
    if placement.transfers.load_devices:
        for each in crossings(placement):
            pays = found[placement.graph.operators[each.source].backward]
            for device in (*each.senders, *each.receivers):
                if not placement.devices[device].is_host:
                    pays[device] += each.seconds_at(device)
    return {backward: tuple(each) for backward, each in found.items()}


def _reduction(placement: Placement) -> tuple[float, ...]:
    """Per device, the reductions that it takes part in."""
    found = [0.0] * len(placement.devices)
    for devices, seconds in exposed_reductions(placement).items():
        for device in devices:
            found[device] += seconds
    return tuple(found)


def _sums(one: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(each + more for each, more in zip(one, other, strict=True))
