"""Operators that only say how long they take and what they hold, as the blocks of a micro-batch plan do.

Bytes are counted as `int8` tensors; a tensor of 0 bytes is a token, which says that something is done.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessel_core.ir.operators.operator import (
    Array,
    Arrays,
    Operator,
    Types,
    Values,
    count,
    device_list,
    integer,
    integers,
    need,
    no_work,
    number,
)
from tessel_core.ir.types import TensorType
from tessel_core.units import MAGNITUDE


def token(device: int) -> TensorType:
    """Nothing but the news, on a device."""
    return TensorType("int8", (0,), device)


def _seconds(values: Values) -> None:
    need(number(values, "seconds") >= 0, f"seconds must be at least 0, got {values['seconds']}")
    need(number(values, "seconds") <= MAGNITUDE, f"seconds must be at most 2^53, got {values['seconds']}")


def _block(types: Types, values: Values) -> tuple[TensorType, ...]:
    _seconds(values)
    devices, sizes, places = device_list(values), integers(values, "bytes"), integers(values, "on")
    need(len(types) > 0, "takes at least one input")
    strange = [each for each in types if each.device not in devices]
    need(not strange, f"takes inputs from its devices {devices} only, got {', '.join(map(str, strange))}")
    need(len(sizes) == len(places), f"bytes and on differ in length, {len(sizes)} and {len(places)}")
    need(set(places) <= set(devices), f"on must name some of its devices {devices}, got {places}")
    held = (TensorType("int8", (size,), device) for size, device in zip(sizes, places, strict=True))
    return token(devices[0]), *held


def _block_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    """Zeros without memory of their own: a plan does not say what it computes."""
    return [np.broadcast_to(np.int8(0), (size,)) for size in (0, *integers(values, "bytes"))]


def _delay(types: Types, values: Values) -> tuple[TensorType, ...]:
    _seconds(values)
    count(types, 1)
    return (token(integer(values, "to")),)


STATED = (
    Operator("block", _block, _block_compute, no_work, attributes=("bytes", "devices", "on", "seconds"), stated=True),
    Operator(
        "delay",
        _delay,
        lambda arrays, values: [np.zeros(0, np.int8)],
        no_work,
        "delay",
        attributes=("seconds", "to"),
        stated=True,
        occupies=False,
    ),
)
"""A `block` runs on all of `devices` at once; it makes a token on the first, and tensors of `bytes` where `on` says.
A `delay` tells a device of something so many seconds later, and keeps nobody busy."""
