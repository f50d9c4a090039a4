"""Programs of layers for any number of samples: their types, and the seconds of their operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Attributes
from tessel_core.ir.transforms.combining import JOINED
from tessel_core.ir.types import TensorType, interned
from tessel_core.strategies.structure import Structure

Column = NDArray[np.float64]
Price = Callable[[str, Attributes, Sequence[TensorType], Sequence[TensorType]], float]
"""Returns the seconds of an operation: kind, attributes, types of its inputs and of its outputs."""


class SizedTypes:
    """The types of a program's values for any number of samples.

    Each size is constant or proportional to the number of samples. Two programs for different numbers show which.
    """

    def __init__(self, known: Mapping[int, Sequence[TensorType]]) -> None:
        pairs = [(tuple(map(id, pair)), pair) for pair in zip(*known.values(), strict=True)]
        kinds = dict(pairs)
        number = {key: i for i, key in enumerate(kinds)}
        self._known, self._kinds = list(known), list(kinds.values())
        self.kind = [number[key] for key, _ in pairs]
        """Index of each value's type in the answers of `at`."""
        self._found: dict[int, list[TensorType] | None] = {}

    def at(self, rows: int) -> list[TensorType] | None:
        """Return the different types for `rows` samples. None if they do not follow from the known programs."""
        if rows not in self._found:
            found = [self._sized(kinds, rows) for kinds in self._kinds]
            self._found[rows] = None if None in found else found  # type: ignore[assignment]
        return self._found[rows]

    def _sized(self, kinds: tuple[TensorType, ...], rows: int) -> TensorType | None:
        if rows in self._known:
            return kinds[self._known.index(rows)]
        first, shape = kinds[0], list[int]()
        if len(kinds) < 2 or len(first.shape) != len(kinds[1].shape) or first.dtype != kinds[1].dtype:
            return None
        for one, other in zip(first.shape, kinds[1].shape, strict=True):
            size, rest = (one, 0) if one == other else divmod(one * rows, self._known[0])
            if rest or one * self._known[1] != other * self._known[0] and one != other:
                return None
            shape.append(size)
        return interned(first.shaped(tuple(shape)))


class SizedProgram:
    """The program of one micro-batch for any number of samples."""

    def __init__(self, structure: Structure, types: SizedTypes) -> None:
        self.structure, self._types = structure, types

    @cached_property
    def _kinds(self) -> list[int]:
        """Index of each value's type in the answers of `SizedTypes.at`.

        An output that is combined with earlier micro-batches has the type of the output of one micro-batch.
        """
        program, known = self.structure.program, len(self._types.kind)
        found = [*self._types.kind, *[0] * (len(program.types) - known)]
        for op in program.ops:
            if op.tag.name == JOINED:
                for value in (*op.inputs[:-1], *op.outputs):
                    found[value] = found[op.inputs[-1]] if value >= known else found[value]
        return found

    @cached_property
    def _groups(self) -> tuple[list[tuple[str, Attributes, tuple[int, ...], tuple[int, ...]]], list[int]]:
        """Return the different operations (kind, attributes, types of inputs and of outputs), and that of each."""
        kinds, number = self._kinds, dict[object, int]()
        every, group_of = [], list[int]()
        for op in self.structure.program.ops:
            taken = tuple([kinds[value] for value in op.inputs])
            group = number.setdefault((op.kind, op.attributes, taken), len(number))
            if group == len(every):
                every.append((op.kind, op.attributes, taken, tuple([kinds[value] for value in op.outputs])))
            group_of.append(group)
        return every, group_of

    def types(self, rows: int) -> list[TensorType]:
        """Return the type of each value for `rows` samples."""
        found = self._types.at(rows)
        assert found is not None, "the program is known for this number of samples"
        return [found[kind] for kind in self._kinds]

    def bytes(self, rows: int) -> Column:
        """Return the bytes of each value for `rows` samples."""
        found = self._types.at(rows)
        assert found is not None, "the program is known for this number of samples"
        return np.array([each.bytes for each in found], float)[self._kinds]

    def seconds(self, rows: int, price: Price) -> tuple[Column, Column]:
        """Return the seconds of each operation, and the bytes of temporary memory that it needs."""
        types, (every, group_of) = self._types.at(rows), self._groups
        assert types is not None, "the program is known for this number of samples"
        seconds, spaces = list[float](), [0] * len(every)
        for group, (kind, attributes, taken, made) in enumerate(every):
            inputs = [types[each] for each in taken]
            seconds.append(price(kind, attributes, inputs, [types[each] for each in made]))
            rule = find_operator(kind).workspace
            if rule is not None:
                spaces[group] = round(rule(inputs, dict(attributes)))
        return np.array(seconds)[group_of], np.array(spaces, float)[group_of]
