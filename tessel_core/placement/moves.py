"""Splits that change by one group at a time, and simulated annealing by such moves and swaps."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from tessel_core.control import Control
from tessel_core.placement.pipeline import Pipeline, Split

_POWER = 12
"""Of the norm of the loads that is minimised: most moves leave the largest load alone."""
_HOT, _COLD = 5e-4, 1e-5
"""First and last temperature, as shares of the objective."""
_REPORT_EVERY = 4096
"""Steps between two reports, and two looks at the clock."""


def measured(parts: Sequence[Pipeline], device_of: Sequence[int]) -> Split:
    """The split with its load, which is the sum over the parts of the largest load of a device."""
    return Moves([_in_place(part, device_of) for part in parts], device_of).split


def fits_memory(parts: Sequence[Pipeline], device_of: Sequence[int]) -> bool:
    """Whether no device exceeds its capacity."""
    moves = Moves([_in_place(parts[0], device_of)], device_of)
    return not any(map(moves.overfull, moves.devices))


def _in_place(pipeline: Pipeline, device_of: Sequence[int]) -> Pipeline:
    """The pipeline in which each group holds what it does in its stage of this split, and nothing by position."""
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
    """Per group, the devices that support it."""
    rows = zip(pipeline.classes, pipeline.supported, strict=True)
    devices = sorted((device, supported.tolist()) for each, supported in rows for device in each.devices)
    return [[device for device, supported in devices if supported[v]] for v in range(len(pipeline.members))]


class Moves:
    """Groups on devices, per part of the objective the devices' loads, and per device what it holds.

    Memory is that of the pipeline's groups wherever they are: of one micro-batch where stages hold more by position.

    Invariant: net e loads device d, if that pays, exactly where 0 < held[e][d] < groups of e.
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
        """Sum over the parts of the largest load; sums of changes, so exact to rounding only."""
        return sum(map(max, self.load))

    @property
    def split(self) -> Split:
        """As it is now."""
        return Split(self.objective, tuple(self.on))

    def fits(self, group: int, device: int) -> bool:
        """Whether the device has the memory for one more group."""
        return self.memory[device] + self._sizes[group] <= self._capacity[device]

    def overfull(self, device: int) -> bool:
        """Whether the device exceeds its capacity."""
        return self.memory[device] > self._capacity[device]

    def holds(self, group: int) -> bool:
        """Whether the group holds any memory."""
        return self._sizes[group] > 0

    @property
    def overflow(self) -> float:
        """Bytes that devices hold beyond their capacities; exact to rounding."""
        return sum([max(0.0, held - most) for held, most in zip(self.memory, self._capacity, strict=True)])

    def shift(self, group: int, device: int) -> None:
        """Moves a group to a device other than its own."""
        source = self.on[group]
        self.on[group] = device
        self.memory[source] -= self._sizes[group]
        self.memory[device] += self._sizes[group]
        freed, opened = self._crossing_changes(group, source, device)
        for load, times, costs in zip(self.load, self._times, self._costs, strict=True):
            load[source] += sum([sign * costs[e] for e, sign in freed]) - times[group][source]
            load[device] += sum([sign * costs[e] for e, sign in opened]) + times[group][device]

    def after(self, group: int, device: int) -> tuple[float, float]:
        """Overflow and objective if the group were on that device."""
        source = self.on[group]
        self.shift(group, device)
        found = self.overflow, self.objective
        self.shift(group, source)
        return found

    def _crossing_changes(self, group: int, source: int, device: int) -> tuple[list[tuple[int, int]], ...]:
        """Nets that begin (1) or cease (-1) to load the source, and those that do so on the device."""
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


def anneal(parts: Sequence[Pipeline], start: Split, bound: float, steps: int, seed: int, control: Control) -> Split:
    """The best split met in so many steps from `start`, which fits; the same seed gives the same, unless stopped.

    `bound` is only reported.
    """
    choose, moves = random.Random(seed), Moves(parts, start.device_of)
    best, energy = start, _energy(moves)
    for step in range(steps):
        if step % _REPORT_EVERY == 0:
            if control.stopped:
                break
            control.report("annealing", Fraction(best.load), Fraction(bound))
        heat = best.load * _HOT * (_COLD / _HOT) ** (step / steps)
        undo = _step(moves, choose)
        if not undo:
            continue
        found = _energy(moves)
        if found <= energy or (heat > 0 and choose.random() < math.exp((energy - found) / heat)):
            energy = found
            if moves.objective < best.load * (1 - 1e-12):
                best = moves.split
            continue
        for group, device in undo:
            moves.shift(group, device)
    return best


def _energy(moves: Moves) -> float:
    """Sum over the parts of a norm of the loads near their largest, so that smaller loads count a little."""
    found = 0.0
    for load in moves.load:
        largest = max(load)
        if largest > 0:
            found += largest * sum([(each / largest) ** _POWER for each in load]) ** (1 / _POWER)
    return found


def _step(moves: Moves, choose: random.Random) -> list[tuple[int, int]]:
    """Moves a group, or swaps two; returns the shifts that undo it, none where it did nothing."""
    group = choose.randrange(len(moves.on))
    source, device = moves.on[group], _target(moves, group, choose)
    if device == source:
        return []
    if choose.random() < 0.5 and moves.fits(group, device):
        moves.shift(group, device)
        return [(group, source)]
    other = choose.randrange(len(moves.on))
    if moves.on[other] != device or source not in moves.allowed[other]:
        return []
    moves.shift(group, device)
    if not moves.fits(other, source):
        moves.shift(group, source)
        return []
    moves.shift(other, source)
    if moves.overfull(device):
        moves.shift(other, device)
        moves.shift(group, source)
        return []
    return [(other, device), (group, source)]


def _target(moves: Moves, group: int, choose: random.Random) -> int:
    """A device that supports the group, half the time one that a neighbour is on."""
    nets = moves.nets_of[group]
    if nets and choose.random() < 0.5:
        device = moves.on[choose.choice(moves.groups_of[choose.choice(nets)])]
        if device in moves.allowed[group]:
            return device
    return choose.choice(moves.allowed[group])
