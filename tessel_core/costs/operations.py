"""Convert operations of programs to operators of the cost model."""

from __future__ import annotations

from functools import cache

from tessel_core.costs.kernels import BYTES_OF, PRODUCTS, kernel_of, width_of
from tessel_core.ir.operators import find_operator
from tessel_core.ir.operators.formats import FORMAT, FUSED, KERNEL, fused_bytes
from tessel_core.ir.operators.operator import Types, Values
from tessel_core.model import Operator

_SPLIT_PRODUCTS = ("matmul", "grouped_matmul", "conv")
"""Products whose gradients of activations and of weights may be separate operators."""
_KNOWN_AS = {
    **dict.fromkeys(("add_in_place", "attention_merge", "bias", "residual", "sgd", "vocabulary_loss"), "add"),
    **dict.fromkeys(("attention_bias", "attention_block"), "attention"),
    **dict.fromkeys(("attention_context", "attention_scores"), "batch_matmul"),
    **dict.fromkeys(("identity", "write"), "copy"),
    **dict.fromkeys(("part", "strided_slice"), "slice"),
    **{"batch_norm_training": "batch_norm", "layer_normalization": "layer_norm", "masked_softmax": "softmax"},
    **{"gelu_erf": "gelu", "linear": "matmul", "loss": "sub", "pack_qkv": "concat", "split_at": "split"},
    **{"take": "gather", "vocabulary_scores": "cross_entropy"},
    **{f"{kind}_{of}_grad": f"{kind}_{of}_gradient" for kind in _SPLIT_PRODUCTS for of in ("input", "weight")},
    **{"pow_exponent_grad": "pow_backward", "vocabulary_loss_grad": "cross_entropy_backward"},
}
"""Operators with another name in the cost model. The squared loss counts as an elementwise difference.

A gradient that is not listed counts as the backward pass of its forward operator.
"""


def as_operator(kind: str, types: Types, outputs: Types, values: Values) -> Operator:
    """Return an operation as an operator of the cost model.

    For a part of a fused kernel, only memory traffic counts.
    """
    known_as, flops, moved, made = amounts_of(kind, types, outputs, values)
    backward = kind.endswith("_grad") and FUSED not in values
    return Operator(kind, known_as, flops=flops, bytes=moved, output_bytes=made, backward=backward)


def amounts_of(kind: str, types: Types, outputs: Types, values: Values) -> tuple[str, float, float, int | None]:
    """Return the kind of an operation in the cost model, its FLOPs, and the bytes that it moves.

    Last, return the bytes that it writes if it is a product, else None.
    """
    if FUSED in values:
        return "fused", 0.0, fused_bytes(types, outputs, values), None
    work = find_operator(kind).work(types, outputs, values)
    known_as = _known_as(kind)
    if kind == "opaque":
        known_as = str(values["operator"])
    if KERNEL in values:
        known_as = f"{values[KERNEL]}_{known_as}"
    made = sum(each.bytes for each in outputs) if kernel_of(known_as) in PRODUCTS else None
    moved = work.bytes
    if made is not None and FORMAT in values:
        narrow, wide = width_of(format_of(types, values)), width_of(format_of(types))
        moved = made + (moved - made) * narrow / wide
    return known_as, work.flops, moved, made


@cache
def _known_as(kind: str) -> str:
    forward = kind.removesuffix("_grad")
    return _KNOWN_AS.get(kind) or _KNOWN_AS.get(forward, forward) + "_backward" * (forward != kind)


def format_of(types: Types, values: Values | None = None) -> str:
    """Return the format in the attribute `format`, or else that of the first input with a format of the cost model.

    If no input has such a format, for example if all are integers, return fp32.
    """
    if values is not None and FORMAT in values:
        return str(values[FORMAT])
    return next((each.dtype for each in types if each.dtype in BYTES_OF), "fp32")
