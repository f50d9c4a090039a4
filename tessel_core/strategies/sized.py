"""Programs of layers for any number of samples: their types, and the seconds of their operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Attributes
from tessel_core.ir.types import TensorType, interned
from tessel_core.strategies.structure import Structure

Column = NDArray[np.float64]
Price = Callable[[str, Attributes, Sequence[TensorType], Sequence[TensorType]], float]
"""Returns the seconds of an operation: kind, attributes, types of its inputs and of its outputs."""
Axes = Sequence[tuple[bool, ...]]
"""For each value and axis, whether the size is proportional to the number of samples. Other sizes are constant."""


def sample_axes(one: Sequence[TensorType], other: Sequence[TensorType], rows: tuple[int, int]) -> Axes | None:
    """Return the axes along which a program's values have samples, given the types for two numbers of samples.

    Return None if a size is neither constant nor proportional.
    """
    found = list[tuple[bool, ...]]()
    for first, second in zip(one, other, strict=True):
        grows = _grows(first, second, rows)
        if grows is None:
            return None
        found.append(grows)
    return found


def _grows(one: TensorType, other: TensorType, rows: tuple[int, int]) -> tuple[bool, ...] | None:
    """Return the axes of one value, or None if a size is neither constant nor proportional."""
    if one.dtype != other.dtype or len(one.shape) != len(other.shape):
        return None
    pairs = list(zip(one.shape, other.shape, strict=True))
    fits = all(first == second or first * rows[1] == second * rows[0] for first, second in pairs)
    return tuple(first != second for first, second in pairs) if fits else None


class SizedTypes:
    """The types of a program's values for any number of samples, from those for `rows` samples.

    Without `axes`, only the types for `rows` samples are known.
    """

    def __init__(self, rows: int, types: Sequence[TensorType], axes: Axes | None) -> None:
        self._rows, self.axes = rows, axes
        keys = [(id(each), grows) for each, grows in zip(types, axes or [()] * len(types), strict=True)]
        number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        self.kind = [number[key] for key in keys]
        """Index of each value's type in the answers of `at`."""
        different = dict(zip(keys, types, strict=True))
        self._types = [(of_type, any(grows), grows) for (_, grows), of_type in different.items()]
        self._found: dict[int, list[TensorType] | None] = {rows: [of_type for of_type, *_ in self._types]}

    def at(self, rows: int) -> list[TensorType] | None:
        """Return the different types for `rows` samples. None if they are not known."""
        if rows not in self._found:
            self._found[rows] = None if self.axes is None else self._new(rows)
        return self._found[rows]

    def _new(self, rows: int) -> list[TensorType] | None:
        found = list[TensorType]()
        for of_type, changes, grows in self._types:
            if changes:
                sizes = zip(of_type.shape, grows, strict=True)
                shape = [divmod(size * rows, self._rows) if along else (size, 0) for size, along in sizes]
                if any(rest for _, rest in shape):
                    return None
                found.append(interned(of_type.shaped(tuple([size for size, _ in shape]))))
            else:
                found.append(of_type)
        return found


class SizedProgram:
    """The program of one micro-batch for any number of samples.

    `model` has the operations' attributes. It may be another program of the same structure than `structure.model`.
    """

    def __init__(self, structure: Structure, model: Distributed, types: SizedTypes) -> None:
        self.structure, self.model, self._types = structure, model, types

    @cached_property
    def _kinds(self) -> list[int]:
        """Index of each value's type in the answers of `SizedTypes.at`.

        An output that is combined with earlier micro-batches has the type of the output of one micro-batch.
        """
        found = [*self._types.kind, *[0] * (len(self.structure.program.types) - len(self._types.kind))]
        for value, like in self.structure.combined_types.items():
            found[value] = found[like]
        return found

    @cached_property
    def _groups(self) -> tuple[list[tuple[str, Attributes, tuple[int, ...], tuple[int, ...]]], list[int]]:
        """Return the different operations (kind, attributes, types of inputs and of outputs), and that of each."""
        kinds, number = self._kinds, dict[object, int]()
        every, group_of = list[tuple[str, Attributes, tuple[int, ...], tuple[int, ...]]](), list[int]()
        for op, attributes in zip(self.structure.program.ops, self._attributes, strict=True):
            taken = tuple([kinds[value] for value in op.inputs])
            group = number.setdefault((op.kind, attributes, taken), len(number))
            if group == len(every):
                every.append((op.kind, attributes, taken, tuple([kinds[value] for value in op.outputs])))
            group_of.append(group)
        return every, group_of

    @property
    def _attributes(self) -> list[Attributes]:
        """The attributes of each operation. Operations that combine micro-batches have none."""
        own, combining = iter(self.model.program.ops), self.structure.combined_types
        return [
            () if any(value in combining for value in op.outputs) else next(own).attributes
            for op in self.structure.program.ops
        ]

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
