"""Groups that need no place of their own: leaving them with a neighbour is never worse, and there are fewer ideals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tessel_core.model.operator_graph import joined

if TYPE_CHECKING:
    from tessel_core.placement.stages import Pipeline


def contracted(pipeline: Pipeline, *, memory_binds: bool) -> tuple[tuple[int, ...], ...]:
    """The groups that may be joined, each set by its least group.

    A group joins its only neighbour along the flow when it takes no time anywhere, every tensor that it touches
    touches that neighbour too, and it may go wherever the neighbour may.  Moving it there then adds no load to any
    device: no tensor is cut that was whole.  Where memory binds it must hold none.
    """
    graph = _Neighbours(pipeline, memory_binds)
    links, waiting = [], list(range(len(pipeline.members)))
    while waiting:
        group = waiting.pop()
        host = graph.host_of(group)
        if host is not None:
            links.append((group, host))
            graph.remove(group)
            waiting.append(host)
    return joined(len(pipeline.members), links)


def groups_without_cost(pipeline: Pipeline) -> NDArray[np.bool_]:
    """Per group, whether it takes no time wherever it is supported."""
    times = np.array([each.time for each in pipeline.classes])
    found: NDArray[np.bool_] = np.where(np.isfinite(times), times, 0.0).max(axis=0) == 0
    return found


class _Neighbours:
    """Who touches whom, while groups disappear."""

    def __init__(self, pipeline: Pipeline, memory_binds: bool) -> None:
        count = len(pipeline.members)
        self._allowed = np.isfinite([each.time for each in pipeline.classes])
        idle = groups_without_cost(pipeline)
        self._idle = idle & (pipeline.memory == 0) if memory_binds else idle
        self._touches: list[set[int]] = [set() for _ in range(count)]
        for group, before in enumerate(pipeline.predecessors):
            self._touches[group] |= set(before)
            for each in before:
                self._touches[each].add(group)
        self._nets = [set(net.groups) for net in pipeline.nets]
        self._nets_of: list[set[int]] = [set() for _ in range(count)]
        for i, net in enumerate(self._nets):
            for each in net:
                self._nets_of[each].add(i)
        self._left = dict.fromkeys(range(count))

    def host_of(self, group: int) -> int | None:
        """The neighbour that may take the group in, if it needs no place of its own."""
        if group not in self._left or not self._idle[group] or len(self._touches[group]) > 1:
            return None
        hosts: Iterable[int] = self._left
        if self._touches[group] or self._nets_of[group]:
            shared = (self._nets[net] for net in self._nets_of[group])
            hosts = sorted(set.intersection(*filter(None, (self._touches[group], *shared))))
        return next((host for host in hosts if host != group and self._may_join(group, host)), None)

    def _may_join(self, group: int, host: int) -> bool:
        return not (self._allowed[:, host] & ~self._allowed[:, group]).any()

    def remove(self, group: int) -> None:
        """The group has joined another: nobody touches it any more."""
        del self._left[group]
        for each in self._touches[group]:
            self._touches[each].discard(group)
        for net in self._nets_of[group]:
            self._nets[net].discard(group)
            if len(self._nets[net]) == 1:
                (last,) = self._nets[net]
                self._nets_of[last].discard(net)
