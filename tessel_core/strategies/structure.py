"""The structure of a layer's program: its operations, and where each value comes from and goes to.

Programs with other sizes, such as other numbers of samples, have the same structure. So the structure is found once,
and each simulation needs only the seconds of the operations and the bytes of the values (`layer_kernels.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op, Program, Scope, Tag
from tessel_core.ir.transforms.combining import ADD, JOIN, JOINED, Combined, combined_outputs
from tessel_core.ir.transforms.data import replicas_of
from tessel_core.ir.transforms.expansion import Degrees, over_of
from tessel_core.ir.transforms.gradients import WEIGHT_PHASE
from tessel_core.ir.types import TensorType
from tessel_core.simulation.live_memory import owners
from tessel_core.simulation.trace import stream_of

Column = NDArray[np.float64]
Integers = NDArray[np.int64]

FORWARD, BACKWARD, WEIGHT = 0, 1, 2
PHASES = {"forward": FORWARD, "backward": BACKWARD, WEIGHT_PHASE: WEIGHT}
STREAM, ROW, PHASE, LEVEL_PHASE, ADDS, JOINS = range(6)
"""Columns of `Structure.ops`.

They are the stream (0 for computation, 1 and more for communication), the layer, the phase (-1 for none of `PHASES`),
the phase in which values are counted as used, and whether the operation adds to a sum apart from it or joins outputs.
"""
OWNER, GIVEN, KEPT = range(3)
"""Columns of `Structure.values`: the value whose memory it uses, and whether it is an input or an output."""


@dataclass(frozen=True, slots=True)
class WeightPlace:
    """Where a weight of a layer is used, and where its gradient is made."""

    value: int
    gradient: int | None
    """Value of its gradient; None without training."""
    row: int
    scope: Scope
    """Part of the network that uses the weight first."""
    used: frozenset[int]
    """Phases that use it."""
    phase: int
    """Phase in which its gradient is made."""
    over: str
    """Dimension of parallelism whose devices all have this weight."""
    ready_at: int
    """Operation after which its gradient is complete; -1 for none."""
    made_in: tuple[int, int]
    """Row and phase of the operation that makes its gradient."""


@dataclass(frozen=True, slots=True)
class Onward:
    """The values that pass a row in one direction and that the same direction has made."""

    row: int
    way: int
    maker: int
    """Row that makes the latest of them."""
    ready_at: tuple[int, ...]
    """Operations of that row that make them."""


def outline(model: Distributed, degrees: Degrees) -> Hashable:
    """Return a key that programs share if they differ only in sizes and in attributes of operations."""
    program, inputs, outputs = model.program, list[Hashable](), list[Hashable]()
    ops = [(op.kind, op.inputs, op.outputs, op.tag, over_of(op.attributes)) for op in program.ops]
    for piece in model.inputs:
        role = model.role_of(piece)
        inputs.append((piece.name, role.batch_axis, role.weight, role.trained, replicas_of(piece, degrees)))
    for piece in model.outputs:
        role = model.role_of(piece)
        outputs.append((piece.name, role.batch_axis, role.gradient_of))
    return tuple(ops), program.inputs, program.outputs, tuple(inputs), tuple(outputs)


class Structure:
    """Operations and dependencies of the program of one micro-batch. `layers` is the number of its layers.

    With `combines`, the program adds gradients to their sums and copies outputs with a batch axis, at the same points
    as a pipeline does (`ir/transforms/partition.py`). With `in_place`, gradients are added without a copy of the sum.
    """

    def __init__(self, model: Distributed, layers: int, degrees: Degrees, *, combines: bool, in_place: bool) -> None:
        self.model, self.layers, self.combines, self._in_place = model, layers, combines, in_place
        combined = combined_outputs(model) if combines else Combined(model.program, {})
        self.program: Program = combined.program
        self._combined, self._degrees = combined.value_of, degrees

    @cached_property
    def combined_types(self) -> dict[int, int]:
        """For each value that the combining operations add, the model's value of the same type."""
        found, known = dict[int, int](), len(self.model.program.types)
        for op in self.program.ops:
            if op.outputs[0] >= known:
                found |= dict.fromkeys((*op.inputs[:-1], op.outputs[0]), op.inputs[-1])
        return found

    # Arrays of `layer_kernels.py`

    @cached_property
    def ops(self) -> Integers:
        """One row per operation, with the columns `STREAM` to `JOINS`."""
        program, streams = self.program, dict[object, int]()
        found = list[tuple[int, ...]]()
        for op in program.ops:
            communicates, phase = bool(find_operator(op.kind).pattern), PHASES.get(op.tag.phase)
            stream = streams.setdefault(stream_of(program, op), 1 + len(streams)) if communicates else 0
            adds = self.combines and not self._in_place and op.kind == ADD
            phases = (-1, BACKWARD) if phase is None else (phase, phase)
            found.append((stream, _row(op.tag), *phases, adds, self.combines and _joins(op)))
        return np.array(found, np.int64)

    @cached_property
    def links(self) -> tuple[Integers, Integers, Integers, Integers]:
        """Inputs and outputs of operations, see `layer_kernels.Links`."""
        return *_flat([op.inputs for op in self.program.ops]), *_flat([op.outputs for op in self.program.ops])

    @cached_property
    def values(self) -> Integers:
        """One row per value, with the columns `OWNER` to `KEPT`."""
        found = np.zeros((len(self.program.types), 3), np.int64)
        found[:, OWNER] = owners(self.program)
        found[list(self.program.inputs), GIVEN] = 1
        found[list(self.program.outputs), KEPT] = 1
        return found

    @cached_property
    def made_by(self) -> dict[int, int]:
        """For each value that an operation computes, the number of the operation."""
        return {value: number for number, op in enumerate(self.program.ops) for value in op.outputs}

    @cached_property
    def _made(self) -> dict[int, Tag]:
        return {value: self.program.ops[number].tag for value, number in self.made_by.items()}

    # Values that cross from layer to layer

    @cached_property
    def crossings(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """For each row and direction, the values that pass to the next layer in this direction."""
        found = [(dict[int, None](), dict[int, None]()) for _ in range(self.layers)]
        for op in self.program.ops:
            at = _row(op.tag)
            for value in op.inputs:
                maker = self._made.get(value)
                if maker is None or op.tag.phase not in PHASES or maker.phase not in PHASES:
                    continue
                made, phase = _row(maker), PHASES[maker.phase]
                if PHASES[op.tag.phase] == FORWARD:
                    for row in range(made, at):
                        found[row][FORWARD][value] = None
                elif phase == BACKWARD or (phase == FORWARD and made > at):
                    for row in range(at + 1, made + 1):
                        found[row][BACKWARD][value] = None
        return [(tuple(down), tuple(up)) for down, up in found]

    @cached_property
    def boundaries(self) -> Column:
        """Which values count for the columns `enters` (by direction) and `leaves` of `Blocks`.

        The array has the shape (rows, 3 columns, values).
        """
        backward: dict[int, int] = {}
        for op in self.program.ops:
            if op.tag.phase != "forward":
                for value in op.inputs:
                    backward[value] = min(backward.get(value, self.layers), _row(op.tag))
        found = np.zeros((self.layers, 3, len(self.program.types)))
        for row, (down, up) in enumerate(self.crossings):
            if row + 1 < self.layers:
                found[row + 1, FORWARD, list(down)] = 1
            if row:
                found[row - 1, BACKWARD, list(up)] = 1
            found[row, 2, [value for value in down if backward.get(value, self.layers) > row]] = 1
        return found

    @cached_property
    def onward(self) -> list[Onward]:
        """The values behind the columns `onward` and `made_by` of `Blocks`."""
        found = list[Onward]()
        for row, both in enumerate(self.crossings):
            for way, values in enumerate(both):
                maker_of = {v: _row(self._made[v]) for v in values if PHASES[self._made[v].phase] == way}
                if maker_of:
                    maker = max(maker_of.values()) if way == FORWARD else min(maker_of.values())
                    latest = tuple(self.made_by[v] for v, each in maker_of.items() if each == maker)
                    found.append(Onward(row, way, maker, latest))
        return found

    @cached_property
    def leads(self) -> tuple[Column, Integers]:
        """Return which operations come before the first use of another layer's values, and the column `taken_by`.

        The first array has the shape (rows, 2 directions, operations).
        """
        found = np.zeros((self.layers, 2, len(self.program.ops)))
        taken_by = np.repeat(np.arange(self.layers)[:, None], 2, axis=1)
        sent = [set().union(*(both[way] for both in self.crossings)) for way in (FORWARD, BACKWARD)]
        before: dict[tuple[int, int], list[int]] = defaultdict(list)
        taking = set[tuple[int, int]]()
        for number, op in enumerate(self.program.ops):
            way, row = PHASES.get(op.tag.phase, WEIGHT), _row(op.tag)
            if way == WEIGHT:
                continue
            if (row, way) not in taking:
                if any(v in sent[way] and _row(self._made[v]) != row for v in op.inputs):
                    taking.add((row, way))
                    found[row, way, before[row, way]] = 1
                if not self.ops[number, STREAM]:
                    before[row, way].append(number)
            for value in op.inputs:
                for at in range(row) if way == FORWARD else range(self.layers - 1, row, -1):
                    if value in self.crossings[at][way] and taken_by[at, way] == at:
                        taken_by[at, way] = row
        return found, taken_by

    # Inputs and outputs that hold samples

    @cached_property
    def samples(self) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
        """By row, the inputs with samples that only this row uses, those that other rows use, too, and constants."""
        takers: dict[int, set[int]] = defaultdict(set)
        for op in self.program.ops:
            for value in op.inputs:
                takers[value].add(_row(op.tag))
        own, shared, constants = ([list[int]() for _ in range(self.layers)] for _ in range(3))
        for value, piece in self.model.piece_of.items():
            role = self.model.role_of(piece)
            if role.batch_axis is not None and len(takers[value]) == 1:
                own[takers[value].pop()].append(value)
            elif not role.weight:
                for row in takers[value]:
                    (constants if role.batch_axis is None else shared)[row].append(value)
        return own, shared, constants

    @cached_property
    def joins(self) -> list[tuple[int, int, int]]:
        """The operations that join outputs over micro-batches, with their row and phase."""
        numbered = enumerate(self.program.ops)
        return [(number, _row(op.tag), PHASES[op.tag.phase]) for number, op in numbered if self.ops[number, JOINS]]

    # Weights and their gradients

    @cached_property
    def _first_taker(self) -> dict[int, tuple[int, Scope, set[int]]]:
        """For each input of the model, the first layer and part of the network that use it, and all phases that do."""
        found: dict[int, tuple[int, Scope, set[int]]] = {}
        for op in self.model.program.ops:
            for value in op.inputs:
                if value in self.model.piece_of:
                    known = found.setdefault(value, (_row(op.tag), op.tag.scope, set()))
                    known[2].add(PHASES.get(op.tag.phase, BACKWARD))
        return found

    @cached_property
    def weights(self) -> list[WeightPlace]:
        """The weights by row, in the order in which their gradients are made."""
        model = self.model
        gradient = {
            model.role_of(piece).gradient_of: value
            for value, piece in zip(model.program.outputs, model.outputs, strict=True)
            if model.role_of(piece).gradient_of
        }
        made = {value: (number, op.tag) for number, op in enumerate(model.program.ops) for value in op.outputs}
        found = list[tuple[int, int, WeightPlace]]()
        for value, piece in model.piece_of.items():
            if not model.role_of(piece).weight or value not in self._first_taker:
                continue
            (row, scope, used), mine = self._first_taker[value], gradient.get(piece.name)
            number, tag = made.get(mine, (-1, Tag())) if mine is not None else (-1, Tag())
            phase = PHASES.get(tag.phase, BACKWARD)
            done = -1 if mine is None else self.made_by.get(self._combined.get(mine, mine), -1)
            how = replicas_of(piece, self._degrees), done, (_row(tag), phase)
            place = WeightPlace(value, mine, row, scope, frozenset(used), max(BACKWARD, phase), *how)
            found.append((row, number, place))
        return [place for _, _, place in sorted(found, key=lambda each: each[:2])]

    @cached_property
    def gradients(self) -> tuple[Integers, Integers, Integers]:
        """The fields `ready_at` and `made_in` of all weights."""
        found = [(each.ready_at, *each.made_in) for each in self.weights]
        made_by, rows, phases = np.array(found, np.int64).reshape(-1, 3).T
        return made_by, rows, phases

    def roots(self, types: Sequence[TensorType]) -> set[Scope]:
        """Return the first and the last part of the network that have weights, given the types of all values.

        A part does not count if another has equal weight types.
        """
        model = self.model
        kinds: dict[Scope, list[str]] = {}
        for value, (_, scope, _) in self._first_taker.items():
            role = model.role_of(model.piece_of[value])
            if role.weight and role.trained:
                kinds.setdefault(scope, []).append(str(types[value]))
        order = dict.fromkeys(op.tag.scope for op in model.program.ops if op.tag.phase == "forward")
        ends = [scope for scope in order if scope in kinds]
        alike = Counter(tuple(sorted(each)) for each in kinds.values())
        return {scope for scope in (*ends[:1], *ends[-1:]) if alike[tuple(sorted(kinds[scope]))] == 1}


def _row(tag: Tag) -> int:
    return tag.stage or 0


def _joins(op: Op) -> bool:
    """Return whether an operation copies an output with a batch axis, to join it with those of other micro-batches."""
    return op.kind == JOIN and op.tag.name == JOINED


def _flat(values: Sequence[tuple[int, ...]]) -> tuple[Integers, Integers]:
    """Return all elements of the tuples one after the other, and the index of the first element of each tuple."""
    ends = np.cumsum([0, *map(len, values)])
    return np.array([value for each in values for value in each], np.int64), ends
