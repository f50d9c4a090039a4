"""The class of each operator's kernel, and the kernel's work in FLOPs, bytes and output elements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from tessel_core.errors import find

BYTES_OF = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
"""Bytes per number in each format."""
GENERAL = "general"
"""Class of all unknown operators.

They take as long as their arithmetic or their memory traffic, whichever is longer.
"""

_KINDS: dict[str, tuple[str, ...]] = {
    "matmul": (
        *("matmul", "matmul_transposed", "batch_matmul", "linear", "gemm", "dense", "einsum"),
        *("conv", "conv_transpose", "lstm", "gru"),
    ),
    "grouped_matmul": ("grouped_matmul",),
    "attention": (
        *("attention", "attention_bias", "self_attention", "cross_attention", "scaled_dot_product_attention"),
        *("flash2_attention",),
    ),
    "normalisation": ("layer_norm", "batch_norm", "group_norm", "instance_norm", "rms_norm"),
    "softmax": ("softmax", "log_softmax"),
    "activation": ("gelu", "silu", "swish", "mish", "elu", "erf", "exp", "log", "tanh", "sigmoid", "softplus"),
    "elementwise": (
        *("relu", "leaky_relu", "clip", "add", "sub", "mul", "div", "sqrt", "pow", "neg", "where", "mask", "dropout"),
        *("copy", "cast", "transpose", "concat", "split", "slice", "pad", "reshape", "gradient", "pool", "reduce"),
        *("max_pool", "average_pool", "global_average_pool", "sum", "mean", "residual", "bias", "scale", "roll"),
        *("rotary", "route", "dispatch", "combine", "fused"),
    ),
    "embedding": ("embedding", "gather", "scatter", "lookup"),
    "loss": ("cross_entropy", "loss", "nll_loss"),
    "optimizer": ("adam",),
    "collective": ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"),
}
PRODUCTS = ("matmul", "grouped_matmul")
"""Classes of matrix products. The backward pass of a product computes one gradient per factor."""
_CLASS_OF = {kind: name for name, kinds in _KINDS.items() for kind in kinds}
_BACKWARD_CLASSES = ("attention", "normalisation", "activation", "loss")
"""Classes whose backward pass has its own kernel class, because its kernel differs from the forward kernel."""

KERNEL_CLASSES = (*_KINDS, *(f"{name}_backward" for name in _BACKWARD_CLASSES), GENERAL)
"""Names of all classes."""

_OUTPUT_SHARE = {"attention": 1 / 4, "attention_backward": 3 / 8}
"""Fraction of the moved bytes that is output.

Attention writes one of four tensors (q, k, v and output). Its backward pass writes three of eight.
"""
_USUAL_OUTPUT_SHARE = 1 / 3
"""Fraction of the moved bytes that is output in a square product. It is used for all other classes."""


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one launch of a kernel."""

    kernel: str
    flops: float
    bytes: float
    outputs: float
    """Number of output elements."""
    head_size: float = 128.0
    """Head size of attention. If it is unknown, the usual head size."""

    def slowed(self, times: float) -> Work:
        """Return the work with arithmetic that takes `times` times as long."""
        return self if times == 1 else replace(self, flops=times * self.flops, outputs=times * self.outputs)


def width_of(dtype: str) -> int:
    """Return the bytes per number. Raises InputError with the known formats for an unknown format."""
    return find(BYTES_OF, dtype, "dtype")


@lru_cache(maxsize=4096)
def kernel_of(kind: str) -> str:
    """Return the class of an operator's kernel.

    A gradient has the class of its forward operator, or the backward class if there is one.

    >>> kernel_of("linear_weight_gradient"), kernel_of("gelu_backward"), kernel_of("made_up")
    ('matmul', 'activation_backward', 'general')
    """
    forward = kind.lower()
    for suffix in ("_backward", "_weight_gradient", "_input_gradient"):
        forward = forward.removesuffix(suffix)
    name = _CLASS_OF.get(forward, GENERAL)
    return f"{name}_backward" if forward != kind.lower() and name in _BACKWARD_CLASSES else name


@lru_cache(maxsize=4096)
def is_gradient(kind: str) -> bool:
    """Return whether operators of this kind compute gradients. Autograd launches these operators.

    >>> is_gradient("gelu_backward"), is_gradient("matmul_weight_gradient"), is_gradient("add")
    (True, True, False)
    """
    return kind.lower().endswith(("_backward", "_gradient"))


@lru_cache(maxsize=4096)
def launches_of(kind: str) -> int:
    """Return the number of kernels of an operator.

    The backward pass of a product or norm has two, unless it is split into several operators.

    >>> launches_of("matmul"), launches_of("matmul_backward"), launches_of("matmul_weight_gradient")
    (1, 2, 1)
    """
    both = kind.lower().endswith("_backward") and kernel_of(kind) in (*PRODUCTS, "normalisation_backward")
    return 2 if both else 1


def outputs_of(kernel: str, moved: float, output_bytes: float | None, width: int) -> float:
    """Return the number of output elements, from `output_bytes` or else from the usual fraction of the moved bytes.

    It is at most the number of elements in all moved bytes.
    """
    if kernel in _OUTPUT_SHARE or not output_bytes:
        return moved * _OUTPUT_SHARE.get(kernel, _USUAL_OUTPUT_SHARE) / width
    return min(output_bytes, moved) / width
