"""Layouts with several stages per device as the searches see them: groups into the stages of a chain."""

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

_LESS = 1e-12
"""A cut must move for more than this share of the largest load."""
_LONGEST_STEP = 64
"""Groups that a cut moves over at once, at most."""


@dataclass(frozen=True)
class LayoutTask:
    """Groups 0 … n - 1, predecessors before successors, that are to be cut into stages 0 … S - 1 along the flow."""

    pipeline: Pipeline
    layout: StageLayout
    devices: tuple[int, ...]
    """The accelerators in their order; places below are positions here."""
    static: Floats
    """Per group, the bytes that it always holds."""
    activation: Floats
    """Per group, the bytes that it holds for each micro-batch in flight."""
    in_flight: InFlight
    """How many micro-batches are in flight."""

    @classmethod
    def of(cls, problem: PlacementProblem) -> LayoutTask:
        """The task of a problem that asks for a layout.

        Raises InputError where a group has no time on any device's kind.
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
        """The number of stages."""
        return self.layout.stages_per_device * len(self.devices)

    @cached_property
    def place_of(self) -> tuple[int, ...]:
        """Per stage, the place of its device."""
        return tuple(self.layout.device_of(stage, len(self.devices)) for stage in range(self.stages))

    @cached_property
    def stages_at(self) -> tuple[tuple[int, ...], ...]:
        """Per place, the stages of its device."""
        return tuple(self.layout.stages_of(place, len(self.devices)) for place in range(len(self.devices)))

    @cached_property
    def moments(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Per place, the micro-batches that each of its stages holds in the fullest moments."""
        return tuple(
            self.layout.moments(place, len(self.devices), self.in_flight) for place in range(len(self.devices))
        )

    @cached_property
    def least_in_flight(self) -> tuple[float, ...]:
        """Per place, a number of micro-batches that all of its stages hold at one moment, or in the mean over moments.

        The fullest moment holds no less than that, so this bounds the memory of groups wherever they are cut.
        """
        found = list[float]()
        for moments in self.moments:
            found.append(max(*map(min, moments), float(np.mean(moments, axis=0).min())))
        return tuple(found)

    @cached_property
    def kinds(self) -> tuple[tuple[int, ...], ...]:
        """Groups with the same times and bytes, such as equal layers; one that has only one stage to go to is alone."""
        found: dict[tuple[float, ...], list[int]] = {}
        for v, costs in enumerate(np.vstack([self.time, self.static, self.activation]).T.tolist()):
            first, last = self.windows[v]
            found.setdefault(tuple(costs) if first < last else (v,), []).append(v)
        return tuple(map(tuple, found.values()))

    @cached_property
    def windows(self) -> tuple[tuple[int, int], ...]:
        """Per group, the first and the last stage that it may be in, so that enough groups are left for the others."""
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
        """Per place, the class of its device."""
        class_of = {device: each for each in self.pipeline.classes for device in each.devices}
        return tuple(class_of[device] for device in self.devices)

    @cached_property
    def time(self) -> Floats:
        """Shape (places, groups); infinite where a group is not supported."""
        return np.array([each.time for each in self.class_at])

    def placement(self, problem: PlacementProblem, stage_of: Sequence[int]) -> Placement:
        """The placement that has each group in its stage."""
        on = [(self.devices[self.place_of[stage]],) for stage in range(self.stages)]
        found = [0] * len(problem.graph.operators)
        for group, stage in zip(self.pipeline.members, stage_of, strict=True):
            for operator in group:
                found[operator] = stage
        return problem.placement([on[stage] for stage in found], stages=found)

    def loads(self, stage_of: Sequence[int]) -> Floats:
        """Per place, the time of its groups and the cost of the nets that its device has some groups of, but not all.

        Infinite where a group is not supported.
        """
        at = np.array(self.place_of)[list(stage_of)]
        found = np.zeros(len(self.devices))
        np.add.at(found, at, self.time[at, np.arange(len(at))])
        for net in self.pipeline.nets:
            touched = set(at[list(net.groups)].tolist())
            for place in touched if len(touched) > 1 else ():
                found[place] += net.cost
        return found

    def held(self, stage_of: Sequence[int]) -> Floats:
        """Per place, the bytes in the fullest moment."""
        static, activation = np.zeros(self.stages), np.zeros(self.stages)
        np.add.at(static, list(stage_of), self.static)
        np.add.at(activation, list(stage_of), self.activation)
        return self.held_by(static, activation)

    def held_by(self, static: Floats, activation: Floats) -> Floats:
        """As `held`, for the bytes of each stage."""
        counts, first = self._counts_at_moments
        always = np.bincount(self.place_of, static, len(self.devices))
        return np.asarray(always + np.maximum.reduceat(counts @ activation, first))

    @cached_property
    def _counts_at_moments(self) -> tuple[Floats, NDArray[np.int64]]:
        """Micro-batches per moment and stage, the moments place by place, and the first moment of each place."""
        rows, first = list[Floats](), list[int]()
        for stages, moments in zip(self.stages_at, self.moments, strict=True):
            first.append(len(rows))
            for moment in moments:
                rows.append(np.zeros(self.stages))
                rows[-1][list(stages)] = moment
        return np.array(rows), np.array(first)

    @cached_property
    def capacity(self) -> Floats:
        """Per place, in bytes, a rounding error added."""
        return np.array([each.capacity for each in self.class_at])

    def fits(self, stage_of: Sequence[int]) -> bool:
        """Whether no device holds more than its capacity."""
        return bool((self.held(stage_of) <= self.capacity).all())


