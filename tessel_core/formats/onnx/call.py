"""One use of an operator, as formulas see it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tessel_core.formats.onnx.tensors import Shape

Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """Shapes by position, None where an optional tensor is left out, and the attributes that the node spells out."""

    inputs: tuple[Shape | None, ...]
    outputs: tuple[Shape | None, ...]
    attributes: Mapping[str, Attribute]

    def has(self, position: int) -> bool:
        """Whether the optional input at `position` is there."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def input(self, position: int) -> Shape:
        """Shape of an input that the operator must have; raises IndexError where it does not."""
        found = self.inputs[position]
        if found is None:
            raise IndexError(position)
        return found

    @property
    def read(self) -> int:
        """Elements of the first input."""
        return math.prod(self.input(0))

    @property
    def made(self) -> int:
        """Elements of the first output that is there."""
        return next((math.prod(shape) for shape in self.outputs if shape is not None), 0)

    def integer(self, name: str, default: int) -> int:
        found = self.attributes.get(name, default)
        return found if isinstance(found, int) else default

    def integers(self, name: str) -> tuple[int, ...]:
        found = self.attributes.get(name, ())
        return tuple(each for each in found if isinstance(each, int)) if isinstance(found, tuple) else ()

    def text(self, name: str, default: str) -> str:
        found = self.attributes.get(name, default)
        return found if isinstance(found, str) else default


Formula = Callable[[Call], int]
"""FLOPs of one call; a multiplication and an addition are two."""
