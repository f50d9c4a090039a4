"""The CP-SAT model of layouts, which assigns groups to the stages of a chain.

A group is a set of operators that must share a device. A net is a tensor, with the groups of its producer and
consumers. A place is the position of a device in `LayoutTask.devices`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from ortools.sat.python import cp_model

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict, ask
from tessel_core.placement.layout_task import LayoutTask

Var = cp_model.IntVar


_COARSE_MEMORY_UNITS, _MAX_MEMORY_UNITS = 2**18, 2**53
"""Number of integer units in a capacity of a COARSE model, and in the largest memory of a device in a FINE model."""


class Units(Enum):
    """Number of integer units in the upper bound on the least largest load.

    Times are rounded down, so the bound of the model is valid. CP-SAT presolves only COARSE models. Bytes of COARSE
    models are rounded down too, so a solution may not fit in memory. In FINE models, rounding errors are negligible.
    """

    COARSE = 2**18
    FINE = 2**44


@dataclass(frozen=True)
class Found:
    """The stage of each group in the solution of a model (or None), and the bound that the solve proved."""

    stage_of: tuple[int, ...] | None
    bound: float


class LayoutModel:
    """A model that assigns groups to stages, with the time and memory of each device.

    on[v, s]        group v is in stage s
    at[v, p]        group v is on the device at place p
    before[v, s]    group v is in stage s or an earlier stage
    count[k, p]     number of groups of kind k on the device at place p; groups of a kind have equal costs
    kept[s]         bytes that stage s holds for each micro-batch in flight, if memory may bind
    largest         the largest load, which is minimised
    """

    def __init__(self, task: LayoutTask, upper: float, units: Units, room: float | None = None) -> None:
        """Build the model. `upper` is an upper bound on the least largest load.

        If `room` is given, the model minimises the bytes on the fullest device instead, and `room` is an upper bound on
        them.
        """
        self._task, self._units, self._room_bytes = task, units, room
        self._unit = max(upper, 1e-300) / units.value
        self._slack = len(task.pipeline.members) + len(task.pipeline.nets)
        self._most = units.value + self._slack
        self._model = cp_model.CpModel()
        self._largest = self._model.new_int_var(0, self._most, "largest")
        self._room = self._model.new_int_var(0, units.value, "room")
        self._before: dict[tuple[int, int], Var] = {}
        self._cut: dict[tuple[int, int], tuple[Var, Var]] = {}
        self._count: dict[tuple[int, int], Var] = {}
        self._kept: dict[int, Var] = {}
        self._bytes: dict[int, Sequence[int]] = {}
        self._groups = range(len(task.pipeline.members))
        self._places = range(len(task.devices))
        self._stages_along_the_flow()
        self._no_empty_stage()
        self._supported()
        self._kinds = task.kinds
        self._counts()
        self._memory()
        self._load = [self._load_at(place) for place in self._places]
        for load in self._load:
            self._model.add(load <= self._largest)
        self._model.minimize(self._largest if room is None else self._room)

    def _stages_along_the_flow(self) -> None:
        """before[v, s] => before[v, s + 1], and before[v, s] => before[u, s] for each predecessor u of v.

        Each v is in one of its possible stages (`LayoutTask.windows`).
        """
        for v in self._groups:
            first, last = self._task.windows[v]
            for s in range(self._task.stages - 1):
                here = self._before[v, s] = self._model.new_bool_var(f"before {v} {s}")
                if s < first or s >= last:
                    self._model.add(here == (s >= last))
                if s:
                    self._model.add_implication(self._before[v, s - 1], here)
                for u in self._task.pipeline.predecessors[v]:
                    self._model.add_implication(here, self._before[u, s])

    def _on(self, v: int, s: int) -> cp_model.LinearExprT:
        """Return an expression that is 1 if group v is in stage s, else 0."""
        here = self._before[v, s] if s < self._task.stages - 1 else 1
        return here - self._before[v, s - 1] if s else here

    def _at(self, v: int, place: int) -> cp_model.LinearExprT:
        """Return an expression that is 1 if group v is on the device at the place, else 0."""
        return cp_model.LinearExpr.sum([self._on(v, s) for s in self._task.stages_at[place]])

    def _no_empty_stage(self) -> None:
        """sum over v of on[v, s] >= 1."""
        for s in range(self._task.stages):
            self._model.add(cp_model.LinearExpr.sum([self._on(v, s) for v in self._groups]) >= 1)

    def _supported(self) -> None:
        """No group is on a device that does not support it."""
        for place, v in np.argwhere(~np.isfinite(self._task.time)).tolist():
            self._model.add(self._at(v, place) == 0)

    def _counts(self) -> None:
        """count[k, p] = sum over v of kind k of at[v, p]. CP-SAT uses that these are integers."""
        for k, members in enumerate(self._kinds):
            for place in self._places:
                count = self._count[k, place] = self._model.new_int_var(0, len(members), f"count {k} {place}")
                self._model.add(count == cp_model.LinearExpr.sum([self._at(v, place) for v in members]))
            self._model.add(sum(self._count[k, place] for place in self._places) == len(members))

    def _memory(self) -> None:
        """static bytes of a device + sum over its stages s of in_flight[s] * kept[s] <= capacity, at every moment.

        A second constraint uses `least_in_flight` and the counts of kinds. It follows from the first and speeds up
        proofs. Devices that cannot exceed their capacity get no constraint. Bytes of FINE models are rounded up, and an
        allowance in the capacity compensates for this.
        """
        task, within = self._task, self._room_bytes is None
        rounded = math.ceil if self._units is Units.FINE and within else math.floor
        for place, (kind, moments) in enumerate(zip(task.class_at, task.moments, strict=True)):
            most = float(task.static.sum() + max(map(max, moments)) * task.activation.sum())
            if within and most <= kind.capacity:
                continue
            room = kind.capacity if self._room_bytes is None else self._room_bytes
            fine = int(_MAX_MEMORY_UNITS * min(1.0, room / most))
            limit = _COARSE_MEMORY_UNITS if self._units is Units.COARSE else fine
            limit, top = (limit, limit) if within else (self._units.value, self._room)
            scale = limit / max(room, 1e-300)
            static = [rounded(task.static[members[0]] * scale) for members in self._kinds]
            always = sum(bytes_ * self._count[k, place] for k, bytes_ in enumerate(static))
            least = [task.least_in_flight[place] * task.activation[members[0]] for members in self._kinds]
            self._model.add(
                always + sum(math.floor(each * scale) * self._count[k, place] for k, each in enumerate(least)) <= top
            )
            for stage in task.stages_at[place]:
                self._keep(stage, [rounded(each * scale) for each in task.activation])
            for moment in moments:
                comes = sum(n * self._kept[s] for n, s in zip(moment, task.stages_at[place], strict=True))
                self._model.add(always + comes <= top)

    def _keep(self, stage: int, bytes_: Sequence[int]) -> None:
        """kept[s] = sum over v of activations[v] * on[v, s]."""
        kept = self._kept[stage] = self._model.new_int_var(0, sum(bytes_), f"kept {stage}")
        self._bytes[stage] = bytes_
        held = [each * self._on(v, stage) for v, each in enumerate(bytes_) if each]
        self._model.add(kept == cp_model.LinearExpr.sum(held))

    def _load_at(self, place: int) -> cp_model.LinearExprT:
        """The load of place p: sum of time[k] * count[k, p] over kinds k + sum of cost[e] over nets e that p cuts."""
        task = self._task
        terms: list[cp_model.LinearExprT] = [
            self._in_units(task.time[place, members[0]]) * self._count[k, place]
            for k, members in enumerate(self._kinds)
            if np.isfinite(task.time[place, members[0]])
        ]
        for e, net in enumerate(task.pipeline.nets):
            some, all_ = (self._model.new_bool_var(f"{what} {e} {place}") for what in ("some", "all"))
            for v in net.groups:
                self._model.add(some >= self._at(v, place))
                self._model.add(all_ <= self._at(v, place))
            self._cut[e, place] = some, all_
            terms.append(self._in_units(net.cost) * (some - all_))
        return cp_model.LinearExpr.sum(terms)

    def _in_units(self, value: float) -> int:
        """Convert a time to units. Large values are capped, so that sums stay small."""
        return math.floor(min(float(value) / self._unit, self._most + 1.0))

    def fix_counts(self, counts: Sequence[Sequence[int]]) -> None:
        """Fix the number of groups of each kind at each place. `counts` is shaped (kinds, places)."""
        for k, row in enumerate(counts):
            for place, count in enumerate(row):
                self._model.add(self._count[k, place] == count)

    def bound_from_below(self, bound: float) -> None:
        """Add a known lower bound on the largest load, minus the largest possible rounding error."""
        self._model.add(self._largest >= max(0, self._in_units(bound) - self._slack))

    def hint(self, stage_of: Sequence[int]) -> None:
        """Give CP-SAT a known solution as a hint."""
        for var, value in self._values(stage_of):
            self._model.add_hint(var, value)

    def _values(self, stage_of: Sequence[int]) -> Iterator[tuple[Var, int]]:
        yield from ((var, stage_of[v] <= s) for (v, s), var in self._before.items())
        at = [self._task.place_of[stage] for stage in stage_of]
        yield from ((var, sum(at[v] == p for v in self._kinds[k])) for (k, p), var in self._count.items())
        for stage, kept in self._kept.items():
            yield kept, sum(each for each, there in zip(self._bytes[stage], stage_of, strict=True) if there == stage)
        for (e, place), (some, all_) in self._cut.items():
            there = [at[v] == place for v in self._task.pipeline.nets[e].groups]
            yield some, any(there)
            yield all_, all(there)

    def even_out(self, most: float) -> None:
        """Minimise how uneven stages and loads are, instead of the largest load. No load may exceed `most`.

        The objective is the longest time of a stage times the number of devices, plus the amounts by which stages and
        loads exceed their means.
        """
        longest = self._model.new_int_var(0, self._most, "longest")
        self._model.add(self._largest <= self._in_units(most))
        work = list[cp_model.LinearExprT]()
        for s, place in enumerate(self._task.place_of):
            times = [self._in_units(each) if np.isfinite(each) else 0 for each in self._task.time[place]]
            work.append(cp_model.LinearExpr.sum([time * self._on(v, s) for v, time in enumerate(times) if time]))
            self._model.add(work[-1] <= longest)
        whole = self._in_units(float(np.where(np.isfinite(self._task.time), self._task.time, 0).mean(axis=0).sum()))
        above = [self._above(each, whole // len(work)) for each in work]
        above += [self._above(each, whole // len(self._load)) for each in self._load]
        self._model.minimize(len(self._places) * longest + sum(above))

    def _above(self, amount: cp_model.LinearExprT, mean: int) -> Var:
        """Return a variable that is at least the amount by which a value exceeds the mean.

        It equals that amount (or 0) if the objective minimises it.
        """
        above = self._model.new_int_var(0, self._most, "above")
        self._model.add(amount - mean <= above)
        return above

    def solve(self, effort: Effort, control: Control) -> Found:
        """Solve the model within `effort`. Return the stage of each group in the best solution, and the bound."""
        answer = ask(self._model, effort, control)
        if answer.verdict is Verdict.IMPOSSIBLE:
            return Found(None, math.inf)
        stage_of = None
        if answer.verdict.found:
            rows = ([answer.value(self._before[v, s]) for s in range(self._task.stages - 1)] for v in self._groups)
            stage_of = tuple(self._task.stages - 1 - sum(row) for row in rows)
        bound = answer.bound if math.isfinite(answer.bound) else 0.0
        unit = self._unit if self._room_bytes is None else self._room_bytes / self._units.value
        return Found(stage_of, max(0.0, bound) * unit)
