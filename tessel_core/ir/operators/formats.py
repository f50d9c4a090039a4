"""Attributes that change the cost of an operation but not its result: number formats, casts and kernels."""

from __future__ import annotations

from tessel_core.ir.operators.attributes import integers
from tessel_core.ir.operators.operator import Types, Values, need

FORMAT, CASTS, FUSED, KERNEL = "format", "casts", "fused", "attention_kernel"
FP8 = "fp8"
FLASH2 = "flash2"
ATTENTIONS = ("attention", "attention_bias", "attention_block")
"""Operators that one fused attention kernel computes. Their gradients have fused kernels, too."""
OPERANDS = {
    **dict.fromkeys(("matmul", "linear", "matmul_input_grad"), (0, 1)),
    "matmul_weight_grad": (0, 2),
    "matmul_grad": (0, 1, 2),
    **dict.fromkeys(("grouped_matmul", "grouped_matmul_input_grad"), (0, 2)),
    "grouped_matmul_weight_grad": (0, 3),
    "grouped_matmul_grad": (0, 2, 3),
}
"""Products that may be computed in FP8. For each, the indices of its factors among the inputs."""
CAST_BYTES, SCALED_CAST_BYTES = 3, 5
"""Bytes moved to cast one 16-bit number to one byte: by a plain cast, and by a scaled cast.

A plain cast reads two bytes and writes one. A scaled cast first reads the two bytes once more, to find the largest
magnitude.
"""


def check_costs(kind: str, types: Types, outputs: Types, values: Values) -> None:
    """Raise InputError for a cost attribute that the operation cannot have.

    - `format` is "fp8" and belongs to a product.
    - `casts` lists, for each input, the bytes moved per number to cast it. Without this attribute, every factor is
      scaled and cast.
    - `fused` describes an operation's part in a fused kernel: the number of kernel launches, then how often each input
      is read and each output is written. All launches of a kernel count at its first operation.
    - `attention_kernel` is "flash2" and belongs to fused attention.
    """
    if FORMAT in values:
        need(kind in OPERANDS, f"cannot have a {FORMAT}, because it is no product of a linear layer or of experts")
        need(values[FORMAT] == FP8, f"{FORMAT} must be {FP8}, got {values[FORMAT]!r}")
    for name, room in ((CASTS, len(types)), (FUSED, 1 + len(types) + len(outputs))):
        if name in values:
            need(len(integers(values, name, 0)) == room, f"{name} must have {room} entries, got {values[name]}")
    if KERNEL in values:
        fits = kind.removesuffix("_grad") in ATTENTIONS and values[KERNEL] == FLASH2
        need(fits, f"{KERNEL} must be {FLASH2} and belong to fused attention, got {values[KERNEL]!r}")
    need(CASTS not in values or FORMAT in values, f"{CASTS} needs the attribute {FORMAT}")


def casts_of(kind: str, types: Types, values: Values) -> tuple[float, int]:
    """Return the bytes moved and the number of kernels run to cast a product's factors. Both are 0 without `format`."""
    if FORMAT not in values:
        return 0.0, 0
    usual = tuple(SCALED_CAST_BYTES if place in OPERANDS[kind] else 0 for place in range(len(types)))
    per_number = integers(values, CASTS) if CASTS in values else usual
    moved = sum(each * of.elements for each, of in zip(per_number, types, strict=True))
    return float(moved), sum(1 + (each > CAST_BYTES) for each in per_number if each)


def fused_bytes(types: Types, outputs: Types, values: Values) -> float:
    """Return the bytes that the operation itself moves in its fused kernel."""
    times = integers(values, FUSED)[1:]
    return float(sum(each * of.bytes for each, of in zip(times, (*types, *outputs), strict=True)))
