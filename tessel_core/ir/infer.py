"""Types of an operation's outputs, from those of its inputs."""

from __future__ import annotations

from collections.abc import Sequence

from tessel_core.errors import InputError
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Attributes
from tessel_core.ir.types import TensorType

_known: dict[TensorType, TensorType] = {}


def interned(of_type: TensorType) -> TensorType:
    """The one object for all types that equal it, so that types can be told apart by identity."""
    return _known.setdefault(of_type, of_type)


def inferred(kind: str, types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    """The output types; equal ones are the same object.

    Raises
    ------
    InputError
        For an unknown kind, a missing or unknown attribute, or types that do not go together.
    """
    operator, values = find_operator(kind), dict(attributes)
    missing = [name for name in operator.attributes if name not in values]
    unknown = [name for name in values if name not in operator.attributes]
    if missing or unknown:
        why = f"has no attribute {missing[0]}" if missing else f"takes no attribute {unknown[0]}"
        raise InputError(kind, why)
    return tuple(map(interned, operator.infer(types, values)))
