"""Attributes that change the cost of an operation but not its meaning: formats, casts and kernels."""

from __future__ import annotations

from tessel_core.ir.operators.attributes import integers
from tessel_core.ir.operators.operator import Types, Values, need

FORMAT, CASTS, FUSED, KERNEL = "format", "casts", "fused", "attention_kernel"
FP8 = "fp8"
FLASH2 = "flash2"
ATTENTIONS = ("attention", "attention_bias", "attention_block")
"""Kinds of attention that one fused kernel computes. Their gradients have kernels, too."""
OPERANDS = {
    **dict.fromkeys(("matmul", "linear", "matmul_input_grad"), (0, 1)),
    "matmul_weight_grad": (0, 2),
    "matmul_grad": (0, 1, 2),
    **dict.fromkeys(("grouped_matmul", "grouped_matmul_input_grad"), (0, 2)),
    "grouped_matmul_weight_grad": (0, 3),
    "grouped_matmul_grad": (0, 2, 3),
}
"""Products that may be computed in FP8, with the indices of their factors among the inputs."""
CAST_BYTES, SCALED_CAST_BYTES = 3, 5
"""Bytes moved per 16-bit number that is cast to one byte.

A plain cast reads two bytes and writes one. A scaled cast reads the number a second time, before, to find the largest
magnitude.
"""


def check_costs(kind: str, types: Types, outputs: Types, values: Values) -> None:
    """Raise InputError for cost attributes that an operation cannot have.

    - `format` of a product is "fp8".
    - `casts` are the bytes moved per number of each input to cast it. Without it, every factor is scaled and cast.
    - `fused` describes an operation's part in a fused kernel. It lists the launches, which count at the first
      operation, then how often each input is read and each output is written.
    - `attention_kernel` of fused attention is "flash2".
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
    need(CASTS not in values or FORMAT in values, f"{CASTS} need a {FORMAT}")


def casts_of(kind: str, types: Types, values: Values) -> tuple[float, int]:
    """Return the bytes moved and the kernels run to cast the factors of a product. Both are 0 without a `FORMAT`."""
    if FORMAT not in values:
        return 0.0, 0
    usual = tuple(SCALED_CAST_BYTES if place in OPERANDS[kind] else 0 for place in range(len(types)))
    per_number = integers(values, CASTS) if CASTS in values else usual
    moved = sum(each * of.elements for each, of in zip(per_number, types, strict=True))
    return float(moved), sum(1 + (each > CAST_BYTES) for each in per_number if each)


def fused_bytes(types: Types, outputs: Types, values: Values) -> float:
    """Return the bytes that an operation moves as a part of its fused kernel."""
    times = integers(values, FUSED)[1:]
    return float(sum(each * of.bytes for each, of in zip(times, (*types, *outputs), strict=True)))
