"""Splits that change by moving one group at a time.

A group is a set of operators that must share a device. A split gives each group a device. A net is a tensor, with the
groups of its producer and consumers. The objective is a sum over parts: see `Pipeline.parts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tessel_core.placement.pipeline import Pipeline, Split


def measured(parts: Sequence[Pipeline], device_of: Sequence[int]) -> Split:
    """Return the split with its load: the sum, over the parts of the objective, of the largest load of a device."""
    return Moves([_in_place(part, device_of) for part in parts], device_of).split


def fits_memory(parts: Sequence[Pipeline], device_of: Sequence[int]) -> bool:
    """Return whether no device exceeds its capacity."""
    moves = Moves([_in_place(parts[0], device_of)], device_of)
    return not any(map(moves.overfull, moves.devices))


def _in_place(pipeline: Pipeline, device_of: Sequence[int]) -> Pipeline:
    """Return the pipeline in which each group has the memory that it needs at its stage's position in a split."""
    if not pipeline.kept.any():
        return pipeline
    held = Split(0.0, tuple(device_of)).held(pipeline)
    further = np.array([held[device] - 1 for device in device_of]) * pipeline.kept
    classes = [
        replace(each, time=each.time + further if each.loads_are_bytes else each.time) for each in pipeline.classes
    ]
    none = np.zeros_like(further)
    return replace(pipeline, memory=pipeline.memory + further, kept=none, classes=tuple(classes))


def devices_for(pipeline: Pipeline) -> list[list[int]]:
    """Return, for each group, the devices that support it."""
    rows = zip(pipeline.classes, pipeline.supported, strict=True)
    devices = sorted((device, supported.tolist()) for each, supported in rows for device in each.devices)
    return [[device for device, supported in devices if supported[v]] for v in range(len(pipeline.members))]


class Moves:
    """A split with the loads and the memory of its devices, updated at each move.

    Loads are kept per part of the objective.

    Memory is counted for the fewest micro-batches in flight, so it does not depend on the positions of stages.
    held[e][d] is the number of groups of net e on device d.

    Invariant: net e adds to the load of device d if and only if d pays for transfers and held[e][d] is above 0 and
    below the number of groups of e.
    """

    def __init__(self, parts: Sequence[Pipeline], device_of: Sequence[int]) -> None:
        pipeline = parts[0]
        class_of = {d: each for each in pipeline.classes for d in each.devices}
        self.devices = sorted(class_of)
        self.on = list(device_of)
        self.memory = [0.0] * len(self.devices)
        self.load = [[0.0] * len(self.devices) for _ in parts]
        classes = [pipeline.classes.index(class_of[d]) for d in self.devices]
        self._times = [np.array([part.classes[c].time for c in classes]).T.tolist() for part in parts]
        self._costs = [[net.cost for net in part.nets] for part in parts]
        self._sizes = [float(size) for size in pipeline.memory]
        self._capacity = [class_of[d].capacity for d in self.devices]
        self._pays = [class_of[d].pays for d in self.devices]
        self.nets_of, self.groups_of = pipeline.nets_of, [net.groups for net in pipeline.nets]
        self.allowed = devices_for(pipeline)
        self._held = [[0] * len(self.devices) for _ in self.groups_of]
        self._fill()

    def _fill(self) -> None:
        for v, d in enumerate(self.on):
            self.memory[d] += self._sizes[v]
            for load, times in zip(self.load, self._times, strict=True):
                load[d] += times[v][d]
            for e in self.nets_of[v]:
                self._held[e][d] += 1
        for e, held in enumerate(self._held):
            for d, count in enumerate(held):
                if self._pays[d] and 0 < count < len(self.groups_of[e]):
                    for load, costs in zip(self.load, self._costs, strict=True):
                        load[d] += costs[e]

    @property
    def objective(self) -> float:
        """Sum, over the parts of the objective, of the largest load. Rounding errors add up from move to move."""
        return sum(map(max, self.load))

    @property
    def split(self) -> Split:
        """The current split."""
        return Split(self.objective, tuple(self.on))

    def fits(self, group: int, device: int) -> bool:
        """Return whether the device has memory for one more group."""
        return self.memory[device] + self._sizes[group] <= self._capacity[device]

    def overfull(self, device: int) -> bool:
        """Return whether the device exceeds its capacity."""
        return self.memory[device] > self._capacity[device]

    def holds(self, group: int) -> bool:
        """Return whether the group holds any memory."""
        return self._sizes[group] > 0

    @property
    def overflow(self) -> float:
        """Bytes that all devices together hold above their capacities. Rounding errors add up from move to move."""
        return sum([max(0.0, held - most) for held, most in zip(self.memory, self._capacity, strict=True)])

    def shift(self, group: int, device: int) -> None:
        """Move a group to a device other than its own."""
        source = self.on[group]
        self.on[group] = device
        self.memory[source] -= self._sizes[group]
        self.memory[device] += self._sizes[group]
        freed, opened = self._crossing_changes(group, source, device)
        for load, times, costs in zip(self.load, self._times, self._costs, strict=True):
            load[source] += sum([sign * costs[e] for e, sign in freed]) - times[group][source]
            load[device] += sum([sign * costs[e] for e, sign in opened]) + times[group][device]

    def after(self, group: int, device: int) -> tuple[float, float]:
        """Return the overflow and the objective that the split would have after moving `group` to `device`."""
        source = self.on[group]
        self.shift(group, device)
        values = self.overflow, self.objective
        self.shift(group, source)
        return values

    def _crossing_changes(self, group: int, source: int, device: int) -> tuple[list[tuple[int, int]], ...]:
        """Return the nets that start or stop to load `source`, and the nets that start or stop to load `device`.

        `group` moves from `source` to `device`. Each list has pairs (net, sign). The sign is 1 if the net starts to
        load the device, and -1 if the net stops. The counts of groups per net and device are updated.
        """
        freed, opened = list[tuple[int, int]](), list[tuple[int, int]]()
        for e in self.nets_of[group]:
            held, size = self._held[e], len(self.groups_of[e])
            change = (held[source] > 1) - (held[source] < size)
            if change and self._pays[source]:
                freed.append((e, change))
            change = (held[device] + 1 < size) - (held[device] > 0)
            if change and self._pays[device]:
                opened.append((e, change))
            held[source] -= 1
            held[device] += 1
        return freed, opened
