"""Operators that reduce along axes: sums, products, extremes and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tessel_core.ir.operators.arrays import in_format, namespace, rounded, wide
from tessel_core.ir.operators.attributes import axes_of, integer
from tessel_core.ir.operators.operator import Array, Arrays, GradientRule, Operator, Reverse, Types, Values, need
from tessel_core.ir.operators.rules import alike, count, kept, one, spread
from tessel_core.ir.operators.work import elementwise_work, read_work
from tessel_core.ir.types import TensorType

_ALONG = ("axes", "keep")

Reduction = Callable[[Array, tuple[int, ...], bool], Array]
"""Reduces a tensor along axes. The last argument says whether the reduced axes stay, with size 1."""


def _reduce(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    shape = types[0].shape
    axes, keep = axes_of(values, len(shape)), integer(values, "keep")
    need(keep in (0, 1), f"keep must be 0 or 1, got {keep}")
    left = [1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes]
    return (types[0].shaped(tuple(left)),)


def _reduction(kind: str, flops: float, function: Reduction, gradient: GradientRule) -> Operator:
    def compute(arrays: Arrays, values: Values) -> Sequence[Array]:
        (x,) = arrays
        given = wide(x) if namespace(x).isdtype(x.dtype, "real floating") else x
        return [in_format(function(given, axes_of(values, x.ndim), bool(values["keep"])), x)]

    return Operator(kind, _reduce, compute, read_work(flops), _ALONG, gradient=gradient)


def _reduce_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 2)
    (made,) = _reduce(types[:1], values)
    need(types[1] == made, f"needs the gradient of the output, {made}, got {types[1]}")
    return (types[0],)


def _reduction_gradient(kind: str, function: Callable[[Array, Array, tuple[int, ...]], Array]) -> Operator:
    """Return the gradient operator of a reduction.

    `function` gets the input, the gradient (with reduced axes of size 1) and the axes, and returns the input's
    gradient.
    """

    @rounded
    def compute(x: Array, dz: Array, values: Values) -> Array:
        axes = axes_of(values, x.ndim)
        return function(x, dz.reshape([1 if axis in axes else size for axis, size in enumerate(x.shape)]), axes)

    return Operator(kind, _reduce_grad, compute, read_work(3.0), _ALONG)


def end_of(x: Array, *, largest: bool) -> float | int | bool:
    """Return the largest or smallest number of the format of `x`. The smallest is the maximum of an empty tensor."""
    xp = namespace(x)
    if xp.isdtype(x.dtype, "bool"):
        return largest
    if xp.isdtype(x.dtype, "real floating"):
        return math.inf if largest else -math.inf
    limits = xp.iinfo(x.dtype)
    return int(limits.max if largest else limits.min)


def sum_of(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
    """Return the sum along axes. If there are no axes, return the numbers unchanged."""
    return namespace(x).sum(x, axis=axes, keepdims=keep)


def mean_of(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
    """Return the mean along axes, in at least fp32."""
    return namespace(x).mean(wide(x), axis=axes, keepdims=keep)


def largest_of(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
    """Return the maximum along axes. The maximum of no numbers is the smallest number of the format."""
    return (
        namespace(x).max(x, axis=axes, keepdims=keep) if 0 not in x.shape else _extreme_of_empty(x, axes, keep, False)
    )


def _least_of(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
    return namespace(x).min(x, axis=axes, keepdims=keep) if 0 not in x.shape else _extreme_of_empty(x, axes, keep, True)


def _extreme_of_empty(x: Array, axes: tuple[int, ...], keep: bool, largest: bool) -> Array:
    shape = tuple(sum_of(x, axes, keep).shape)
    return namespace(x).full(shape, end_of(x, largest=largest), dtype=x.dtype, device=x.device)


def _product(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
    return namespace(x).prod(x, axis=axes, keepdims=keep)


def _square_sum(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
    return sum_of(x * x, axes, keep)


def _length(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
    return namespace(x).sqrt(wide(_square_sum(x, axes, keep)))


def _shared(hit: Array, dz: Array, axes: tuple[int, ...]) -> Array:
    """Divide the gradient equally among the positions where `hit` is true."""
    return hit * (dz / sum_of(hit, axes, True))


def _prod_slope(x: Array, dz: Array, axes: tuple[int, ...]) -> Array:
    """Return the gradient of a product: dz times the product of all other numbers.

    The product of the numbers before is multiplied by that of the numbers after. No division is needed, so zeros are
    allowed.
    """
    xp, ends = namespace(x), tuple(range(x.ndim - len(axes), x.ndim))
    moved = xp.moveaxis(x, axes, ends)
    rows = moved.reshape(*moved.shape[: x.ndim - len(axes)], math.prod(moved.shape[x.ndim - len(axes) :]))

    def before(rows: Array) -> Array:
        """Return, for each number of a row, the product of the numbers before it in the row."""
        one_more = xp.ones_like(rows[..., :1])
        return xp.cumulative_prod(xp.concat([one_more, rows[..., :-1]], axis=-1), axis=-1)

    others = before(rows) * xp.flip(before(xp.flip(rows, axis=-1)), axis=-1)
    return xp.moveaxis(others[..., : rows.shape[-1]].reshape(moved.shape), ends, axes) * dz


def _sum_gradient(back: Reverse) -> list[int | None]:
    return [spread(back, kept(back, back.gradient), axes_of(back.values, len(back.types[0].shape)))]


def _mean_gradient(back: Reverse) -> list[int | None]:
    shape = back.types[0].shape
    axes = axes_of(back.values, len(shape))
    share = back.one("scale", back.gradient, by=1 / max(math.prod(shape[axis] for axis in axes), 1))
    return [spread(back, kept(back, share), axes)]


def _square_gradient(back: Reverse) -> list[int | None]:
    return [back.one("mul", back.inputs[0], kept(back, back.one("scale", back.gradient, by=2.0)))]


def _length_gradient(back: Reverse) -> list[int | None]:
    """Gradient rule of the L2 norm: the input divided by its norm, times dz."""
    return [back.one("mul", back.inputs[0], kept(back, back.one("div", back.gradient, back.outputs[0])))]


def _softmax(types: Types, values: Values) -> tuple[TensorType, ...]:
    axes_of(values, len(types[0].shape) if types else 0)
    return one(types, values)


def log_softmax_of(x: Array, axes: tuple[int, ...]) -> Array:
    """Return the logarithm of the softmax over all of `axes` together."""
    xp, shifted = namespace(x), x - largest_of(x, axes, True)
    return shifted - xp.log(sum_of(xp.exp(shifted), axes, True))


def _softmax_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    axes_of(values, len(types[0].shape) if types else 0)
    return alike(types, values)


@rounded
def _softmax_grad_compute(z: Array, dz: Array, values: Values) -> Array:
    return z * (dz - sum_of(z * dz, axes_of(values, z.ndim), True))


@rounded
def _log_softmax_grad_compute(z: Array, dz: Array, values: Values) -> Array:
    return dz - namespace(z).exp(z) * sum_of(dz, axes_of(values, z.ndim), True)


def _gradient_of_input(kind: str) -> GradientRule:
    """Return a gradient rule: operator `kind`, applied to the input and the output's gradient."""
    return lambda back: [back.one(kind, back.inputs[0], back.gradient, **back.values)]


