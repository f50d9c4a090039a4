"""Find how each value is divided among devices, one operation after the other [Xu 2021, GSPMD].

Each value is whole on every device, divided along an axis, or a sum with one term per device. This is its state. A
dimension of parallelism defines the states of inputs, the states that each operator needs and returns, and the states
of complete sums. Collectives convert a value from one state to another. The result is the program of one device
(`expansion.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece, Role, divided
from tessel_core.ir.operators.attributes import integers
from tessel_core.ir.operators.operator import Types, Values
from tessel_core.ir.program import Attributes, AttributeValue, Op, Program, Tag
from tessel_core.ir.transforms.expansion import EXPERT, along, collective
from tessel_core.ir.transforms.gradients import WEIGHT_PHASE


@dataclass(frozen=True, slots=True)
class State:
    """How a value is divided: "whole" on every device, a "part" along an axis on each, or a "sum" with one term on
    each.

    A value with the state "own" belongs to one device, and no other device uses it.
    """

    how: str
    axis: int = 0


WHOLE, SUM, OWN = State("whole"), State("sum"), State("own")

States = Sequence[State]
Spread = tuple[list[State], list[State]]
"""How an operator needs its inputs to be divided, and how its outputs are divided."""


class Sharding(ABC):
    """A dimension of parallelism.

    It rewrites a program of one device as the program that each of `degree` devices runs.
    """

    over: str
    """Name of the dimension of parallelism."""
    balanced = False
    """Whether a divided input gives each device one chunk from each end of its axis (`Cut.balanced`)."""
    gathers_again = False
    """Whether the backward pass gathers values again that the forward pass gathered.

    The gathered values are then not kept.
    """

    def __init__(self, model: Distributed, degree: int) -> None:
        self.model, self.degree = model, degree
        self.source: Program = model.program
        self.build = ProgramBuilder(self.source.name)
        self.values: dict[int, int] = {}
        self.state: dict[int, State] = {}
        self._made_with: dict[int, Tag] = {}
        """For each value, the tag of the operation that computes it."""
        self._converted: dict[tuple[int, State, bool], tuple[int, str]] = {}
        """For each value, wanted state and pass, the converted value and the phase in which it was converted."""
        outputs = zip(self.source.outputs, model.outputs, strict=True)
        taken = self.source.uses
        self._summed_later = {v for v, piece in outputs if model.role_of(piece).gradient_of and not taken[v]}
        """Gradients that no operation of this program uses. Their sums are taken after the last micro-batch."""

    @abstractmethod
    def axis_of(self, value: int, role: Role) -> int | None:
        """Return the axis along which an input is divided, or None if it is whole on every device."""

    @abstractmethod
    def spread(self, op: Op, states: States, types: Types, values: Values) -> Spread:
        """Return how an operator needs its inputs to be divided, and how its outputs are divided.

        Raises InputError if there is no rule for the operator.
        """

    def grain_of(self, role: Role) -> int:
        """Return the number of neighbours along the divided axis that stay on one device."""
        return 1

    def landing(self, value: int) -> State:
        """Return how a value is divided after its terms have been summed over devices."""
        return WHOLE

    def rewritten(self, op: Op) -> bool:
        """Replace an operation by others and return True, or return False to keep it."""
        return False

    def placed(self, op: Op, needed: States, made: States) -> dict[str, AttributeValue]:
        """Return additional attributes of an operation, such as the index of the part that the device has."""
        return {}

    def sharded(self) -> Distributed:
        """Convert the model of one device to the program that each of the devices runs."""
        inputs = [self._input(value, piece) for value, piece in self.model.piece_of.items()]
        for op in self.source.ops:
            if not self.rewritten(op):
                self._add(op)
        for value in self.source.outputs:
            if value not in self._summed_later:
                self.land(value)
        self._cut_like_weights()
        pairs = zip(self.source.outputs, self.model.outputs, strict=True)
        pieces = [self._piece(piece, self.state[value]) for value, piece in pairs]
        program = self.build.finish([self.values[value] for value in self.source.outputs])
        return Distributed(program, tuple(inputs), tuple(pieces), self.model.roles)

    def _cut_like_weights(self) -> None:
        """Divide a gradient that is whole if the device has only a part of its weight."""
        weights = {piece.name: value for value, piece in self.model.piece_of.items()}
        for value, piece in zip(self.source.outputs, self.model.outputs, strict=True):
            weight = weights.get(self.model.role_of(piece).gradient_of)
            if weight is not None and self.state[value] == WHOLE and self.state[weight].how == "part":
                wanted = self.state[weight]
                self.values[value] = self.converted(value, wanted, self._made_with[value])
                self.state[value] = wanted

    def _input(self, value: int, piece: Piece) -> Piece:
        role, of_type = self.model.role_of(piece), self.source.types[value]
        own = any(cut.over == EXPERT for cut in piece.cuts)
        axis = None if own else self.axis_of(value, role)
        state = OWN if own else WHOLE if axis is None else State("part", axis)
        if axis is not None:
            of_type = divided(of_type, axis, self.degree, piece.name, self.grain_of(role))
        self.values[value] = self.build.input(self.source.value_name(value), of_type)
        self.state[value] = state
        return self._piece(piece, state)

    def _piece(self, piece: Piece, state: State) -> Piece:
        if state == SUM:
            return replace(piece, sums=(*piece.sums, self.over))
        if state.how != "part":
            return piece
        return along(piece, state.axis, self.over, self.degree, balanced=self.balanced)

    def _add(self, op: Op) -> None:
        types, values = self.source.types_of(op.inputs), dict(op.attributes)
        if op.kind == "add" and {self.state[value] for value in op.inputs} == {SUM} and len(set(types)) == 1:
            # Add the terms on each device before the sum over devices.
            (value,) = op.outputs
            self.values[value] = self.build.one("add", [self.values[each] for each in op.inputs], op.tag)
            self.state[value], self._made_with[value] = SUM, op.tag
            return
        for value in op.inputs:
            self.land(value)
        needed, made = self.spread(op, [self.state[value] for value in op.inputs], types, values)
        taken = [self.converted(value, state, op.tag) for value, state in zip(op.inputs, needed, strict=True)]
        attributes = self._of_one_device(op, made)
        if more := self.placed(op, needed, made):
            attributes = tuple(sorted((dict(attributes) | more).items()))
        each = self.build.append(op.kind, taken, attributes, op.tag)
        for value, local, state in zip(op.outputs, each, made, strict=True):
            self.values[value], self.state[value], self._made_with[value] = local, state, op.tag

    def land(self, value: int) -> None:
        """Replace a value that is a sum by the total over all devices. Other values do not change."""
        if self.state[value] != SUM:
            return
        state, tag = self.landing(value), self._made_with[value]
        kind = "allreduce" if state == WHOLE else "reduce_scatter"
        self.values[value] = self._together(kind, self.values[value], tag, state)
        self.state[value] = state

    def _together(self, kind: str, local: int, tag: Tag, state: State) -> int:
        axis: dict[str, AttributeValue] = {} if state.how != "part" else {"axis": state.axis}
        return self.build.one(kind, [local], tag, **axis, **collective(self.over, self.degree))

    def _of_one_device(self, op: Op, made: States) -> Attributes:
        """Return an operation's attributes in the program of one device.

        The shape of a `reshape` becomes that of the part.
        """
        if op.kind != "reshape" or made[0].how != "part":
            return op.attributes
        shape, axis = list(integers(dict(op.attributes), "shape")), made[0].axis
        if shape[axis] > 0:
            shape[axis] = divided(self.source.types[op.outputs[0]], axis, self.degree, "reshape").shape[axis]
        return (("shape", tuple(shape)),)

    def converted(self, value: int, wanted: State, tag: Tag) -> int:
        """Return the value divided as `wanted`. The conversion is added at the first call."""
        state = self.state[value]
        if wanted in (state, OWN) or state == OWN:
            return self.values[value]
        key = value, wanted, self.gathers_again and tag.phase != "forward"
        if key not in self._converted or self._converted[key][1] == WEIGHT_PHASE != tag.phase:
            self._converted[key] = self.convert(value, state, wanted, tag), tag.phase
        return self._converted[key][0]

    def convert(self, value: int, state: State, wanted: State, tag: Tag) -> int:
        """Add a conversion and return its result: gather a value, divide it, or divide it along another axis."""
        local = self.values[value]
        if state.how == wanted.how == "part" and self._divides(local, wanted.axis):
            return self.build.one(
                "alltoall", [local], tag, axis=wanted.axis, joined=state.axis, **collective(self.over, self.degree)
            )
        if state.how == "part":
            local = self._together("allgather", local, tag, state)
        if wanted.how == "part":
            local = self.build.one("part", [local], tag, axis=wanted.axis, parts=self.degree, index=0, over=self.over)
        return local

    def _divides(self, value: int, axis: int) -> bool:
        return self.build.type_of(value).shape[axis] % self.degree == 0


def one_device(model: Distributed, what: str) -> None:
    """Raise InputError for a program of several devices."""
    if len(model.program.devices) != 1:
        raise InputError(what, f"needs a program of one device, got {len(model.program.devices)}")
