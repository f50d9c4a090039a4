"""Attributes that change what an operation costs and not what it means: formats, casts, kernels."""

from __future__ import annotations

from tessel_core.ir.operators.attributes import integers
from tessel_core.ir.operators.operator import Types, Values, need

FORMAT, CASTS, FUSED, KERNEL = "format", "casts", "fused", "attention_kernel"
FP8 = "fp8"
FLASH2 = "flash2"
ATTENTIONS = ("attention", "attention_bias", "attention_block")
"""Attention that one kernel computes; gradients of these have kernels, too."""
OPERANDS = {
    **dict.fromkeys(("matmul", "linear", "matmul_input_grad"), (0, 1)),
    "matmul_weight_grad": (0, 2),
    "matmul_grad": (0, 1, 2),
    **dict.fromkeys(("grouped_matmul", "grouped_matmul_input_grad"), (0, 2)),
    "grouped_matmul_weight_grad": (0, 3),
    "grouped_matmul_grad": (0, 2, 3),
}
"""Products that may be computed in FP8, and which of their inputs are multiplied."""
CAST_BYTES, SCALED_CAST_BYTES = 3, 5
"""Bytes that are moved per number in 16 bits which becomes one byte: read and written; and read before for the largest
magnitude, from which the scale follows."""


def check_costs(kind: str, types: Types, outputs: Types, values: Values) -> None:
    """Raise InputError for attributes of costs that an operation cannot have.

    `format` of a product is "fp8".  `casts` are the bytes moved per number of each of its inputs to cast it; without
    them every operand is scaled and cast.  `fused` are the launches of a kernel that does several operations, counted
    at the first of them, then how many times the operation reads each input from memory and writes each output to it.
    `attention_kernel` of fused attention is "flash2".
    """
    if FORMAT in values:
        need(kind in OPERANDS, f"takes no {FORMAT}: only products of linear layers and experts have one")
        need(values[FORMAT] == FP8, f"{FORMAT} must be {FP8}, got {values[FORMAT]!r}")
    for name, room in ((CASTS, len(types)), (FUSED, 1 + len(types) + len(outputs))):
        if name in values:
            need(len(integers(values, name, 0)) == room, f"{name} must be {room} numbers, got {values[name]}")
    if KERNEL in values:
        fits = kind.removesuffix("_grad") in ATTENTIONS and values[KERNEL] == FLASH2
        need(fits, f"{KERNEL} must be {FLASH2}, of fused attention, got {values[KERNEL]!r}")
    need(CASTS not in values or FORMAT in values, f"{CASTS} are of products with a {FORMAT}")


def casts_of(kind: str, types: Types, values: Values) -> tuple[float, int]:
    """Bytes that the casts of a product's operands move, and the number of their kernels; (0, 0) without a format."""
    if FORMAT not in values:
        return 0.0, 0
    usual = tuple(SCALED_CAST_BYTES if place in OPERANDS[kind] else 0 for place in range(len(types)))
    per_number = integers(values, CASTS) if CASTS in values else usual
    moved = sum(each * of.elements for each, of in zip(per_number, types, strict=True))
    return float(moved), sum(1 + (each > CAST_BYTES) for each in per_number if each)


def fused_bytes(types: Types, outputs: Types, values: Values) -> float:
    """Bytes that an operation moves as a part of its fused kernel."""
    times = integers(values, FUSED)[1:]
    return float(sum(each * of.bytes for each, of in zip(times, (*types, *outputs), strict=True)))
