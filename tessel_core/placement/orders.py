"""Orders along the flow, whose prefixes make a small family of ideals that often holds the best chain."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from tessel_core.placement.pipeline import Pipeline


def promising_orders(pipeline: Pipeline) -> tuple[tuple[int, ...], ...]:
    """By number, depth first, and always the group next that leaves the least to transfer."""
    count = len(pipeline.members)
    return (
        tuple(range(count)),
        depth_first(count, pipeline.arcs, lambda ready: ready[::-1]),
        _least_cut(pipeline),
    )


def depth_first(
    count: int, arcs: Iterable[tuple[int, int]], arrange: Callable[[list[int]], list[int]]
) -> tuple[int, ...]:
    """Vertices 0 … `count` - 1 after their predecessors, and soon after the last of them; those on cycles are left out.

    `arrange` puts vertices that become ready at the same time in order, the next one last.
    """
    front = _Front(count, arcs)
    ready, order = arrange(front.first), list[int]()
    while ready:
        order.append(ready.pop())
        ready += arrange(front.done(order[-1]))
    return tuple(order)


class _Front:
    """Vertices whose predecessors are all done."""

    def __init__(self, count: int, arcs: Iterable[tuple[int, int]]) -> None:
        self._waiting = [0] * count
        self._after: list[list[int]] = [[] for _ in range(count)]
        for source, target in arcs:
            self._waiting[target] += 1
            self._after[source].append(target)
        self.first = [vertex for vertex, waiting in enumerate(self._waiting) if waiting == 0]

    def done(self, vertex: int) -> list[int]:
        """The vertices that `vertex` was the last to wait for."""
        freed = []
        for after in self._after[vertex]:
            self._waiting[after] -= 1
            if self._waiting[after] == 0:
                freed.append(after)
        return freed


def _least_cut(pipeline: Pipeline) -> tuple[int, ...]:
    """Greedy: adding a group opens its nets that nobody has met and closes those that it completes."""
    front = _Front(len(pipeline.members), pipeline.arcs)
    nets_of: list[list[int]] = [[] for _ in pipeline.members]
    for i, net in enumerate(pipeline.nets):
        for group in net.groups:
            nets_of[group].append(i)
    missing = [len(net.groups) for net in pipeline.nets]

    def change(group: int) -> float:
        opened = sum(pipeline.nets[i].cost for i in nets_of[group] if missing[i] == len(pipeline.nets[i].groups))
        return opened - sum(pipeline.nets[i].cost for i in nets_of[group] if missing[i] == 1)

    ready, order, age = [(change(group), 0, group) for group in front.first], list[int](), 0
    heapq.heapify(ready)
    while ready:
        value, _, group = heapq.heappop(ready)
        now = change(group)
        # A value grows stale as nets open; it only falls, except where a net that it would complete has grown.
        if now != value:
            heapq.heappush(ready, (now, -age, group))
            continue
        order.append(group)
        age += 1
        for i in nets_of[group]:
            missing[i] -= 1
        for freed in front.done(group):
            heapq.heappush(ready, (change(freed), -age, freed))
    return tuple(order)
