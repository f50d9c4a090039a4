"""Sizes that a file leaves open: named ones such as `batch`, and unnamed ones as `input[axis]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tessel_core.errors import InputError
from tessel_core.model.checks import check_integer

if TYPE_CHECKING:
    import onnx

_ELSE = 1
_OPEN = -1
"""What some exporters write where a size is open."""


class OpenSizes:
    """What open sizes are taken as: what the caller says, else 1."""

    def __init__(self, given: Mapping[str, int]) -> None:
        for name, size in given.items():
            check_integer("sizes", name, size, least=1)
        self._given = dict(given)
        self._taken = dict[str, int]()

    def close(self, name: str, kind: onnx.TypeProto) -> None:
        """Fill in every open size of graph input `name`; InputError where not even the rank is known, or a size is
        negative."""
        if kind.WhichOneof("value") == "tensor_type" and not kind.tensor_type.HasField("shape"):
            raise InputError(f"input {name}", "has no shape")
        _check(name, kind)
        for axis, size in enumerate(kind.tensor_type.shape.dim):
            if not size.HasField("dim_value") or size.dim_value < 0:
                key = size.dim_param or f"{name}[{axis}]"
                size.dim_value = self._taken.setdefault(key, self._given.get(key, _ELSE))

    def close_known(self, name: str, kind: onnx.TypeProto) -> None:
        """Fill in the sizes that have the name of an input's or a given one, and forget the others' names.

        InputError where a size of the tensor `name` is negative.
        """
        _check(name, kind)
        for size in kind.tensor_type.shape.dim:
            if size.HasField("dim_param") or size.dim_value < 0:
                key = size.dim_param
                size.Clear()
                if key in self._given:
                    self._taken[key] = self._given[key]
                if key in self._taken:
                    size.dim_value = self._taken[key]

    def check_used(self) -> None:
        """Raise InputError for a given size that the file does not ask for."""
        for name in self._given:
            if name not in self._taken:
                known = f"known are {', '.join(self._taken)}" if self._taken else "the file leaves none open"
                raise InputError("sizes", f"no tensor has an open size {name!r}, {known}")

    def warnings(self) -> tuple[str, ...]:
        """One sentence that names the sizes that nobody gave."""
        found = [name for name in self._taken if name not in self._given]
        if not found:
            return ()
        return (f"the file leaves {', '.join(found)} open; {'it is' if len(found) == 1 else 'they are'} taken as 1",)


def _check(name: str, kind: onnx.TypeProto) -> None:
    """Raise InputError for a size that is negative and does not stand for an open one."""
    for axis, size in enumerate(kind.tensor_type.shape.dim):
        if size.dim_value < _OPEN:
            raise InputError(f"tensor {name}", f"has size {size.dim_value} along axis {axis}")
