"""Rules that convert a PyTorch operator to operations of a program. Default values are those of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tessel_core.ir.definition import Definition
from tessel_core.ir.operators.shaping import reshaping
from tessel_core.ir.program import AttributeValue


class Value(int):
    """A tensor, identified by its number in the program."""


@dataclass(frozen=True, slots=True)
class Call:
    """A PyTorch operator with its arguments."""

    net: Definition
    kind: str
    """PyTorch's name of the operator."""
    name: str
    args: Sequence[Any]
    """Arguments by position.

    A tensor is a `Value`. An omitted argument is None, and so is a tensor with several outputs.
    """
    named: Mapping[str, Any]
    made: Any
    """PyTorch's output tensor without data, or a sequence of several."""
    dtype: str
    """Number format of the output, if it is a single tensor."""

    def __call__(self, kind: str, *inputs: int, **attributes: AttributeValue) -> int:
        """Add an operation with one output and return that output."""
        return self.net(self.name, kind, *inputs, **attributes)

    def argument(self, place: int, name: str = "", default: Any = None) -> Any:
        """Return an argument by position or name, or its default if it is omitted."""
        return self.args[place] if len(self.args) > place else self.named.get(name, default)

    def shape_of(self, value: int) -> tuple[int, ...]:
        return self.net.type_of(value).shape

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the output."""
        return tuple(map(int, self.made.shape))


Made = int | tuple[int, ...] | None
"""Value or values of the operator's output. None if there is no equivalent operation."""
Rule = Callable[[Call], Made]


def _passed_on(call: Call) -> Made:
    """Return the input, cast to the output's format."""
    x = call.args[0]
    return x if call.net.type_of(x).dtype == call.dtype else call("cast", x, dtype=call.dtype)


def _reshape(call: Call) -> Made:
    return call("reshape", call.args[0], shape=reshaping(call.shape_of(call.args[0]), call.shape))


def _expand(call: Call) -> Made:
    """Convert an expand, unless it repeats elements."""
    return _reshape(call) if math.prod(call.shape) == call.net.type_of(call.args[0]).elements else None


def _of_each(kind: str) -> Rule:
    return lambda call: call(kind, call.args[0])


def _of_two(kind: str) -> Rule:
    def rule(call: Call) -> Made:
        x, y = call.args[:2]
        if call.named:
            return None
        if isinstance(y, Value):
            return call(kind, x, y)
        return call("scale", x, by=float(y if kind == "mul" else 1 / y)) if kind in ("mul", "div") else None

    return rule


def _reduction(kind: str) -> Rule:
    def rule(call: Call) -> Made:
        axes = call.argument(1)
        if not axes:
            return None
        return call(
            kind,
            call.args[0],
            axes=tuple(axes) if isinstance(axes, list) else (axes,),
            keep=int(bool(call.argument(2))),
        )

    return rule


def _linear(call: Call) -> Made:
    product, bias = call("matmul_transposed", *call.args[:2]), call.argument(2)
    return product if bias is None else call("bias", product, bias)


def _norm(kind: str, *weights: int) -> Rule:
    """Return the rule of a norm over the last axis. `weights` are the argument positions of its weights."""

    def rule(call: Call) -> Made:
        fits = len(call.args) > weights[-1] and len(call.args[1]) == 1
        return call(kind, call.args[0], *(call.args[place] for place in weights)) if fits else None

    return rule


def _transpose(call: Call) -> Made:
    axes = list(range(len(call.shape)))
    one, other = (each % len(axes) for each in call.args[1:3])
    axes[one], axes[other] = axes[other], axes[one]
    return call("permute", call.args[0], axes=tuple(axes))


def _split(call: Call) -> Made:
    axis = call.argument(2, "dim", 0)
    sizes = tuple(int(each.shape[axis]) for each in call.made)
    if len(set(sizes)) == 1:
        return call.net.all(call.name, "chunk", call.args[0], axis=axis, parts=len(sizes))
    return call.net.all(call.name, "split_at", call.args[0], axis=axis, sizes=sizes)


def _conv2d(call: Call) -> Made:
    weights = [each for each in call.args[1:3] if each is not None]
    strides, pads, dilations = (
        tuple(each) * (3 - len(each))
        for each in (call.argument(3, default=[1]), call.argument(4, default=[0]), call.argument(5, default=[1]))
    )
    sweep = {"dilations": dilations, "pads": (*pads, *pads), "strides": strides}
    return call("conv", call.args[0], *weights, groups=call.argument(6, default=1), **sweep)


def _scaled_dot_product_attention(call: Call) -> Made:
    """Convert attention of [batch, heads, tokens, size]. Masks and scales are not supported."""
    if call.argument(3, "attn_mask") is not None or call.argument(6, "scale") is not None:
        return None

    def columns(value: int) -> int:
        by_token = call("permute", value, axes=(0, 2, 1, 3))
        return call("reshape", by_token, shape=(0, 0, -1))

    causal, size = int(bool(call.argument(5, "is_causal"))), call.shape_of(call.args[0])[-1]
    mixed = call("attention", *map(columns, call.args[:3]), causal=causal, head_size=size)
    heads = call("reshape", mixed, shape=(0, 0, -1, call.shape[-1]))
    return call("permute", heads, axes=(0, 2, 1, 3))


_PASSED_ON = "to _to_copy contiguous clone detach alias lift_fresh_copy dropout feature_dropout type_as"
"""Operators that return their input. For dropouts, this holds if no number is set to 0, as in inference."""
_RESHAPES = "view reshape _unsafe_view unsqueeze squeeze flatten unflatten view_as reshape_as"
_OF_EACH = "silu relu tanh sigmoid neg exp sqrt log sin cos abs erf reciprocal"

_RULES: dict[str, Rule] = {
    **dict.fromkeys(_PASSED_ON.split(), _passed_on),
    **dict.fromkeys(_RESHAPES.split(), _reshape),
    **{kind: _of_each(kind) for kind in _OF_EACH.split()},
    **{kind: _of_two(kind) for kind in ("add", "sub", "mul", "div")},
    "expand": _expand,
    "mean": _reduction("reduce_mean"),
    "sum": _reduction("reduce_sum"),
    "linear": _linear,
    **dict.fromkeys(("matmul", "mm", "bmm"), lambda call: call("matmul", *call.args[:2])),
    "addmm": lambda call: call("bias", call("matmul", *call.args[1:3]), call.args[0]),
    "embedding": lambda call: call("embedding", *call.args[:2]),
    "layer_norm": _norm("layer_norm", 2, 3),
    "rms_norm": _norm("rms_norm", 2),
    "gelu": lambda call: call("gelu" if call.named.get("approximate") == "tanh" else "gelu_erf", call.args[0]),
    "softmax": lambda call: call("softmax", call.args[0], axes=(call.args[1],)),
    "transpose": _transpose,
    "permute": lambda call: call("permute", call.args[0], axes=tuple(call.args[1])),
    "t": lambda call: call("permute", call.args[0], axes=(1, 0)),
    "cat": lambda call: call("concat", *call.args[0], axis=call.argument(1, "dim", 0)),
    **dict.fromkeys(("chunk", "split", "split_with_sizes"), _split),
    "conv2d": _conv2d,
    "scaled_dot_product_attention": _scaled_dot_product_attention,
}
"""Conversion rules, by PyTorch's name of the operator."""


def operations(call: Call) -> Made:
    """Add the operations that are equivalent to an operator, and return its output.

    Return None if the operator has no rule or the rule does not apply.
    """
    rule, first = _RULES.get(call.kind), call.argument(0)
    return rule(call) if rule and isinstance(first, Value | list) else None