def cut_evenly(task: LayoutTask, control: Control) -> tuple[int, ...]:
    """Stages per group: the order of the groups in pieces of equal time, improved by moving one cut at a time.

    What exceeds a capacity counts before the largest load, and that before the sum of squares.  There must be as many
    groups as stages, or more.
    """
    cuts = _Cuts(task)
    step = _LONGEST_STEP
    while step and not control.stopped:
        moved = [cuts.move(c, way * step) for c in range(1, task.stages) for way in (-1, 1)]
        step = step if any(moved) else step // 2
    return cuts.stage_of


class _Cuts:
    """The first group of each stage, and at the end the number of groups."""

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
        """Per group."""
        return tuple(np.repeat(np.arange(self._task.stages), np.diff(self._at)).tolist())

    def move(self, cut: int, by: int) -> bool:
        """Move a cut if that is better; whether it was."""
        before = self._at[cut]
        if not self._at[cut - 1] < before + by < self._at[cut + 1]:
            return False
        self._at[cut] += by
        value = self._measure()
        for now, was in zip(value, self._value, strict=True):
            if abs(now - was) > _LESS * max(abs(now), abs(was)):
                if now < was:
                    self._value = value
                    return True
                break
        self._at[cut] = before
        return False

    def _measure(self) -> tuple[float, float, float]:
        """What is barred or exceeds a capacity, the largest load, and the sum of squares."""
        task, place, first, last = self._task, self._place, self._at[:-1], self._at[1:]
        load = self._time[place, last] - self._time[place, first]
        paid = np.where(self._apart, self._cost[self._at], 0.0)
        loads = np.bincount(place, load + paid[:-1] + paid[1:], len(task.devices))
        barred = float((self._barred[place, last] - self._barred[place, first]).sum())
        excess = task.held_by(*(each[last] - each[first] for each in (self._static, self._activation))) - task.capacity
        return barred + float(np.maximum(excess, 0.0).sum()), float(loads.max()), float((loads * loads).sum())


def _summed(values: Floats) -> Floats:
    """Sums of the first 0 … n entries along the last axis."""
    zero = np.zeros((*values.shape[:-1], 1))
    return np.asarray(np.concatenate([zero, values.cumsum(axis=-1)], axis=-1))
