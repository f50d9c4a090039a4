"""The problem as the searches see it: groups of operators that move together, and the splits of them onto devices."""

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
    """Devices that can take each other's place."""

    devices: tuple[int, ...]
    time: Floats
    """Per group; infinite where it is not supported."""
    pays: bool
    """Whether transfers load the device."""
    capacity: float
    """Bytes, a rounding error added; infinite where memory is not limited."""
    backward: Floats
    """Per group, the part of its time that backward operators take; 0 where it is not supported."""
    loads_are_bytes: bool = False
    """Whether times are bytes held by one micro-batch: each further one then adds the `kept` of its groups."""


@dataclass(frozen=True)
class Net:
    """A tensor's producer and its consumers, as groups: it costs every paying device that has some but not all."""

    groups: tuple[int, ...]
    cost: float
    backward: float
    """The part of the cost that outputs of backward operators make."""


@dataclass(frozen=True)
class Pipeline:
    """Groups 0 … n - 1, predecessors before successors, to be cut into one stage a device along the flow.

    Where placements need not be contiguous, there are no predecessors.
    """

    members: Groups
    """Per group, its operators."""
    predecessors: Groups
    memory: Floats
    """Per group, the bytes that it holds with the fewest micro-batches in flight."""
    kept: Floats
    """Per group, the bytes that each further micro-batch adds; 0 where all stages hold equally many."""
    in_flight: InFlight
    classes: tuple[DeviceClass, ...]
    nets: tuple[Net, ...]
    branches: tuple[Groups, ...] = ()
    """Per stretch of the flow, branches that must be apart: of each, its groups."""

    @cached_property
    def supported(self) -> NDArray[np.bool_]:
        """Whether a class supports a group, shape (classes, groups)."""
        return np.isfinite([each.time for each in self.classes])

    @property
    def stages(self) -> int:
        """The most stages there may be: one on each device."""
        return sum(len(each.devices) for each in self.classes)

    @property
    def most_memory(self) -> Floats:
        """Per group, the bytes that it holds in the first of all stages."""
        return self.memory_at(self.stages)

    def further_at(self, position: int) -> int:
        """Micro-batches besides the first that the stage at `position` from the end holds."""
        return self.in_flight.held_at(position) - 1 if self.kept.any() else 0

    def memory_at(self, position: int) -> Floats:
        """Per group, the bytes that it holds in the stage at `position` from the end."""
        return self.memory + self.further_at(position) * self.kept

    def time_at(self, kind: int, position: int) -> Floats:
        """Per group, its load on a device of class `kind` in the stage at `position` from the end."""
        each = self.classes[kind]
        return each.time + self.further_at(position) * self.kept if each.loads_are_bytes else each.time

    @property
    def arcs(self) -> list[tuple[int, int]]:
        """Pairs of groups, the first a predecessor of the second."""
        return [(source, group) for group, before in enumerate(self.predecessors) for source in before]

    @cached_property
    def nets_of(self) -> Groups:
        """Per group, the nets that it is in."""
        return grouped(len(self.members), ((group, e) for e, net in enumerate(self.nets) for group in net.groups))

    def placement(
        self, problem: PlacementProblem, device_of: Sequence[int], replicas: Sequence[tuple[int, ...]] = ()
    ) -> Placement:
        """The placement that puts each group on its device, or on the set of `replicas` that begins with it."""
        found: list[tuple[int, ...]] = [()] * len(problem.graph.operators)
        sets = {devices[0]: devices for devices in replicas}
        for group, device in zip(self.members, device_of, strict=True):
            for operator in group:
                found[operator] = sets.get(device, (device,))
        return problem.placement(found)

    def parts(self, objective: str) -> tuple[Pipeline, ...]:
        """The objective is the sum over these of the largest load: one, or its forward and its backward part."""
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
    """The same, with groups that alone exceed a device's memory not supported there."""
    fitting = (np.where(pipeline.memory <= each.capacity, each.time, np.inf) for each in pipeline.classes)
    classes = tuple(replace(each, time=time) for each, time in zip(pipeline.classes, fitting, strict=True))
    return replace(pipeline, classes=classes)


def has_unplaceable(pipeline: Pipeline) -> bool:
    """Whether no device supports some group."""
    return not pipeline.supported.any(axis=0).all()


EQUAL_LOADS = 1e-9
"""Loads that differ by less, relatively, are sums of the same floats in another order, or of rounded ones."""


@dataclass(frozen=True)
class Split:
    """Groups onto devices."""

    load: float
    """The objective: the largest load of a device, or the sum of the largest of each pass."""
    device_of: tuple[int, ...]
    """Per group."""
    replicas: tuple[tuple[int, ...], ...] = ()
    """Sets of devices that share a stage, of which `device_of` names the first."""

    def held(self, pipeline: Pipeline) -> dict[int, int]:
        """Per device in use, how many micro-batches it holds, as `InFlight.held_by` has it.

        An order of stages that may change places is chosen by their memory, or by loads where these are bytes.
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
        """The `devices`, which are those in use, in the order in which the flow passes through them."""
        on = [devices.index(device) for device in self.device_of]
        before = quotient(len(devices), ((on[source], on[group]) for source, group in pipeline.arcs))
        return [devices[i] for i in topological_order(before)]


@dataclass(frozen=True)
class Best:
    """The best split that a search found, and the least load that any may have; proved where they meet."""

    split: Split | None
    bound: float
    complete: bool
    """Whether the search ended by itself, having seen all splits: then there is none better than `split`."""

    @property
    def is_optimal(self) -> bool:
        """Whether the load of the split meets the bound."""
        return self.split is not None and self.bound >= self.split.load * (1 - EQUAL_LOADS)
