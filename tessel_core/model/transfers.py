"""What it costs to move an operator's output from device to device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from tessel_core.errors import InputError
from tessel_core.model.groups import DeviceGroups
from tessel_core.model.mesh import DeviceMesh
from tessel_core.model.operator_graph import OperatorGraph


class Communication(StrEnum):
    """Whether a transfer keeps the devices busy that it connects."""

    BLOCKING = "blocking"
    """A transfer loads its sender once, however many receive it, and each receiving device once."""
    OVERLAPPED = "overlapped"
    """A transfer loads no device, and is a lag between the blocks at its ends."""


@dataclass(frozen=True)
class Transfers:
    """Costs of a graph's own (published files, always blocking), or those of a mesh's links."""

    mesh: DeviceMesh | None = None
    communication: Communication = Communication.BLOCKING
    groups: DeviceGroups | None = None
    """The tensor-parallel groups that the devices of `mesh` are, if they are."""

    @property
    def load_devices(self) -> bool:
        """Whether transfers count as work of devices."""
        return self.mesh is None or self.communication is Communication.BLOCKING

    def seconds(self, graph: OperatorGraph, source: int, one: int, other: int, parts: int = 1) -> float:
        """Time, in the graph's unit, to move one of so many parts of the output of `source` between two devices.

        Raises InputError where the size of the output is not known.
        """
        if self.mesh is None:
            return graph.output_cost[source] / parts
        return self.mesh.link(one, other).seconds(sent_bytes(graph, source) / parts)

    def loads(
        self, graph: OperatorGraph, choose: Callable[[Iterable[float]], float], parts: int = 1
    ) -> tuple[float, ...]:
        """Per operator, what moving one of so many parts of its output loads a device with.

        `choose` takes one of the links' answers.
        """
        return self.over_links(graph, choose, parts) if self.load_devices else (0.0,) * len(graph.operators)

    def over_links(
        self, graph: OperatorGraph, choose: Callable[[Iterable[float]], float], parts: int = 1
    ) -> tuple[float, ...]:
        """As `loads`, what it takes to move the output, whether that loads devices or not."""
        if self.mesh is None:
            return graph.output_cost if parts == 1 else tuple(cost / parts for cost in graph.output_cost)
        links = self.mesh.links
        return tuple(
            choose(link.seconds(sent_bytes(graph, source) / parts) for link in links) if consumers and links else 0.0
            for source, consumers in enumerate(graph.consumers)
        )


OWN_COSTS = Transfers()
"""The transfers of graphs whose edges state their costs."""


def sent_bytes(graph: OperatorGraph, source: int) -> int:
    """The size of an operator's output: what its edges say, else what it says itself.

    Raises InputError where neither says it.
    """
    operator = graph.operators[source]
    found = operator.output_bytes if graph.edge_bytes[source] is None else graph.edge_bytes[source]
    if found is None:
        target = graph.operators[graph.consumers[source][0]].name
        raise InputError(f"edge {operator.name} -> {target}", "has no bytes, and links of a mesh need them")
    return found
