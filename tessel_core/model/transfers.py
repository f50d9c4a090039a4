"""Costs of moving an operator's output between devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from tessel_core.errors import InputError
from tessel_core.model.groups import DeviceGroups
from tessel_core.model.mesh import DeviceMesh
from tessel_core.model.operator_graph import OperatorGraph


class Communication(StrEnum):
    """Whether transfers occupy the devices that they connect."""

    BLOCKING = "blocking"
    """A transfer occupies its sender once, for any number of receivers, and each receiving device once."""
    OVERLAPPED = "overlapped"
    """A transfer occupies no device, and is a lag between the blocks that it connects."""


@dataclass(frozen=True)
class Transfers:
    """Costs of transfers.

    With a mesh, they are the times of its links. Without one, they are the costs in the graph, and transfers always
    occupy devices.
    """

    mesh: DeviceMesh | None = None
    communication: Communication = Communication.BLOCKING
    groups: DeviceGroups | None = None
    """Tensor-parallel groups, if each device of `mesh` represents one group."""

    @property
    def load_devices(self) -> bool:
        """Whether transfers occupy devices."""
        return self.mesh is None or self.communication is Communication.BLOCKING

    def seconds(self, graph: OperatorGraph, source: int, one: int, other: int, parts: int = 1) -> float:
        """Return the time to move one of `parts` equal parts of an operator's output between two devices.

        The time is in the graph's unit. Raises InputError if the size of the output is unknown.
        """
        if self.mesh is None:
            return graph.output_cost[source] / parts
        return self.mesh.link(one, other).seconds(sent_bytes(graph, source) / parts)

    def loads(
        self, graph: OperatorGraph, choose: Callable[[Iterable[float]], float], parts: int = 1
    ) -> tuple[float, ...]:
        """Return the time for which moving one of `parts` parts of each operator's output occupies a device.

        `choose` selects one time from the times of all links: `min` gives a lower bound.
        """
        return self.over_links(graph, choose, parts) if self.load_devices else (0.0,) * len(graph.operators)

    def over_links(
        self, graph: OperatorGraph, choose: Callable[[Iterable[float]], float], parts: int = 1
    ) -> tuple[float, ...]:
        """Return the times that `loads` returns for blocking transfers, also if transfers are overlapped."""
        if self.mesh is None:
            return graph.output_cost if parts == 1 else tuple(cost / parts for cost in graph.output_cost)
        links = self.mesh.links
        return tuple(
            choose(link.seconds(sent_bytes(graph, source) / parts) for link in links) if consumers and links else 0.0
            for source, consumers in enumerate(graph.consumers)
        )


OWN_COSTS = Transfers()
"""Default: the costs that the edges of the graph give."""


def sent_bytes(graph: OperatorGraph, source: int) -> int:
    """Return the bytes of an operator's output, as its edges or else the operator itself state them.

    Raises InputError if neither states them.
    """
    operator = graph.operators[source]
    size = operator.output_bytes if graph.edge_bytes[source] is None else graph.edge_bytes[source]
    if size is None:
        target = graph.operators[graph.consumers[source][0]].name
        raise InputError(f"edge {operator.name} -> {target}", "has no bytes, and links of a mesh need them")
    return size
