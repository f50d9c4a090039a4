"""The problem of the searches: groups of operators that share a device, and splits, which give each group a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tessel_core.model import THROUGHPUT, InFlight, Placement
from tessel_core.model.checks import grouped, quotient, topological_order
from tessel_core.placement.problem import PlacementProblem

Floats = NDArray[np.float64]
Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class DeviceClass:
    """A class of interchangeable devices, with the costs of groups on them."""

    devices: tuple[int, ...]
    time: Floats
    """Time of each group. Infinite if the class does not support it."""
    pays: bool
    """Whether transfers load the devices."""
    capacity: float
    """Bytes, plus an allowance for rounding. Infinite if memory is not limited."""
    backward: Floats
    """Time of each group's backward operators. 0 if the class does not support the group."""
    loads_are_bytes: bool = False
    """Whether `time` has the bytes held with one micro-batch. Each further one then adds the `kept` bytes of groups."""


@dataclass(frozen=True)
class Net:
    """A tensor with the groups of its producer and consumers.

    It loads each device that pays for transfers and has some of these groups, but not all.
    """

    groups: tuple[int, ...]
    cost: float
    backward: float
    """Part of the cost from outputs of backward operators."""


@dataclass(frozen=True)
class Pipeline:
    """Groups 0 … n - 1 in topological order, to be divided into one stage per device along the flow.

    If placements need not be contiguous, there are no predecessors.
    """

    members: Groups
    """Operators of each group."""
    predecessors: Groups
    memory: Floats
    """Bytes of each group with the fewest micro-batches in flight."""
    kept: Floats
    """Bytes that each further micro-batch adds to each group. 0 if all stages hold the same number."""
    in_flight: InFlight
    classes: tuple[DeviceClass, ...]
    nets: tuple[Net, ...]
    branches: tuple[Groups, ...] = ()
    """Groups of each branch that must be kept apart, for each stretch of the flow with branches."""

    @cached_property
    def supported(self) -> NDArray[np.bool_]:
        """Whether each class supports each group, shaped (classes, groups)."""
        return np.isfinite([each.time for each in self.classes])

    @property
    def stages(self) -> int:
        """Largest number of stages: one per device."""
        return sum(len(each.devices) for each in self.classes)

    @property
    def most_memory(self) -> Floats:
        """Bytes of each group in the first stage, which holds the most micro-batches."""
        return self.memory_at(self.stages)

    def further_at(self, position: int) -> int:
        """Return how many micro-batches the stage at `position` from the end (1 is the last) holds, minus one."""
        return self.in_flight.held_at(position) - 1 if self.kept.any() else 0

    def memory_at(self, position: int) -> Floats:
        """Return the bytes of each group in the stage at `position` from the end."""
        return self.memory + self.further_at(position) * self.kept

    def time_at(self, kind: int, position: int) -> Floats:
        """Return the load of each group on a device of class `kind` in the stage at `position` from the end."""
        each = self.classes[kind]
        return each.time + self.further_at(position) * self.kept if each.loads_are_bytes else each.time

    @property
    def arcs(self) -> list[tuple[int, int]]:
        """Pairs (predecessor, group)."""
        return [(source, group) for group, before in enumerate(self.predecessors) for source in before]

    @cached_property
    def nets_of(self) -> Groups:
        """Nets of each group."""
        return grouped(len(self.members), ((group, e) for e, net in enumerate(self.nets) for group in net.groups))

    def placement(
        self, problem: PlacementProblem, device_of: Sequence[int], replicas: Sequence[tuple[int, ...]] = ()
    ) -> Placement:
        """Return the placement of each group on its device, or on the set of `replicas` whose first device it is."""
        on: list[tuple[int, ...]] = [()] * len(problem.graph.operators)
        sets = {devices[0]: devices for devices in replicas}
        for group, device in zip(self.members, device_of, strict=True):
            for operator in group:
                on[operator] = sets.get(device, (device,))
        return problem.placement(on)

    def parts(self, objective: str) -> tuple[Pipeline, ...]:
        """Return the parts of the objective, which is the sum over them of the largest load.

        There is one part for the throughput, else a forward and a backward part.
        """
        if objective == THROUGHPUT:
            return (self,)
        return self._part(forward=1.0, backward=0.0), self._part(forward=0.0, backward=1.0)

    def _part(self, *, forward: float, backward: float) -> Pipeline:
        def time(each: DeviceClass) -> Floats:
            shares = forward * (np.where(np.isfinite(each.time), each.time, 0.0) - each.backward)
            return np.where(np.isfinite(each.time), shares + backward * each.backward, np.inf)

        classes = [replace(each, time=time(each)) for each in self.classes]
        nets = [replace(net, cost=forward * (net.cost - net.backward) + backward * net.backward) for net in self.nets]
        return replace(self, classes=tuple(classes), nets=tuple(nets))


