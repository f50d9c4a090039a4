"""A micro-batch as one of several: its outputs are combined with the outputs of earlier micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessel_core.ir.distributed import Distributed, Piece
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op, Program, Tag

ADD, JOIN = "add_in_place", "identity"
"""Operator that adds a gradient to the sum so far, and operator that copies an output with a batch axis."""
JOINED = "joined"
"""Name of the operations that combine micro-batches."""


@dataclass(frozen=True)
class Combined:
    """The program of one micro-batch, extended by operations that combine its outputs with earlier micro-batches."""

    program: Program
    value_of: dict[int, int]
    """For each output of the original model, the value of the combined program that replaces it."""


def combined_outputs(model: Distributed) -> Combined:
    """Add operations that combine a micro-batch's outputs with earlier ones: gradients are added, other outputs are
    copied.

    As in `Partition`, an output is combined just before the next computation of the program.
    """
    return _Combining(model).combined()


class _Combining:
    def __init__(self, model: Distributed) -> None:
        self._model, self._program = model, model.program
        self._types, self._inputs, self._ops = list(self._program.types), list(self._program.inputs), list[Op]()
        self._place = {value: i for i, value in enumerate(self._program.outputs)}
        self._pieces: list[Piece] = list(model.outputs)
        self._instead: dict[int, int] = {}

    def combined(self) -> Combined:
        """Return the program of the micro-batch with the combining operations."""
        changed = {v for op in self._program.ops if find_operator(op.kind).in_place for v in op.outputs}
        waiting = list[tuple[int, Tag]]()
        for op in self._program.ops:
            if waiting and not find_operator(op.kind).pattern:
                self._combine(waiting)
                waiting = []
            self._ops.append(op)
            waiting += [(v, op.tag) for v in op.outputs if v in self._place and not self._stays(v, changed)]
        self._combine(waiting)
        outputs = tuple(self._instead.get(value, value) for value in self._program.outputs)
        program = replace(
            self._program,
            types=tuple(self._types),
            inputs=tuple(self._inputs),
            ops=tuple(self._ops),
            outputs=outputs,
            names={},
        )
        return Combined(program, self._instead)

    def _stays(self, value: int, changed: set[int]) -> bool:
        """Return whether an output has a batch axis and was changed in place.

        Each micro-batch keeps its own such output.
        """
        return value in changed and self._joins(value)

    def _joins(self, value: int) -> bool:
        return self._model.role_of(self._pieces[self._place[value]]).batch_axis is not None

    def _combine(self, waiting: Sequence[tuple[int, Tag]]) -> None:
        for value, tag in sorted(waiting, key=lambda each: self._place[each[0]]):
            joins = self._joins(value)
            taken: tuple[int, ...] = (value,)
            if not joins:
                taken = (self._new(value), value)
                self._inputs.append(taken[0])
            made = self._instead[value] = self._new(value)
            self._ops.append(Op(JOIN if joins else ADD, taken, (made,), (), replace(tag, name=JOINED)))

    def _new(self, like: int) -> int:
        """Return a new value with the type of `like`."""
        self._types.append(self._types[like])
        return len(self._types) - 1
