"""How the ranks of a strategy are spread over a mesh, and the time of their collectives and transfers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tessel_core.errors import InputError
from tessel_core.ir.transforms.expansion import CONTEXT, DATA, EXPERT, EXPERT_DATA, REPLICAS, TENSOR
from tessel_core.ir.types import TensorType
from tessel_core.model import DeviceMesh, Link
from tessel_core.simulation.costs import MeshCosts
from tessel_core.simulation.ranks import RankCosts
from tessel_core.strategies.ranks import Ranks

Pattern = frozenset[bytes]
"""The different ways in which the process groups of a dimension are spread over nodes."""


def nodes_of(mesh: DeviceMesh) -> tuple[int, ...] | None:
    """Return the node of each device. None if devices or links differ in anything but the node."""
    if len(mesh.kinds) > 1 or mesh.connections:
        return None
    links = {mesh.same_node_link, mesh.default_link} - {None}
    return (0,) * len(mesh.devices) if len(links) < 2 else tuple(device.node for device in mesh.devices)


class Wiring:
    """The ranks of one strategy on a mesh.

    Positions of the pipeline form a class if their ranks are spread over nodes in the same way.
    """

    def __init__(self, costs: MeshCosts, ranks: Ranks) -> None:
        self._costs, self.ranks = costs, ranks
        self._nodes = np.array([device.node for device in costs.mesh.devices])
        kinds = {kind: number for number, kind in enumerate(costs.mesh.kinds)}
        self._kinds = np.array([kinds[device.kind] for device in costs.mesh.devices])
        self._known: dict[tuple[str, int], dict[bytes, tuple[int, ...]]] = {}
        self._seconds: dict[tuple[str, str, int, int], float] = {}
        self._links: dict[tuple[int, int], list[Link]] = {}
        self._rank_costs: dict[int, RankCosts] = {}

    def _workers(self, place: int) -> NDArray[np.int64]:
        """Return the indices in the mesh of the ranks at a position, as an array of shape (data, context, tensor)."""
        ranks = self.ranks
        axes = (range(getattr(ranks, name)) for name in (DATA, CONTEXT, TENSOR))
        strides = (ranks.stride(name) for name in (DATA, CONTEXT, TENSOR))
        offsets = [np.array(axis) * stride for axis, stride in zip(axes, strides, strict=True)]
        found = offsets[0][:, None, None] + offsets[1][None, :, None] + offsets[2][None, None, :]
        return np.asarray(found + place * ranks.stride("pipeline"), np.int64)

    @cached_property
    def classes(self) -> list[int]:
        """For each position of the pipeline, the first position whose ranks are spread over nodes in the same way.

        Raises InputError if the ranks at one position are on devices of several kinds.
        """
        first: dict[bytes, int] = {}
        found = list[int]()
        for place in range(self.ranks.pipeline):
            workers = self._workers(place).ravel()
            if len(set(self._kinds[workers].tolist())) > 1:
                why = f"the devices of stage {place} are of several kinds, but the search needs one kind per stage"
                raise InputError(f"mesh {self._costs.mesh.name}", why)
            nodes = self._nodes[workers]
            spread = (nodes - nodes[0]).tobytes() + bytes([int(self._kinds[workers[0]])])
            found.append(first.setdefault(spread, place))
        return found

    def kind(self, place: int) -> str:
        """Return the kind of the devices at a position."""
        return self._costs.mesh.devices[self.ranks.worker_of(0, place) - 1].kind

    def pattern(self, over: str, place: int) -> Pattern:
        """Return the ways in which the groups of a dimension are spread over nodes at a position."""
        return frozenset(self._groups(over, place))

    def _groups(self, over: str, place: int) -> dict[bytes, tuple[int, ...]]:
        """Return the workers of one group for each way in which the groups of a dimension are spread over nodes."""
        key = over, self.classes[place]
        if key not in self._known:
            workers = self._workers(place)
            if over in (EXPERT, EXPERT_DATA):
                rows = workers.reshape(-1, self.ranks.expert)
                rows = rows if over == EXPERT else rows.T
            elif over == REPLICAS:
                rows = workers.transpose(2, 0, 1).reshape(workers.shape[2], -1)
            else:
                axis = (DATA, CONTEXT, TENSOR).index(over)
                rows = np.moveaxis(workers, axis, -1).reshape(-1, workers.shape[axis])
            nodes = self._nodes[rows]
            _, first = np.unique(nodes - nodes[:, :1], axis=0, return_index=True)
            self._known[key] = {(nodes[i] - nodes[i, 0]).tobytes(): tuple((rows[i] + 1).tolist()) for i in first}
        return self._known[key]

    def costs(self, place: int) -> RankCosts:
        """Return the costs of the ranks at a position of the pipeline.

        Programs have this position as their first device.
        """
        place = self.classes[place]
        if place not in self._rank_costs:
            ranks, nodes = self.ranks, self._nodes.tolist()
            self._rank_costs[place] = RankCosts(
                self._costs, ranks.degrees, lambda rank, p: ranks.worker_of(rank, place + p), nodes
            )
        return self._rank_costs[place]

    def collective(self, place: int, kind: str, over: str, amount: int) -> float:
        """Return the seconds of a collective, on the slowest group of a dimension.

        `amount` is the number of bytes of all parts together.
        """
        degree = self.ranks.degrees.of(over)
        if degree == 1 or not amount:
            return 0.0
        key = kind, over, self.classes[place], amount
        if key not in self._seconds:
            rings = self._rings(over, place)
            self._seconds[key] = max(self._costs.collective(kind, ring, amount).seconds for ring in rings)
        return self._seconds[key]

    def rates(self, place: int, kinds: Sequence[str], overs: Sequence[str]) -> NDArray[np.float64]:
        """Return the seconds of collectives as latency and seconds per byte.

        The array has the shape (dimensions, kinds, groups, 2). A collective takes as long as in its slowest group. An
        all-to-all has no such rates.
        """
        degree = max([len(self._groups(over, place)) for over in overs], default=1)
        found = np.zeros((len(overs), len(kinds), degree, 2))
        for i, over in enumerate(overs):
            for j, kind in enumerate(kinds):
                for k, ring in enumerate(self._rings(over, place)):
                    one = self._costs.collective(kind, ring, 1.0)
                    found[i, j, k] = one.latency, one.amount / one.bandwidth
        return found

    def _rings(self, over: str, place: int) -> list[tuple[int, ...]]:
        """Return the workers of one group for each way in which groups are spread over nodes, node by node."""
        groups = (self._costs.by_node(group) for group in self._groups(over, place).values())
        return [tuple(worker for mine in nodes for worker in mine) for nodes in groups]

    def send(self, place: int, onward: int, tensors: Sequence[TensorType]) -> float:
        """Return the seconds to send tensors from position `place` of the pipeline to `onward`, on the slowest rank."""
        if (place, onward) not in self._links:
            known = {self._costs.link(one + 1, other + 1) for one, other in self._pairs(place, onward)}
            self._links[place, onward] = [link for link in known if link is not None]
        links = self._links[place, onward]
        return max((sum(link.latency + each.bytes / link.bandwidth for each in tensors) for link in links), default=0.0)

    def _pairs(self, place: int, onward: int) -> list[list[int]]:
        """Return the positions of devices that send from one place to another, with one pair for each kind of link."""
        ends = np.column_stack((self._workers(place).ravel(), self._workers(onward).ravel()))
        if not self._costs.mesh.connections:  # links depend on the kinds, and on whether both devices are on one node
            nodes = self._nodes[ends]
            alike = np.column_stack((nodes[:, 0] == nodes[:, 1], self._kinds[ends]))
            ends = ends[np.unique(alike, axis=0, return_index=True)[1]]
        return list(ends.tolist())