def within_memory(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline in which a class does not support groups that alone exceed its memory."""
    fitting = (np.where(pipeline.memory <= each.capacity, each.time, np.inf) for each in pipeline.classes)
    classes = tuple(replace(each, time=time) for each, time in zip(pipeline.classes, fitting, strict=True))
    return replace(pipeline, classes=classes)


def has_unplaceable(pipeline: Pipeline) -> bool:
    """Return whether some group is supported by no device."""
    return not pipeline.supported.any(axis=0).all()


EQUAL_LOADS = 1e-9
"""Loads that differ by less than this share are equal up to the order of addition and rounding."""


@dataclass(frozen=True)
class Split:
    """An assignment of groups to devices."""

    load: float
    """Objective: the largest load of a device, or the sum of the largest load of each pass."""
    device_of: tuple[int, ...]
    """Device of each group."""
    replicas: tuple[tuple[int, ...], ...] = ()
    """Sets of devices that share a stage as replicas. `device_of` has the first device of a set."""

    def held(self, pipeline: Pipeline) -> dict[int, int]:
        """Return the number of micro-batches that each used device holds, by `InFlight.held_by`.

        If several orders of the stages are possible, their memory decides, or their loads if these are bytes.
        """
        devices = sorted(set(self.device_of))
        on = [devices.index(device) for device in self.device_of]
        class_of = {device: each for each in pipeline.classes for device in each.devices}
        sums = np.zeros((2, len(devices)))
        for amounts, each in zip(sums, (pipeline.memory, pipeline.kept), strict=True):
            np.add.at(amounts, on, each)

        def excess(stage: int, count: int) -> float:
            each = class_of[devices[stage]]
            if np.isinf(each.capacity) and not each.loads_are_bytes:
                return -np.inf
            held = float(sums[0, stage] + (count - 1) * sums[1, stage])
            return held if each.loads_are_bytes else held - each.capacity

        before = quotient(len(devices), ((on[source], on[group]) for source, group in pipeline.arcs))
        return dict(zip(devices, pipeline.in_flight.held_by(before, excess, pipeline.stages), strict=True))

    def along_the_flow(self, pipeline: Pipeline, devices: Sequence[int]) -> list[int]:
        """Return `devices`, which must be those in use, in the order in which the flow visits them."""
        on = [devices.index(device) for device in self.device_of]
        before = quotient(len(devices), ((on[source], on[group]) for source, group in pipeline.arcs))
        return [devices[i] for i in topological_order(before)]


@dataclass(frozen=True)
class Best:
    """The best split that a search found, and a lower bound on the load of any split."""

    split: Split | None
    bound: float
    complete: bool
    """Whether the search covered all splits, so that none is better than `split`."""

    @property
    def is_optimal(self) -> bool:
        """Whether the load of the split meets the bound."""
        return self.split is not None and self.bound >= self.split.load * (1 - EQUAL_LOADS)
