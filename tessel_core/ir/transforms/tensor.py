"""Tensor parallelism: weights cut by columns or rows over devices that compute each layer together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece, check_degree, divided
from tessel_core.ir.program import Op, Program, Tag
from tessel_core.ir.transforms.sharding import SUM, WHOLE, State, shard_rule


@dataclass(frozen=True, slots=True)
class TensorParallel:
    """`degree` devices that share every layer; weights are cut along the axis that their role says.

    Where each value lies is propagated operation by operation [Xu 2021, GSPMD]: whole on every device, cut along an
    axis, or a sum that is still spread.  Sums are all-reduced at once, as in Megatron-LM [Shoeybi 2019, section 3]:
    after a product with a weight cut by rows forward, and with one cut by columns backward.

    Raises
    ------
    InputError
        Where a weight, or the heads of an attention, do not divide.
    """

    degree: int

    def __call__(self, model: Distributed) -> Distributed:
        """The model, of one device, on `degree` devices: device d of the group is the model's plus d."""
        check_degree("tensor parallelism", self.degree)
        if self.degree == 1:
            return model
        if len(model.program.devices) != 1:
            raise InputError("tensor parallelism", f"takes a program of one device, got {len(model.program.devices)}")
        return _Sharding(model, self.degree).distributed()


class _Sharding:
    def __init__(self, model: Distributed, degree: int) -> None:
        self._model, self._degree = model, degree
        self._source: Program = model.program
        self._build = ProgramBuilder(self._source.name)
        self._values: dict[int, tuple[int, ...]] = {}
        """Per value of the source, its copy or part on each device."""
        self._state: dict[int, State] = {}
        self._converted: dict[tuple[int, State], tuple[int, ...]] = {}

    def distributed(self) -> Distributed:
        inputs = [piece for value, piece in self._model.piece_of.items() for piece in self._input(value, piece)]
        for op in self._source.ops:
            self._add(op)
        outputs, pieces = list[int](), list[Piece]()
        for value, piece in zip(self._source.outputs, self._model.outputs, strict=True):
            outputs += self._values[value]
            pieces += self._pieces(piece, self._state[value])
        program = self._build.finish(outputs)
        return Distributed(program, tuple(inputs), tuple(pieces), self._model.roles)

    def _input(self, value: int, piece: Piece) -> list[Piece]:
        role, of_type = self._model.role_of(piece), self._source.types[value]
        axis = role.shard_axis
        state = WHOLE if axis is None else State("part", axis)
        if axis is not None:
            of_type = of_type.shaped(divided(of_type.shape, axis, self._degree, piece.name, role.shard_grain))
        name = self._source.value_name(value)
        self._values[value] = tuple(
            self._build.input(f"{name}.h{h}", of_type.on(of_type.device + h)) for h in range(self._degree)
        )
        self._state[value] = state
        return self._pieces(piece, state)

    def _pieces(self, piece: Piece, state: State) -> list[Piece]:
        if state == WHOLE:
            return [piece] * self._degree
        return [piece.cut(state.axis, self._degree, h) for h in range(self._degree)]

    def _add(self, op: Op) -> None:
        types = self._source.types_of(op.inputs)
        wanted, made = shard_rule(op.kind)([self._state[value] for value in op.inputs], types, dict(op.attributes))
        taken = [self._as(value, state, op.tag) for value, state in zip(op.inputs, wanted, strict=True)]
        each = [
            self._build.append(op.kind, [copies[h] for copies in taken], op.attributes, op.tag)
            for h in range(self._degree)
        ]
        for i, (value, state) in enumerate(zip(op.outputs, made, strict=True)):
            self._values[value], self._state[value] = tuple(outputs[i] for outputs in each), state
        for value in op.outputs:
            if self._state[value] == SUM:
                self._values[value] = self._build.add("allreduce", self._values[value], op.tag)
                self._state[value] = WHOLE

    def _as(self, value: int, wanted: State, tag: Tag) -> tuple[int, ...]:
        """The value in the wanted state: gathered, or each device's own part taken from the whole."""
        state = self._state[value]
        if state == wanted:
            return self._values[value]
        known = self._converted.get((value, wanted))
        if known is None:
            whole = self._values[value]
            if state != WHOLE:
                whole = self._build.add("allgather", whole, tag, axis=state.axis)
            known = whole if wanted == WHOLE else self._cut(whole, wanted, tag)
            self._converted[value, wanted] = known
        return known

    def _cut(self, whole: Sequence[int], wanted: State, tag: Tag) -> tuple[int, ...]:
        return tuple(
            self._build.one("part", [value], tag, axis=wanted.axis, parts=self._degree, index=h)
            for h, value in enumerate(whole)
        )
