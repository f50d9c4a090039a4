"""The problem of the searches: groups of operators, and splits of the groups over devices.

A group is a set of operators that must share a device. A split gives each group a device. A net is a tensor, with the
groups of its producer and its consumers. The load of a device is the time of its groups, plus the costs of the nets
that other devices share with it. A class has interchangeable devices. The position of a stage counts from the end: the
last stage has position 1. Times are in the graph's unit, and memory is in bytes.
"""

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
    """Interchangeable devices, with the time of each group on any of them. Arrays are shaped (groups,)."""

    devices: tuple[int, ...]
    time: Floats
    """Time of each group. Infinite if the devices do not support the group."""
    pays: bool
    """Whether the costs of nets add to the loads of these devices. They never add to the load of a host."""
    capacity: float
    """Memory of each device in bytes, plus an allowance for rounding. Infinite if memory is not limited."""
    backward: Floats
    """Time of each group's backward operators, which `time` includes. 0 if the devices do not support the group."""
    loads_are_bytes: bool = False
    """Whether loads are bytes instead of times.

    If so, `time` has the bytes of each group for one micro-batch in flight, and each further micro-batch adds
    `Pipeline.kept`.
    """


@dataclass(frozen=True)
class Net:
    """A tensor with the groups of its producer and consumers.

    Its cost adds to the load of each device that has at least one of these groups but not all, if the device's class
    pays for transfers.
    """

    groups: tuple[int, ...]
    cost: float
    backward: float
    """Part of `cost` that comes from the outputs of backward operators."""


@dataclass(frozen=True)
class Pipeline:
    """Groups 0 … n - 1 in topological order, to be divided into one stage per device along the flow.

    If any sets of groups may share a device, the groups have no predecessors. Arrays are shaped (groups,).
    """

    members: Groups
    """Operators of each group, as indices."""
    predecessors: Groups
    memory: Floats
    """Bytes of each group in a stage that holds one micro-batch. If `kept` is 0, every stage holds these bytes."""
    kept: Floats
    """Bytes that each further micro-batch adds to each group. 0 if all stages hold the same number of micro-batches."""
    in_flight: InFlight
    classes: tuple[DeviceClass, ...]
    nets: tuple[Net, ...]
    branches: tuple[Groups, ...] = ()
    """For each stretch of the flow with parallel branches that must be kept apart, the groups of each branch."""

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
        """Bytes of each group in the first stage, which holds the most micro-batches, shaped (groups,)."""
        return self.memory_at(self.stages)

    def further_at(self, position: int) -> int:
        """Return the number of micro-batches, beyond the first, that a stage holds. 0 if `kept` is 0.

        `position` counts from the end, where the last stage has position 1.
        """
        return self.in_flight.held_at(position) - 1 if self.kept.any() else 0

    def memory_at(self, position: int) -> Floats:
        """Return the bytes of each group in the stage at `position` from the end, shaped (groups,)."""
        return self.memory + self.further_at(position) * self.kept

    def time_at(self, kind: int, position: int) -> Floats:
        """Return the load of each group alone in the stage at `position` from the end, on a device of class `kind`."""
        each = self.classes[kind]
        return each.time + self.further_at(position) * self.kept if each.loads_are_bytes else each.time

    @property
    def arcs(self) -> list[tuple[int, int]]:
        """Pairs (predecessor, group), for every predecessor of every group."""
        return [(source, group) for group, before in enumerate(self.predecessors) for source in before]

    @cached_property
    def nets_of(self) -> Groups:
        """Indices of the nets of each group."""
        return grouped(len(self.members), ((group, e) for e, net in enumerate(self.nets) for group in net.groups))

    def placement(
        self, problem: PlacementProblem, device_of: Sequence[int], replicas: Sequence[tuple[int, ...]] = ()
    ) -> Placement:
        """Return the placement in which each group is on the device that `device_of` gives.

        `replicas` has sets of devices that share a stage. Groups on the first device of a set are on all devices of the
        set.
        """
        on: list[tuple[int, ...]] = [()] * len(problem.graph.operators)
        sets = {devices[0]: devices for devices in replicas}
        for group, device in zip(self.members, device_of, strict=True):
            for operator in group:
                on[operator] = sets.get(device, (device,))
        return problem.placement(on)

    def parts(self, objective: str) -> tuple[Pipeline, ...]:
        """Return a pipeline for each part of the objective, which is the sum over the parts of the largest load.

        The throughput has one part. Other objectives have two: the forward loads and the backward loads.
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
    """Return the pipeline in which a class does not support groups that alone exceed the memory of a device."""
    fitting = (np.where(pipeline.memory <= each.capacity, each.time, np.inf) for each in pipeline.classes)
    classes = tuple(replace(each, time=time) for each, time in zip(pipeline.classes, fitting, strict=True))
    return replace(pipeline, classes=classes)


def has_unplaceable(pipeline: Pipeline) -> bool:
    """Return whether some group is supported by no device."""
    return not pipeline.supported.any(axis=0).all()


EQUAL_LOADS = 1e-9
"""Two loads count as equal if they differ by less than this fraction, because sums of floats are rounded."""


@dataclass(frozen=True)
class Split:
    """An assignment of groups to devices."""

    load: float
    """Value of the objective:

    the largest load, or the sum of the largest forward load and the largest backward load.
    """
    device_of: tuple[int, ...]
    """Device of each group."""
    replicas: tuple[tuple[int, ...], ...] = ()
    """Sets of devices that share a stage.

    For the groups of such a stage, `device_of` has the first device of the set.
    """

    def held(self, pipeline: Pipeline) -> dict[int, int]:
        """Return a map from each used device to the number of micro-batches that it holds.

        If several orders of the stages follow the flow, `InFlight.held_by` chooses the order that exceeds capacities
        least (or whose largest load is least, if loads are bytes).
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
        """Return `devices` in an order along the flow. They must be the devices that the split uses."""
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
