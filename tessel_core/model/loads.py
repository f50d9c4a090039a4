"""Loads of devices and transfers between devices, derived from a placement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tessel_core.model.placement import Placement
from tessel_core.model.replicas import gradient_bytes


@dataclass(frozen=True, slots=True)
class Crossing:
    """The transfer of one operator's output from the devices that produce it to the other devices that consume it."""

    source: int
    """Index of the operator."""
    senders: tuple[int, ...]
    receivers: tuple[int, ...]
    sending: tuple[float, ...]
    """Time of each sender, in the graph's unit: its part of the output over the slowest of its links."""
    receiving: tuple[float, ...]
    """Time of each receiver, in the graph's unit: its part of the output over the fastest of its links."""

    def seconds_at(self, device: int) -> float:
        """Return the time for which the transfer occupies a device that sends or receives."""
        if device in self.senders:
            return self.sending[self.senders.index(device)]
        return self.receiving[self.receivers.index(device)]


def crossings(placement: Placement) -> Iterator[Crossing]:
    """Yield a `Crossing` for each operator whose output is needed on a device that does not run the operator.

    Outputs that cost nothing and operators without a device are left out. Raises InputError if a link of a mesh carries
    an output of unknown size.
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
    """Return the number of parts into which each consuming device and its replicas divide the tensor."""
    parts_on: dict[int, int] = {}
    for consumer in consumers:
        parts = placement.replicas(consumer)
        for device in placement.assignment[consumer]:
            parts_on[device] = min(parts_on.get(device, parts), parts)
    return parts_on


def exposed_reductions(placement: Placement) -> dict[tuple[int, ...], float]:
    """Return the time per micro-batch by which reducing gradients prolongs the backward pass of each set of replicas.

    With overlap, this is only the part of the reduction that takes longer than the work of the replicas. Times are in
    the graph's unit.
    """
    replication, gradients = placement.replication, gradient_bytes(placement.graph)
    exposed: dict[tuple[int, ...], float] = {}
    for devices, operators in placement.replicated.items():
        assert replication is not None, "there are no replicas without one"
        seconds = replication.reductions.seconds(devices, sum(gradients[i] for i in operators))
        kind, hidden = placement.devices[devices[0]].kind, 0.0
        if replication.overlapped:
            hidden = sum(placement.graph.operators[i].time_on(kind) or 0.0 for i in operators) / len(devices)
        exposed[devices] = max(0.0, seconds - hidden)
    return exposed


THROUGHPUT = "throughput"
"""Name of the objective that minimises the largest load of a device, which is the time per sample in a pipeline."""
FORWARD_BACKWARD = "forward-backward"
"""Name of the objective that minimises the sum of the largest forward load and the largest backward load."""


@dataclass(frozen=True, slots=True)
class PassLoads:
    """Time of each device in one pass (forward or backward) of a sample: for operators, and for transfers."""

    work: tuple[float, ...]
    communication: tuple[float, ...]

    @property
    def load(self) -> tuple[float, ...]:
        """Sum of work and communication of each device."""
        return _sums(self.work, self.communication)


@dataclass(frozen=True, slots=True)
class PlacementLoads:
    """Work, communication (both in the graph's time unit) and bytes of each device.

    An accelerator with operator set S spends `sum of times in S + sum over u of cost(u) * [e(u) meets S and its
    complement]`, where e(u) is u with its consumers. So a sender pays once per output, however many devices receive
    it, and a receiver pays once per output. Hosts pay nothing. [Tarnawski et al., NeurIPS 2020]

    On a mesh with blocking transfers, cost(u) is the time of the link. For a sender, it is the time of the slowest link
    that it uses. With overlapped transfers, cost(u) is 0. A transfer counts in the pass (forward or backward) of its
    producer.

    Each of r replicas spends 1/r of the times and moves 1/r of the outputs. The reduction of its gradients counts as
    `communication` of its backward pass, as `Replication` describes.
    """

    forward: PassLoads
    backward: PassLoads
    memory: tuple[float, ...]
    reduction: tuple[float, ...]
    """Part of each device's backward communication that reduces the gradients of replicas."""

    @classmethod
    def of(cls, placement: Placement) -> PlacementLoads:
        """Compute the loads. An operator without a time on its device counts as 0; the referee rejects it."""
        moved, reduction = _communication(placement), _reduction(placement)
        moved[True] = _sums(moved[True], reduction)
        forward, backward = (PassLoads(_work(placement, backward=way), moved[way]) for way in (False, True))
        return cls(forward, backward, placement.memory, reduction)

    @property
    def work(self) -> tuple[float, ...]:
        """Time of each device's operators in both passes."""
        return _sums(self.forward.work, self.backward.work)

    @property
    def communication(self) -> tuple[float, ...]:
        """Time of each device's communication in both passes."""
        return _sums(self.forward.communication, self.backward.communication)

    @property
    def transfers(self) -> tuple[float, ...]:
        """Communication of each device without the reduction of gradients."""
        pairs = zip(self.communication, self.reduction, strict=True)
        return tuple(max(0.0, moved - reduced) for moved, reduced in pairs)

    @property
    def load(self) -> tuple[float, ...]:
        """Sum of work and communication of each device."""
        return _sums(self.work, self.communication)

    @property
    def largest(self) -> float:
        """Load of the busiest device: the time per sample in a pipeline, which the throughput objective minimises."""
        return max(self.load)

    @property
    def largest_passes(self) -> float:
        """Sum of the largest forward load and the largest backward load, which may be on different devices."""
        return max(self.forward.load) + max(self.backward.load)


OBJECTIVES: dict[str, Callable[[PlacementLoads], float]] = {
    THROUGHPUT: lambda loads: loads.largest,
    FORWARD_BACKWARD: lambda loads: loads.largest_passes,
}
"""Objective functions, which are minimised. The keys are the objective names in reports."""


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
    """Return the transfer time of each device in the forward pass (key False) and the backward pass (key True)."""
    seconds = {backward: [0.0] * len(placement.devices) for backward in (False, True)}
    if placement.transfers.load_devices:
        for each in crossings(placement):
            of_pass = seconds[placement.graph.operators[each.source].backward]
            for device in (*each.senders, *each.receivers):
                if not placement.devices[device].is_host:
                    of_pass[device] += each.seconds_at(device)
    return {backward: tuple(each) for backward, each in seconds.items()}


def _reduction(placement: Placement) -> tuple[float, ...]:
    """Return the time of the reductions in which each device takes part."""
    total = [0.0] * len(placement.devices)
    for devices, seconds in exposed_reductions(placement).items():
        for device in devices:
            total[device] += seconds
    return tuple(total)


def _sums(one: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(each + more for each, more in zip(one, other, strict=True))
