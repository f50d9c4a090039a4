"""The CP-SAT model of a split, which gives each group a device, or a position in a chain of devices.

A group is a set of operators that must share a device. A net is a tensor, with the groups of its producer and
consumers. A class has interchangeable devices. The objective is a sum over parts (see `Pipeline.parts`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from tessel_core.control import Control
from tessel_core.cpsat import LARGEST_SUM, Answer, Effort, Verdict, ask
from tessel_core.placement.pipeline import Pipeline, Split

Var = cp_model.IntVar

_FINE_UNITS, _COARSE_UNITS = 2**44, 2**14
_MAX_MEMORY_UNITS = 2**53
"""Largest memory of all groups together, in the integer units of a FINE model."""


class Resolution(Enum):
    """Size of a model's integer units. Times are rounded down, so a bound is too low by at most (groups + nets) units.

    CP-SAT can presolve all models but FINE ones. COARSE units let CP-SAT raise the bound in few steps: for BERT-24, to
    17.70 instead of 15.35 in the same time. In FINE models, bytes are rounded up, and an allowance in the capacity
    compensates for this. In other models, bytes are rounded down. Their bounds are valid, but their solutions may not
    fit in memory.
    """

    FINE = "fine, only rounding errors are lost"
    PRESOLVED = "as fine as presolve allows"
    COARSE = "some thousand units in the objective"

    def units(self, parts: Sequence[Pipeline], upper: float) -> int:
        """Return the number of integer units in `upper`, an upper bound on the objective.

        Except in FINE models, capacities have as many units.
        """
        if self is Resolution.PRESOLVED:
            most = LARGEST_SUM / (2 + max(_terms(part, upper) for part in parts))
            return max(_COARSE_UNITS, 1 << int(math.log2(most)))
        return _FINE_UNITS if self is Resolution.FINE else _COARSE_UNITS


def _terms(part: Pipeline, upper: float) -> float:
    """Return the largest possible sum of terms: of a load as a multiple of `upper`, of memory of the capacity.

    Each time and cost is capped at `upper`.
    """
    unit = max(upper, 1e-300)
    costs = sum(min(net.cost / unit, 1.0) for net in part.nets)
    most = [part.time_at(kind, part.stages) for kind in range(len(part.classes))]
    times = (float(np.minimum(time[np.isfinite(time)] / unit, 1.0).sum()) for time in most)
    held = (float(part.most_memory.sum()) / each.capacity for each in part.classes if each.capacity > 0)
    return max(costs + max(times), *held, 1.0)


class Solved(NamedTuple):
    """Outcome of a model."""

    verdict: Verdict
    device_of: tuple[int, ...] | None
    """Device of each group. None if no split was found."""
    bound: float
    seconds: float
    """Seconds of the solve, as `Answer.counted_seconds` counts them."""


class SplitModel:
    """A model that assigns groups to seats.

    A seat is a device or, with `contiguous`, a position in the chain of devices.

    on[v, s]        group v is at seat s
    takes[s, c]     a device of class c takes seat s
    uses[v, s, c]   group v is at seat s, and a device of class c takes seat s
    prefix[v, s]    group v is at seat s or an earlier seat
    touch[e, s]     at least one group of net e is at seat s
    hold[e, s]      all groups of net e are at seat s
    cut[e, s]       some but not all groups of net e are at seat s, and its device pays for transfers
    largest[i]      largest load in part i of the objective; the sum of these loads is minimised
    taken[v, s]     with `ordered`: at least one of the groups 0 … v is at seat s

    `ordered` breaks the symmetry between equal devices. Measurements show that this helps on some graphs only.
    """

    def __init__(
        self,
        parts: Sequence[Pipeline],
        *,
        contiguous: bool,
        ordered: bool,
        resolution: Resolution,
        upper: float,
        control: Control,
    ) -> None:
        """Build the model. `upper` is an upper bound on the least objective.

        If `control` stops during the construction, the model is incomplete and must not be solved.
        """
        self._parts, self._contiguous, self._control = parts, contiguous, control
        self._pipeline = parts[0]
        self._slack = len(self._pipeline.members) + len(self._pipeline.nets)
        self._resolution, self._in_upper = resolution, resolution.units(parts, upper)
        self._unit = max(upper, 1e-300) / self._in_upper
        self._model = cp_model.CpModel()
        self._classes_at = self._seats()
        self._groups = range(len(self._pipeline.members))
        self._nets = range(len(self._pipeline.nets))
        self._takes: dict[tuple[int, int], Var] = {}
        self._on: dict[tuple[int, int], Var] = {}
        self._uses: dict[tuple[int, int, int], Var] = {}
        self._prefix: dict[tuple[int, int], Var] = {}
        self._taken: dict[tuple[int, int], Var] = {}
        self._touch: dict[tuple[int, int], Var] = {}
        self._hold: dict[tuple[int, int], Var] = {}
        self._cut: dict[tuple[int, int], Var] = {}
        # Without the slack, rounding could exclude the split that has the load `upper`.
        self._most = self._in_upper + self._slack
        self._largest = [self._model.new_int_var(0, self._most, f"largest {i}") for i, _ in enumerate(parts)]
        self._one_class_per_seat()
        self._one_seat_per_group()
        self._one_branch_per_seat()
        if contiguous:
            self._prefixes()
        elif ordered:
            self._equal_devices_in_order()
        self._memory()
        self._cuts()
        self._loads()
        self._model.minimize(sum(self._largest))

    def _seats(self) -> list[tuple[int, ...]]:
        """Return the device classes that may take each seat."""
        classes = list(enumerate(self._pipeline.classes))
        if not self._contiguous:
            return [(c,) for c, each in classes for _ in each.devices]
        return [tuple(c for c, _ in classes)] * sum(len(each.devices) for _, each in classes)

    def _while_asked(self, numbers: range) -> Iterator[int]:
        """Yield `numbers`, but end when `control` stops, because models with many groups take seconds to build."""
        return takewhile(lambda _: not self._control.stopped, numbers)

    def _units(self, value: float) -> int:
        """Convert a time to units. Large values are capped, so that sums stay small."""
        return math.floor(min(float(value) / self._unit, self._most + 1.0))

    def _one_class_per_seat(self) -> None:
        """sum over c of takes[s, c] = 1, and each class takes one seat per device."""
        for s, classes in enumerate(self._classes_at):
            for c in classes:
                self._takes[s, c] = self._model.new_bool_var(f"takes {s} {c}")
            self._model.add_exactly_one(self._takes[s, c] for c in classes)
        for c, each in enumerate(self._pipeline.classes):
            taken = [literal for (_, one), literal in self._takes.items() if one == c]
            self._model.add(sum(taken) == len(each.devices))

    def _one_seat_per_group(self) -> None:
        """For each v: sum over s, c of uses[v, s, c] = 1; uses[v, s, c] => takes[s, c]; on[v, s] = sum over c of uses.

        uses[v, s, c] exists only if devices of class c support group v.
        """
        for v in self._while_asked(self._groups):
            for s, classes in enumerate(self._classes_at):
                supporting = [c for c in classes if np.isfinite(self._pipeline.classes[c].time[v])]
                for c in supporting:
                    self._uses[v, s, c] = self._model.new_bool_var(f"uses {v} {s} {c}")
                    self._model.add_implication(self._uses[v, s, c], self._takes[s, c])
                if len(classes) == 1 and supporting:
                    self._on[v, s] = self._uses[v, s, supporting[0]]
                else:
                    self._on[v, s] = self._model.new_bool_var(f"on {v} {s}")
                    self._model.add(sum(self._uses[v, s, c] for c in supporting) == self._on[v, s])
            self._model.add_exactly_one(self._on[v, s] for s in range(len(self._classes_at)))

    def _one_branch_per_seat(self) -> None:
        """on[v, s] => has[b, s] for v in branch b; sum over the branches b of a stretch of has[b, s] <= 1."""
        for i, stretch in enumerate(self._pipeline.branches):
            for s in range(len(self._classes_at)):
                has = [self._model.new_bool_var(f"has {i} {b} {s}") for b in range(len(stretch))]
                self._model.add_at_most_one(has)
                for branch, literal in zip(stretch, has, strict=True):
                    for v in self._while_asked(range(len(branch))):
                        self._model.add_implication(self._on[branch[v], s], literal)

    def _prefixes(self) -> None:
        """prefix[v, s] = on[v, 0] + ... + on[v, s], and prefix[v, s] => prefix[u, s] for each predecessor u of v."""
        for v in self._while_asked(self._groups):
            before: Var | int = 0
            for s in range(len(self._classes_at) - 1):
                here = self._prefix[v, s] = self._model.new_bool_var(f"prefix {v} {s}")
                self._model.add(here == before + self._on[v, s])
                before = here
                for u in self._pipeline.predecessors[v]:
                    self._model.add_implication(here, self._prefix[u, s])

    def _equal_devices_in_order(self) -> None:
        """Equal devices are used in the order of their first groups. Any split does so after renaming equal devices.

        taken[v, s] => on[0, s] or ... or on[v, s]; on[v, s + 1] => taken[v - 1, s]
        """
        for s in range(len(self._classes_at) - 1):
            if self._classes_at[s] != self._classes_at[s + 1]:
                continue
            for v in self._while_asked(self._groups):
                taken = self._taken[v, s] = self._model.new_bool_var(f"taken {v} {s}")
                before = [self._taken[v - 1, s]] if v else []
                self._model.add_bool_or([*before, self._on[v, s], taken.negated()])
                self._model.add_bool_or([*before, self._on[v, s + 1].negated()])

    def _memory(self) -> None:
        """sum over v of memory[v, s] * uses[v, s, c] <= capacity[c] for each s and c, unless all groups fit."""
        rounded = math.ceil if self._resolution is Resolution.FINE else math.floor
        for c, each in enumerate(self._pipeline.classes):
            if self._pipeline.most_memory.sum() <= each.capacity:
                continue
            limit = self._units_of_memory(each.capacity)
            for s in range(len(self._classes_at)):
                memory = self._pipeline.memory_at(self._position(s))
                holding = [v for v in self._groups if memory[v] > 0 and (v, s, c) in self._uses]
                held = [rounded(memory[v] / each.capacity * limit) * self._uses[v, s, c] for v in holding]
                if held:
                    self._model.add(cp_model.LinearExpr.sum(held) <= limit)

    def _position(self, seat: int) -> int:
        """Return the position of a seat, counted from the end, where the last seat has position 1.

        In some equally good solution, empty seats come first, so no position is counted too large.
        """
        return len(self._classes_at) - seat

    def _units_of_memory(self, capacity: float) -> int:
        """Return the number of integer units in a capacity. A FINE model has as many units as sums allow."""
        if self._resolution is not Resolution.FINE:
            return self._in_upper
        return int(_MAX_MEMORY_UNITS / max(1.0, float(self._pipeline.most_memory.sum()) / max(capacity, 1e-300)))

    def _cuts(self) -> None:
        """touch[e, s] >= on[v, s] >= hold[e, s] for v in e; cut[e, s] >= touch - hold - [the device does not pay]."""
        for e in self._while_asked(self._nets):
            groups = self._pipeline.nets[e].groups
            for s, classes in enumerate(self._classes_at):
                free = [self._takes[s, c] for c in classes if not self._pipeline.classes[c].pays]
                if len(free) == len(classes):
                    continue
                cut = self._cut[e, s] = self._model.new_bool_var(f"cut {e} {s}")
                ons = [self._on[v, s] for v in groups]
                if len(ons) == 2:
                    for one, other in (ons, ons[::-1]):
                        self._model.add(cut + sum(free) >= one - other)
                    continue
                touch = self._touch[e, s] = self._model.new_bool_var(f"touch {e} {s}")
                hold = self._hold[e, s] = self._model.new_bool_var(f"hold {e} {s}")
                for on in ons:
                    self._model.add_implication(on, touch)
                    self._model.add_implication(hold, on)
                self._model.add(cut + sum(free) >= touch - hold)

    def _loads(self) -> None:
        """sum of time[c, s][v] * uses[v, s, c] + sum of cost[e] * cut[e, s] <= largest[i] for each seat s, part i."""
        for part, largest in zip(self._parts, self._largest, strict=True):
            times = {
                (c, s): [self._units(t) if np.isfinite(t) else 0 for t in part.time_at(c, self._position(s))]
                for c in range(len(part.classes))
                for s in range(len(self._classes_at))
            }
            costs = [self._units(net.cost) for net in part.nets]
            load: list[list[cp_model.LinearExprT]] = [[] for _ in self._classes_at]
            for (v, s, c), uses in self._uses.items():
                load[s].append(times[c, s][v] * uses)
            for (e, s), cut in self._cut.items():
                load[s].append(costs[e] * cut)
            for each in load:
                self._model.add(cp_model.LinearExpr.sum(each) <= largest)

    def bound_from_below(self, bounds: Sequence[float], total: float) -> None:
        """Add lower bounds on the largest load in each part of the objective (`bounds`) and on their sum (`total`)."""
        for largest, bound in zip(self._largest, bounds, strict=True):
            self._model.add(largest >= self._low(bound))
        self._model.add(sum(self._largest) >= self._low(total))

    def _low(self, bound: float) -> int:
        """Convert a bound to units, and subtract the largest possible rounding error of a load."""
        return max(0, self._units(bound) - self._slack)

    def hint(self, split: Split) -> None:
        """Give CP-SAT a known split as a hint."""
        for var, value in self._values(split):
            self._model.add_hint(var, value)

    def _values(self, split: Split) -> Iterator[tuple[Var, bool]]:
        seat_of = self._seat_of(split)
        class_at = {seat_of[device]: c for c, each in enumerate(self._pipeline.classes) for device in each.devices}
        at = [seat_of[device] for device in split.device_of]
        yield from ((var, class_at[s] == c) for (s, c), var in self._takes.items())
        yield from ((var, at[v] == s and class_at[s] == c) for (v, s, c), var in self._uses.items())
        if any(len(classes) > 1 for classes in self._classes_at):
            yield from ((var, at[v] == s) for (v, s), var in self._on.items())
        yield from ((var, at[v] <= s) for (v, s), var in self._prefix.items())
        first = {s: at.index(s) for s in set(at)}
        yield from ((var, first.get(s, len(at)) <= v) for (v, s), var in self._taken.items())
        seats = [{at[v] for v in net.groups} for net in self._pipeline.nets]
        yield from ((var, s in seats[e]) for (e, s), var in self._touch.items())
        yield from ((var, seats[e] == {s}) for (e, s), var in self._hold.items())
        for (e, s), var in self._cut.items():
            yield var, s in seats[e] and len(seats[e]) > 1 and self._pipeline.classes[class_at[s]].pays

    def _seat_of(self, split: Split) -> dict[int, int]:
        """Return the seat of each device in the hint.

        In a contiguous split, unused devices come first, and the others follow the flow. In other splits, the devices
        of a class take its seats in the order of their first groups.
        """
        used = list(dict.fromkeys(split.device_of))
        devices = [device for each in self._pipeline.classes for device in each.devices]
        if self._contiguous:
            used = split.along_the_flow(self._pipeline, used)
            devices = [*(device for device in devices if device not in used), *used]
        else:
            rank = {device: number for number, device in enumerate(used)}
            classes = [sorted(each.devices, key=lambda d: rank.get(d, len(rank))) for each in self._pipeline.classes]
            devices = [device for each in classes for device in each]
        return {device: seat for seat, device in enumerate(devices)}

    def solve(self, effort: Effort, report: Callable[[float, float], None] = lambda load, bound: None) -> Solved:
        """Solve the model within `effort`. Call `report` with (objective, bound) for each solution."""
        unit = self._unit

        def on_solution(load: int, bound: float) -> None:
            report(load * unit, bound * unit)

        answer = ask(self._model, effort, self._control, on_solution=on_solution)
        device_of = self._device_of(answer) if answer.verdict.found else None
        return Solved(answer.verdict, device_of, answer.bound * unit, answer.counted_seconds)

    def _device_of(self, answer: Answer) -> tuple[int, ...]:
        left = {c: list(each.devices) for c, each in enumerate(self._pipeline.classes)}
        device_at = {}
        for (s, c), takes in self._takes.items():
            if answer.value(takes):
                device_at[s] = left[c].pop(0)
        device_of = [0] * len(self._groups)
        for (v, s), on in self._on.items():
            if answer.value(on):
                device_of[v] = device_at[s]
        return tuple(device_of)