def _gradient_of_output(kind: str) -> GradientRule:
    """Return a gradient rule: operator `kind`, applied to the output and its gradient."""
    return lambda back: [back.one(kind, back.outputs[0], back.gradient, **back.values)]


REDUCTIONS = (
    _reduction("reduce_sum", 1.0, sum_of, _sum_gradient),
    _reduction("reduce_mean", 1.0, mean_of, _mean_gradient),
    _reduction("reduce_max", 1.0, largest_of, _gradient_of_input("reduce_max_grad")),
    _reduction("reduce_min", 1.0, _least_of, _gradient_of_input("reduce_min_grad")),
    _reduction("reduce_prod", 1.0, _product, _gradient_of_input("reduce_prod_grad")),
    _reduction("reduce_sum_square", 2.0, _square_sum, _square_gradient),
    _reduction("reduce_l2", 2.0, _length, _length_gradient),
    Operator(
        "softmax",
        _softmax,
        rounded(lambda x, values: namespace(x).exp(log_softmax_of(x, axes_of(values, x.ndim)))),
        elementwise_work(5.0),
        ("axes",),
        gradient=_gradient_of_output("softmax_grad"),
    ),
    Operator(
        "log_softmax",
        _softmax,
        rounded(lambda x, values: log_softmax_of(x, axes_of(values, x.ndim))),
        elementwise_work(5.0),
        ("axes",),
        gradient=_gradient_of_output("log_softmax_grad"),
    ),
)
"""Operators of reductions. `softmax` normalizes over all of its axes together."""

REDUCTION_GRADIENTS = (
    _reduction_gradient("reduce_max_grad", lambda x, dz, axes: _shared(x == largest_of(x, axes, True), dz, axes)),
    _reduction_gradient("reduce_min_grad", lambda x, dz, axes: _shared(x == _least_of(x, axes, True), dz, axes)),
    _reduction_gradient("reduce_prod_grad", _prod_slope),
    Operator("softmax_grad", _softmax_grad, _softmax_grad_compute, elementwise_work(4.0), ("axes",)),
    Operator("log_softmax_grad", _softmax_grad, _log_softmax_grad_compute, elementwise_work(4.0), ("axes",)),
)
"""Equal maxima share the gradient, as in PyTorch. The gradient of a softmax has its output as input, not its input."""
