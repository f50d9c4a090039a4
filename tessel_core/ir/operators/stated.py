"""Operators that have a cost and a memory size but no computation, such as the blocks of a micro-batch plan.

Bytes are counted as `int8` tensors. A tensor of 0 bytes is a token: it only signals that an operation has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from tessel_core.errors import InputError
from tessel_core.ir.operators.attributes import device_list, integer, integers, number
from tessel_core.ir.operators.operator import (
    Array,
    Arrays,
    Operator,
    Reverse,
    Types,
    Values,
    Work,
    WriteOperation,
    need,
)
from tessel_core.ir.operators.rules import count
from tessel_core.ir.operators.work import no_work
from tessel_core.ir.types import TensorType
from tessel_core.units import MAGNITUDE


def token(device: int) -> TensorType:
    """Return the type of a token, a tensor of 0 bytes, on a device."""
    return TensorType("int8", (0,), device)


def _seconds(values: Values) -> None:
    need(number(values, "seconds") >= 0, f"seconds must be at least 0, got {values['seconds']}")
    need(number(values, "seconds") <= MAGNITUDE, f"seconds must be at most 2^53, got {values['seconds']}")


def _block(types: Types, values: Values) -> tuple[TensorType, ...]:
    _seconds(values)
    devices, sizes, places = device_list(values), integers(values, "bytes"), integers(values, "on")
    need(len(types) > 0, "needs at least one input")
    foreign = [each for each in types if each.device not in devices]
    need(not foreign, f"needs inputs from its devices {devices} only, got {', '.join(map(str, foreign))}")
    need(len(sizes) == len(places), f"bytes and on must have equal lengths, got {len(sizes)} and {len(places)}")
    need(set(places) <= set(devices), f"on must list some of its devices {devices}, got {places}")
    held = (TensorType("int8", (size,), device) for size, device in zip(sizes, places, strict=True))
    return token(devices[0]), *held


def _block_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    """Return arrays of zeros that need no memory, because a plan does not define the computation of a block."""
    return [np.broadcast_to(np.int8(0), (size,)) for size in (0, *integers(values, "bytes"))]


def _delay(types: Types, values: Values) -> tuple[TensorType, ...]:
    _seconds(values)
    count(types, 1)
    return (token(integer(values, "to")),)


def _delay_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    return [np.zeros(0, np.int8)]


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
    foreign = [each for each in types if each.device != device]
    need(not foreign, f"needs inputs from its device {device} only, got {', '.join(map(str, foreign))}")
    fits = len(dtypes) == len(ranks) > 0 and sum(ranks) == len(sizes)
    need(fits, "needs one dtype and rank per output, and one size per axis of each output")
    ends = list(accumulate(ranks))
    shapes = (sizes[end - rank : end] for rank, end in zip(ranks, ends, strict=True))
    return tuple(TensorType(dtype, shape, device) for dtype, shape in zip(dtypes, shapes, strict=True))


def _opaque_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    raise InputError(
        f"operator {values['operator']}", "has costs but no computation, so the program cannot be executed"
    )


def _opaque_work(types: Types, outputs: Types, values: Values) -> Work:
    return Work(number(values, "flops"), number(values, "bytes"))


def opaque_attributes(operator: str, flops: float, moved: float, made: Types, device: int) -> Values:
    """Return the attributes of an opaque operation whose outputs have the types `made`."""
    return {
        "bytes": moved,
        "dtypes": " ".join(each.dtype for each in made),
        "flops": flops,
        "operator": operator,
        "ranks": tuple(len(each.shape) for each in made),
        "sizes": tuple(size for each in made for size in each.shape),
        "to": device,
    }


def _opaque_gradients(back: Reverse) -> list[int | None]:
    """Gradient rule: the forward's work once for the gradients of weights and once for those of activations.

    Without weights, gradients of several activations cost the forward's work twice, as in a product.
    """
    found: list[int | None] = [None] * len(back.inputs)
    taken = (*back.inputs, *(each for each in back.gradients if each is not None))
    wanted = [place for place, each in enumerate(back.wanted) if each]
    weights = [place for place in wanted if back.weights[place]]
    others = [place for place in wanted if not back.weights[place]]

    def write(add: WriteOperation, places: list[int], forwards: int) -> None:
        if places:
            flops, moved = (forwards * number(back.values, name) for name in ("flops", "bytes"))
            types = [back.types[place] for place in places]
            operator, device = f"{back.values['operator']}_backward", integer(back.values, "to")
            made = add("opaque", taken, **opaque_attributes(operator, flops, moved, types, device))
            for place, value in zip(places, made, strict=True):
                found[place] = value

    if back.split:
        write(back.add, others, 1 if weights else min(len(others), 2))
        write(back.add_for_weight, weights, 1)
    else:
        write(back.add, wanted, min(len(wanted), 2))
    return found


_BLOCK = ("bytes", "devices", "on", "seconds")
_OPAQUE = ("bytes", "dtypes", "flops", "operator", "ranks", "sizes", "to")

STATED = (
    Operator("block", _block, _block_compute, no_work, _BLOCK, stated=True),
    Operator("delay", _delay, _delay_compute, no_work, ("seconds", "to"), "delay", stated=True, occupies=False),
    Operator("opaque", _opaque, _opaque_compute, _opaque_work, _OPAQUE, gradient=_opaque_gradients),
)
"""The operators of this module:

- A `block` occupies all of its `devices` at once. It returns a token on the first device. It also returns tensors with
  the sizes in `bytes` on the devices in `on`.
- A `delay` returns a token after `seconds` and keeps no device busy.
- An `opaque` operation stands for an operator that has no entry in the table. Its attributes give its cost and output
  types. `operator` is its name in the cost model, and `to` is its device. The outputs have `dtypes` and `ranks`.
  `sizes` lists the sizes of all outputs one after the other.
"""
