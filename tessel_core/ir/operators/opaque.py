"""An operator that says what it costs and makes, and not what it computes: for what the table has no entry."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from tessel_core.errors import InputError
from tessel_core.ir.operators.operator import (
    Array,
    Arrays,
    Operator,
    Types,
    Values,
    Work,
    integer,
    integers,
    need,
    number,
)
from tessel_core.ir.types import TensorType


def _text(values: Values, name: str) -> str:
    value = values[name]
    need(isinstance(value, str), f"{name} must be a text, got {value!r}")
    return str(value)


def _opaque(types: Types, values: Values) -> tuple[TensorType, ...]:
    for name in ("bytes", "flops"):
        need(number(values, name) >= 0, f"{name} must be at least 0, got {values[name]}")
    _text(values, "operator")
    device, dtypes = integer(values, "to"), _text(values, "dtypes").split()
    ranks, sizes = integers(values, "ranks", 0), integers(values, "sizes", 0)
    strange = [each for each in types if each.device != device]
    need(not strange, f"takes inputs from its device {device} only, got {', '.join(map(str, strange))}")
    fits = len(dtypes) == len(ranks) > 0 and sum(ranks) == len(sizes)
    need(fits, "dtypes and ranks must be one for each output, and sizes one for each of their axes")
    ends = list(accumulate(ranks))
    shapes = (sizes[end - rank : end] for rank, end in zip(ranks, ends, strict=True))
    return tuple(TensorType(dtype, shape, device) for dtype, shape in zip(dtypes, shapes, strict=True))


def _opaque_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    raise InputError(f"operator {values['operator']}", "is known by its costs only, so the program cannot be executed")


OPAQUE = (
    Operator(
        "opaque",
        _opaque,
        _opaque_compute,
        lambda types, outputs, values: Work(number(values, "flops"), number(values, "bytes")),
        attributes=("bytes", "dtypes", "flops", "operator", "ranks", "sizes", "to"),
    ),
)
"""`operator` names it, as the cost model calls it; outputs have `dtypes`, so many axes each as `ranks` say, and their
sizes one after the other; it runs on device `to`."""
