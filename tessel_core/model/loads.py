"""What a placement asks of its devices, derived from the placement alone."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.model.crossings import crossings
from tessel_core.model.placement import Placement


@dataclass(frozen=True, slots=True)
class PlacementLoads:
    """Per device: time of its operators, time of its transfers (both in the graph's unit), and bytes held.

    An accelerator with operator set S spends `sum of times in S + sum over u of cost(u) * [e(u) meets S and its
    complement]` where e(u) is u with its consumers: a sender pays once however many take its output, a receiving
    device once per distinct source.  Hosts pay nothing.  [Tarnawski et al., NeurIPS 2020]  On a mesh whose transfers
    block, cost(u) is that of the link, for a sender the slowest of those it uses; where they overlap it is 0.
    """

    work: tuple[float, ...]
    communication: tuple[float, ...]
    memory: tuple[float, ...]

    @classmethod
    def of(cls, placement: Placement) -> PlacementLoads:
        """The loads; an operator without a time on its device counts as 0, which the referee refuses."""
        operators = placement.graph.operators
        work = tuple(
            sum(operators[i].time_on(device.kind) or 0.0 for i in sorted(on))
            for device, on in zip(placement.devices, placement.operators_on, strict=True)
        )
        memory = tuple(sum(operators[i].memory for i in sorted(on)) for on in placement.operators_on)
        return cls(work, _communication(placement), memory)

    @property
    def load(self) -> tuple[float, ...]:
        """Work and communication together."""
        return tuple(one + other for one, other in zip(self.work, self.communication, strict=True))

    @property
    def largest(self) -> float:
        """The busiest device's load: time per sample in a pipeline, the throughput objective."""
        return max(self.load)


def _communication(placement: Placement) -> tuple[float, ...]:
    found = [0.0] * len(placement.devices)
    if not placement.transfers.load_devices:
        return tuple(found)
    for each in crossings(placement):
        for device in (*each.senders, *each.receivers):
            if not placement.devices[device].is_host:
                found[device] += each.seconds_at(device)
    return tuple(found)
