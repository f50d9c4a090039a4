"""Builder that writes a program operation by operation and infers types."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

from tessel_core.errors import InputError
from tessel_core.ir.operators import inferred
from tessel_core.ir.program import UNTAGGED, Attributes, AttributeValue, Op, Program, Tag
from tessel_core.ir.types import TensorType, interned


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause Python's search for unreachable reference cycles.

    Building a program creates no such cycles, and the search would take a fifth of the building time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@lru_cache(maxsize=50_000)
def _inferred(kind: str, types: tuple[TensorType, ...], attributes: Attributes) -> tuple[TensorType, ...]:
    """Return `inferred`, from a cache that all programs share: many programs have the same operations."""
    return inferred(kind, types, attributes)


class ProgramBuilder:
    """Build a program. A value is represented by its number. Equal types share one object, which saves memory."""

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
        """Return a builder that adds to an existing program. The values of that program keep their numbers."""
        build = cls(program.name)
        build._types = list(map(interned, program.types))
        build._inputs, build._ops = list(program.inputs), list(program.ops)
        build._names = dict(program.names)
        return build

    def input(self, name: str, of_type: TensorType) -> int:
        """Add a program input and return its value."""
        value = self._new((interned(of_type),))[0]
        self._inputs.append(value)
        self._names[value] = name
        return value

    def add(
        self, kind: str, inputs: Sequence[int], tag: Tag = UNTAGGED, **attributes: AttributeValue
    ) -> tuple[int, ...]:
        """Add an operation and return its outputs. Raises InputError with the operation's name if its inputs do not
        fit."""
        return self.append(kind, inputs, tuple(sorted(attributes.items())), tag)

    def append(
        self,
        kind: str,
        inputs: Sequence[int],
        attributes: Attributes = (),
        tag: Tag = UNTAGGED,
        names: Iterable[str] = (),
    ) -> tuple[int, ...]:
        """Add an operation as `add` does.

        `attributes` must be sorted by name. `names` are the names of the outputs, if any.
        """
        attributes = self._attributes.setdefault(attributes, attributes)
        types = tuple(self._types[value] for value in inputs)
        key = (kind, attributes, *map(id, types))
        outputs = self._known.get(key)
        if outputs is None:
            try:
                outputs = self._known[key] = _inferred(kind, types, attributes)
            except InputError as error:
                raise InputError(f"operation {len(self._ops)} ({kind})", error.why) from None
        made = self._new(outputs)
        self._ops.append(Op(kind, tuple(inputs), made, attributes, tag))
        if names:
            self._names.update(zip(made, names, strict=False))
        return made

    def one(self, kind: str, inputs: Sequence[int], tag: Tag = UNTAGGED, **attributes: AttributeValue) -> int:
        """Add an operation with one output and return that output."""
        (made,) = self.append(kind, inputs, tuple(sorted(attributes.items())), tag)
        return made

    def type_of(self, value: int) -> TensorType:
        """Return the type of a value."""
        return self._types[value]

    @property
    def operations(self) -> int:
        """Number of operations added so far."""
        return len(self._ops)

    def finish(self, outputs: Sequence[int]) -> Program:
        """Return the program with these outputs."""
        return Program(
            self.name, tuple(self._types), tuple(self._inputs), tuple(self._ops), tuple(outputs), dict(self._names)
        )

    def _new(self, types: Sequence[TensorType]) -> tuple[int, ...]:
        first = len(self._types)
        self._types.extend(types)
        return tuple(range(first, len(self._types)))
