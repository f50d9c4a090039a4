"""Orders along a pipeline's flow, whose prefixes make a small family of ideals that often holds the best chain."""

from __future__ import annotations

import heapq

from tessel_core.placement.stages import Pipeline


def promising_orders(pipeline: Pipeline) -> tuple[tuple[int, ...], ...]:
    """By number, depth first, and always the group next that leaves the least to transfer."""
    return tuple(range(len(pipeline.members))), _depth_first(pipeline), _least_cut(pipeline)


class _Front:
    """Groups whose predecessors are all done."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._waiting = [len(before) for before in pipeline.predecessors]
        self._after: list[list[int]] = [[] for _ in self._waiting]
        for group, before in enumerate(pipeline.predecessors):
            for each in before:
                self._after[each].append(group)
        self.first = [group for group, count in enumerate(self._waiting) if count == 0]

    def done(self, group: int) -> list[int]:
        """The groups that `group` was the last to wait for."""
        freed = []
        for after in self._after[group]:
            self._waiting[after] -= 1
            if self._waiting[after] == 0:
                freed.append(after)
        return freed


def _depth_first(pipeline: Pipeline) -> tuple[int, ...]:
    front = _Front(pipeline)
    ready, order = front.first[::-1], list[int]()
    while ready:
        order.append(ready.pop())
        ready += front.done(order[-1])[::-1]
    return tuple(order)


def _least_cut(pipeline: Pipeline) -> tuple[int, ...]:
    """Greedy: adding a group opens its nets that nobody has met and closes those that it completes."""
    front = _Front(pipeline)
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
