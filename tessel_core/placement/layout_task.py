"""The task of the layout searches: divide groups into the stages of a chain, with several stages per device.

A group is a set of operators that must share a device. A net is a tensor, with the groups of its producer and
consumers. A place is the position of a device in `LayoutTask.devices`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tessel_core.control import Control
from tessel_core.model import InFlight, Placement, StageLayout
from tessel_core.placement.groups import whole_pipeline
from tessel_core.placement.pipeline import DeviceClass, Floats, Pipeline
from tessel_core.placement.problem import PlacementProblem

_MIN_GAIN = 1e-12
"""A cut (the border between two stages) moves only if it improves a value by more than this fraction."""
_MAX_STEP_GROUPS = 64
"""Largest number of groups by which a cut moves at once."""


@dataclass(frozen=True)
class LayoutTask:
    """Groups 0 … n - 1 in topological order, to be divided into stages 0 … S - 1 along the flow.

    Arrays are shaped (groups,) unless a comment says more.
    """

    pipeline: Pipeline
    layout: StageLayout
    devices: tuple[int, ...]
    """The accelerators in order. A place is a position in this tuple."""
    static: Floats
    """Bytes that each group holds for any number of micro-batches in flight."""
    activation: Floats
    """Bytes that each group holds per micro-batch in flight."""
    in_flight: InFlight
    """Rule for the number of micro-batches in flight."""

    @classmethod
    def of(cls, problem: PlacementProblem) -> LayoutTask:
        """Build the task of a problem with a layout.

        Raises InputError if a group has no time on the kind of any device.
        """
        assert problem.layout is not None, "the problem asks for a layout"
        pipeline = whole_pipeline(problem, problem.transfer_costs)
        lasting, kept = problem.graph.lasting_bytes(problem.held.included), problem.graph.kept_bytes
        static = np.array([sum(lasting[i] for i in group) for group in pipeline.members], dtype=float)
        activation = np.array([sum(kept[i] for i in group) for group in pipeline.members], dtype=float)
        devices = tuple(i for i, device in enumerate(problem.devices) if not device.is_host)
        return cls(pipeline, problem.layout, devices, static, activation, problem.held)

    @property
    def stages(self) -> int:
        """Number of stages."""
        return self.layout.stages_per_device * len(self.devices)

    @cached_property
    def place_of(self) -> tuple[int, ...]:
        """For each stage, the place of its device."""
        return tuple(self.layout.device_of(stage, len(self.devices)) for stage in range(self.stages))

    @cached_property
    def stages_at(self) -> tuple[tuple[int, ...], ...]:
        """For each place, the numbers of its stages."""
        return tuple(self.layout.stages_of(place, len(self.devices)) for place in range(len(self.devices)))

    @cached_property
    def moments(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """For each place and each moment when its memory may peak, the micro-batches that each of its stages holds."""
        return tuple(
            self.layout.moments(place, len(self.devices), self.in_flight) for place in range(len(self.devices))
        )

    @cached_property
    def least_in_flight(self) -> tuple[float, ...]:
        """For each place, a number of micro-batches that bounds its memory from below, whatever the cut.

        If each group of the place held activations of this many micro-batches, the place would hold at most its true
        peak. The number is the larger of two: the largest, over moments, of the least number in a stage; and the least,
        over stages, of the mean number over moments.
        """
        return tuple(max(*map(min, each), float(np.mean(each, axis=0).min())) for each in self.moments)

    @cached_property
    def kinds(self) -> tuple[tuple[int, ...], ...]:
        """Sets of groups with equal times and bytes, such as equal layers.

        A group with only one possible stage forms a set alone.
        """
        kinds: dict[tuple[float, ...], list[int]] = {}
        for v, costs in enumerate(np.vstack([self.time, self.static, self.activation]).T.tolist()):
            first, last = self.windows[v]
            kinds.setdefault(tuple(costs) if first < last else (v,), []).append(v)
        return tuple(map(tuple, kinds.values()))

    @cached_property
    def windows(self) -> tuple[tuple[int, int], ...]:
        """First and last possible stage of each group. All earlier and later stages must be able to get a group."""
        count = len(self.pipeline.members)
        before = [0] * count
        after = [0] * count
        for v, sources in enumerate(self.pipeline.predecessors):
            for u in sources:
                before[v] |= before[u] | 1 << u
        for v in reversed(range(count)):
            for u in self.pipeline.predecessors[v]:
                after[u] |= after[v] | 1 << v
        spare = count - self.stages
        return tuple(
            (max(0, early.bit_count() - spare), min(self.stages - 1, count - 1 - late.bit_count()))
            for early, late in zip(before, after, strict=True)
        )

    @cached_property
    def class_at(self) -> tuple[DeviceClass, ...]:
        """The `DeviceClass` of each place."""
        class_of = {device: each for each in self.pipeline.classes for device in each.devices}
        return tuple(class_of[device] for device in self.devices)

    @cached_property
    def time(self) -> Floats:
        """Times, shaped (places, groups). Infinite if a device does not support a group."""
        return np.array([each.time for each in self.class_at])

    def placement(self, problem: PlacementProblem, stage_of: Sequence[int]) -> Placement:
        """Return the placement that has each group in its stage. `stage_of` has the stage of each group."""
        on = [(self.devices[self.place_of[stage]],) for stage in range(self.stages)]
        stages = [0] * len(problem.graph.operators)
        for group, stage in zip(self.pipeline.members, stage_of, strict=True):
            for operator in group:
                stages[operator] = stage
        return problem.placement([on[stage] for stage in stages], stages=stages)

    def loads(self, stage_of: Sequence[int]) -> Floats:
        """Return the load of each place: the time of its groups, plus the cost of the nets it shares with other places.

        A load is infinite if the device does not support one of the groups.
        """
        at = np.array(self.place_of)[list(stage_of)]
        loads = np.zeros(len(self.devices))
        np.add.at(loads, at, self.time[at, np.arange(len(at))])
        for net in self.pipeline.nets:
            touched = set(at[list(net.groups)].tolist())
            for place in touched if len(touched) > 1 else ():
                loads[place] += net.cost
        return loads

    def held(self, stage_of: Sequence[int]) -> Floats:
        """Return the peak bytes of each place. `stage_of` has the stage of each group."""
        static, activation = np.zeros(self.stages), np.zeros(self.stages)
        np.add.at(static, list(stage_of), self.static)
        np.add.at(activation, list(stage_of), self.activation)
        return self.held_by(static, activation)

    def held_by(self, static: Floats, activation: Floats) -> Floats:
        """Return the peak bytes of each place.

        `static` and `activation` have the bytes of each stage, shaped (stages,).
        """
        counts, first = self._counts_at_moments
        always = np.bincount(self.place_of, static, len(self.devices))
        return np.asarray(always + np.maximum.reduceat(counts @ activation, first))

    @cached_property
    def _counts_at_moments(self) -> tuple[Floats, NDArray[np.int64]]:
        """Micro-batches held, shaped (moments, stages), and the first moment of each place.

        Moments are sorted by place.
        """
        rows, first = list[Floats](), list[int]()
        for stages, moments in zip(self.stages_at, self.moments, strict=True):
            first.append(len(rows))
            for moment in moments:
                rows.append(np.zeros(self.stages))
                rows[-1][list(stages)] = moment
        return np.array(rows), np.array(first)

    @cached_property
    def capacity(self) -> Floats:
        """Capacity of each place in bytes, plus an allowance for rounding."""
        return np.array([each.capacity for each in self.class_at])

    def fits(self, stage_of: Sequence[int]) -> bool:
        """Return whether no device holds more than its capacity."""
        return bool((self.held(stage_of) <= self.capacity).all())


def cut_evenly(task: LayoutTask, control: Control) -> tuple[int, ...]:
    """Cut the order of groups into stages, and return the stage of each group.

    The first cuts give equal times. Then single cuts move as long as that gives a smaller excess over capacities, or
    the same excess and a smaller largest load, or the same of both and a smaller sum of squared loads. There must be at
    least as many groups as stages.
    """
    cuts = _Cuts(task)
    step = _MAX_STEP_GROUPS
    while step and not control.stopped:
        moved = [cuts.move(c, way * step) for c in range(1, task.stages) for way in (-1, 1)]
        step = step if any(moved) else step // 2
    return cuts.stage_of


class _Cuts:
    """Cuts of the order of groups into stages.

    A cut is the number of the first group of a stage. The last cut is the number of groups.
    """

    def __init__(self, task: LayoutTask) -> None:
        self._task = task
        self._groups = task.time.shape[1]
        time = np.where(np.isfinite(task.time), task.time, 0.0)
        self._time = _summed(time)
        self._barred = _summed((~np.isfinite(task.time)).astype(float))
        self._static, self._activation = _summed(task.static), _summed(task.activation)
        self._cost = np.zeros(self._groups + 1)
        for net in task.pipeline.nets:
            self._cost[min(net.groups) + 1 : max(net.groups) + 1] += net.cost
        even = np.searchsorted(self._time[0], np.linspace(0, self._time[0][-1], task.stages + 1))
        low = np.arange(task.stages + 1)
        self._at = np.clip(np.maximum.accumulate(even - low) + low, low, self._groups - task.stages + low)
        self._at[-1] = self._groups
        self._place = np.array(task.place_of)
        self._apart = np.concatenate([[False], self._place[1:] != self._place[:-1], [False]])
        self._value = self._measure()

    @property
    def stage_of(self) -> tuple[int, ...]:
        """Stage of each group."""
        return tuple(np.repeat(np.arange(self._task.stages), np.diff(self._at)).tolist())

    def move(self, cut: int, by: int) -> bool:
        """Move a cut by `by` groups if that is an improvement. Return whether it was moved."""
        before = self._at[cut]
        if not self._at[cut - 1] < before + by < self._at[cut + 1]:
            return False
        self._at[cut] += by
        value = self._measure()
        for now, was in zip(value, self._value, strict=True):
            if abs(now - was) > _MIN_GAIN * max(abs(now), abs(was)):
                if now < was:
                    self._value = value
                    return True
                break
        self._at[cut] = before
        return False

    def _measure(self) -> tuple[float, float, float]:
        """Return three values:

        unsupported groups plus excess bytes, the largest load, and the sum of the squared loads.
        """
        task, place, first, last = self._task, self._place, self._at[:-1], self._at[1:]
        load = self._time[place, last] - self._time[place, first]
        paid = np.where(self._apart, self._cost[self._at], 0.0)
        loads = np.bincount(place, load + paid[:-1] + paid[1:], len(task.devices))
        barred = float((self._barred[place, last] - self._barred[place, first]).sum())
        excess = task.held_by(*(each[last] - each[first] for each in (self._static, self._activation))) - task.capacity
        return barred + float(np.maximum(excess, 0.0).sum()), float(loads.max()), float((loads * loads).sum())


def _summed(values: Floats) -> Floats:
    """Return the sums of the first 0 … n entries along the last axis."""
    zero = np.zeros((*values.shape[:-1], 1))
    return np.asarray(np.concatenate([zero, values.cumsum(axis=-1)], axis=-1))
