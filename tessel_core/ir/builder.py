"""Write a program operation by operation; types are inferred."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tessel_core.errors import InputError
from tessel_core.ir.operators import inferred
from tessel_core.ir.program import UNTAGGED, Attributes, AttributeValue, Op, Program, Tag
from tessel_core.ir.types import TensorType, interned


class ProgramBuilder:
    """Values are numbers; equal types are one object, so that programs of a million operations stay small."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._types: list[TensorType] = []
        self._inputs: list[int] = []
        self._ops: list[Op] = []
        self._names: dict[int, str] = {}
        self._known: dict[object, tuple[TensorType, ...]] = {}
        self._attributes: dict[Attributes, Attributes] = {}

    @classmethod
    def resumed(cls, program: Program) -> ProgramBuilder:
        """Goes on where a program ends; its values keep their numbers."""
        build = cls(program.name)
        build._types = list(map(interned, program.types))
        build._inputs, build._ops = list(program.inputs), list(program.ops)
        build._names = dict(program.names)
        return build

    def input(self, name: str, of_type: TensorType) -> int:
        """A value that the program is given."""
        value = self._new((interned(of_type),))[0]
        self._inputs.append(value)
        self._names[value] = name
        return value

    def add(
        self, kind: str, inputs: Sequence[int], tag: Tag = UNTAGGED, **attributes: AttributeValue
    ) -> tuple[int, ...]:
        """An operation; its outputs.  InputError, naming it, for inputs that do not go together."""
        return self.append(kind, inputs, tuple(sorted(attributes.items())), tag)

    def append(
        self,
        kind: str,
        inputs: Sequence[int],
        attributes: Attributes = (),
        tag: Tag = UNTAGGED,
        names: Iterable[str] = (),
    ) -> tuple[int, ...]:
        """Add an operation as `add` does, with sorted attributes and a name for each output."""
        attributes = self._attributes.setdefault(attributes, attributes)
        types = tuple(self._types[value] for value in inputs)
        key = (kind, attributes, *map(id, types))
        outputs = self._known.get(key)
        if outputs is None:
            try:
                outputs = self._known[key] = inferred(kind, types, attributes)
            except InputError as error:
                raise InputError(f"operation {len(self._ops)} ({kind})", error.why) from None
        made = self._new(outputs)
        self._ops.append(Op(kind, tuple(inputs), made, attributes, tag))
        self._names.update(zip(made, names, strict=False))
        return made

    def one(self, kind: str, inputs: Sequence[int], tag: Tag = UNTAGGED, **attributes: AttributeValue) -> int:
        """The only output of an operation."""
        (made,) = self.append(kind, inputs, tuple(sorted(attributes.items())), tag)
        return made

    def type_of(self, value: int) -> TensorType:
        """The type of a value."""
        return self._types[value]

    @property
    def operations(self) -> int:
        """How many operations there are so far."""
        return len(self._ops)

    def finish(self, outputs: Sequence[int]) -> Program:
        """The program that returns these values."""
        return Program(
            self.name, tuple(self._types), tuple(self._inputs), tuple(self._ops), tuple(outputs), dict(self._names)
        )

    def _new(self, types: Sequence[TensorType]) -> tuple[int, ...]:
        first = len(self._types)
        self._types.extend(types)
        return tuple(range(first, len(self._types)))
