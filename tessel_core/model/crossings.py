"""The outputs that a placement moves between devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tessel_core.model.placement import Placement


@dataclass(frozen=True, slots=True)
class Crossing:
    """One operator's output on its way from the devices that have it to those that lack it."""

    source: int
    """The operator's index."""
    senders: tuple[int, ...]
    receivers: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]
    """[sender][receiver] in the graph's time unit."""

    def seconds_at(self, device: int) -> float:
        """What it takes on one of the devices: the slowest link at a sender, the fastest at a receiver."""
        if device in self.senders:
            return max(self.seconds[self.senders.index(device)])
        receiver = self.receivers.index(device)
        return min(row[receiver] for row in self.seconds)


def crossings(placement: Placement) -> Iterator[Crossing]:
    """Outputs with a consumer on a device where the producer is not; free ones, and unplaced operators, are left out.

    Raises
    ------
    InputError
        Where a link of a mesh is to carry an output of unknown size.
    """
    graph, transfers = placement.graph, placement.transfers
    for source, consumers in enumerate(graph.consumers):
        senders = placement.assignment[source]
        receivers = sorted({device for each in consumers for device in placement.assignment[each]} - set(senders))
        if not receivers or not senders or (transfers.mesh is None and graph.output_cost[source] == 0.0):
            continue
        seconds = tuple(tuple(transfers.seconds(graph, source, one, other) for other in receivers) for one in senders)
        yield Crossing(source, senders, tuple(receivers), seconds)
