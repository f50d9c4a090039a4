"""Sliding windows over tensors [n, channels, sizes ..], as in ONNX: convolutions and pools.

`pads` lists the pads before each spatial axis, then those after.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tessel_core.ir.operators.arrays import copied, equal_parts, namespace, rounded
from tessel_core.ir.operators.attributes import integer, integers
from tessel_core.ir.operators.operator import Array, Arrays, GradientRule, Operator, Reverse, Types, Values, Work, need
from tessel_core.ir.operators.reductions import Reduction, end_of, largest_of, mean_of
from tessel_core.ir.operators.rules import count, same_device, spread, together, with_gradient
from tessel_core.ir.operators.shaping import padded
from tessel_core.ir.operators.work import moved, read_work
from tessel_core.ir.types import TensorType

_STEPS = ("dilations", "pads", "strides")


def _swept(x: TensorType, kernel: tuple[int, ...], values: Values) -> tuple[int, ...]:
    """Return the number of window positions along each spatial axis."""
    sizes = x.shape[2:]
    dilations, strides, pads = (
        integers(values, name, least) for name, least in (("dilations", 1), ("strides", 1), ("pads", 0))
    )
    fits = len(sizes) == len(kernel) == len(dilations) == len(strides) == len(pads) / 2 > 0 and min(kernel) > 0
    need(fits, f"needs [n, channels, sizes ..], a kernel, dilations and strides of equal rank, got {x} and {kernel}")
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    room = [size + before + after for size, before, after in zip(sizes, pads, pads[len(sizes) :], strict=False)]
    inside = all(a <= b for a, b in zip(reach, room, strict=True))
    need(inside, f"has a window {tuple(reach)} that is larger than {x} with pads")
    return tuple((b - a) // stride + 1 for a, b, stride in zip(reach, room, strides, strict=True))


def with_pads(x: Array, values: Values, fill: float = 0.0) -> Array:
    """Return the tensor with padding around its spatial axes, as the attribute `pads` lists it."""
    pads, spatial = integers(values, "pads"), x.ndim - 2
    return padded(x, (0, 0, *pads[:spatial]), (0, 0, *pads[spatial:]), fill) if any(pads) else x


def without_pads(padded: Array, sizes: Sequence[int], values: Values) -> Array:
    """Return the tensor without padding. `sizes` are its spatial sizes without padding."""
    pads = integers(values, "pads")
    inside = tuple(slice(before, before + size) for before, size in zip(pads, sizes, strict=False))
    return copied(padded[(..., *inside)]) if any(pads) else padded


def _windows(x: Array, kernel: tuple[int, ...], values: Values, fill: float) -> Array:
    """Return a view of all windows, [n, channels, positions .., kernel ..]."""
    dilations, strides = integers(values, "dilations"), integers(values, "strides")
    seen = with_pads(x, values, fill)
    for axis, (size, apart, stride) in enumerate(zip(kernel, dilations, strides, strict=True), 2):
        reach = (size - 1) * apart + 1
        if namespace(x) is np:
            seen = sliding_window_view(seen, reach, axis=axis)[(slice(None),) * axis + (slice(None, None, stride),)]
        else:
            seen = seen.unfold(axis, reach, stride)
    return seen[(..., *(slice(None, None, apart) for apart in dilations))]


def _folded(seen: Array, sizes: tuple[int, ...], values: Values) -> Array:
    """Add each window of `seen` to its place in a tensor with spatial sizes `sizes`, and return this tensor."""
    spatial = len(sizes)
    dilations, strides, pads = (integers(values, name) for name in ("dilations", "strides", "pads"))
    places, kernel = seen.shape[2 : 2 + spatial], seen.shape[2 + spatial :]
    room = [size + before + after for size, before, after in zip(sizes, pads, pads[spatial:], strict=False)]
    found = namespace(seen).zeros((*seen.shape[:2], *room), dtype=seen.dtype, device=seen.device)
    for offset in product(*map(range, kernel)):
        starts = [at * apart for at, apart in zip(offset, dilations, strict=True)]
        each = zip(starts, places, strides, strict=True)
        where = tuple(slice(start, start + many * step, step) for start, many, step in each)
        found[:, :, *where] += seen[:, :, *[slice(None)] * spatial, *offset]
    return without_pads(found, sizes, values)


def _conv(types: Types, values: Values) -> tuple[TensorType, ...]:
    need(len(types) in (2, 3), f"needs a tensor, a kernel and optionally a bias, got {len(types)} inputs")
    same_device(types)
    x, w, *bias = types
    groups = integer(values, "groups", 1)
    fits = len(x.shape) == len(w.shape) > 2 and x.dtype == w.dtype and x.shape[1] == groups * w.shape[1]
    fits = fits and w.shape[0] % groups == 0 and all(each == x.shaped(w.shape[:1]) for each in bias)
    need(fits, f"needs [n, c, ..], [m, c / {groups}, ..] and optionally [m], got {', '.join(map(str, types))}")
    return (x.shaped((x.shape[0], w.shape[0], *_swept(x, w.shape[2:], values))),)


@rounded
def _conv_compute(x: Array, w: Array, *rest: Any) -> Array:
    *bias, values = rest
    groups, spatial = integer(values, "groups"), w.ndim - 2
    xp, seen = namespace(x), equal_parts(_windows(x, tuple(w.shape[2:]), values, 0.0), groups, 1)
    inner = [1, *range(2 + spatial, 2 + 2 * spatial)], [1, *range(2, 2 + spatial)]
    parts = [xp.tensordot(a, b, axes=inner) for a, b in zip(seen, equal_parts(w, groups, 0), strict=True)]
    made = xp.moveaxis(xp.concat(parts, axis=-1), -1, 1)
    return made + bias[0].reshape(-1, *[1] * spatial) if bias else made


def _conv_input_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    w, dz = together(types, 2)
    need(len(w.shape) == len(dz.shape) > 2, f"needs a kernel [m, c, ..] and a gradient [n, m, ..], got {w} and {dz}")
    x = dz.shaped((dz.shape[0], integer(values, "groups", 1) * w.shape[1], *integers(values, "sizes", 0)))
    need(_conv((x, w), values) == (dz,), f"needs the gradient of a convolution of {x} with {w}, got {dz}")
    return (x,)


def _conv_weight_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    x, dz = together(types, 2)
    need(len(x.shape) == len(dz.shape) > 2, f"needs [n, c, ..] and a gradient [n, m, ..], got {x} and {dz}")
    groups = integer(values, "groups", 1)
    w = dz.shaped((dz.shape[1], x.shape[1] // groups, *integers(values, "kernel", 1)))
    need(_conv((x, w), values) == (dz,), f"needs the gradient of a convolution of {x} with {w}, got {dz}")
    return (w,)


def _conv_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 3)
    need(_conv(types[:2], values) == (types[2],), f"needs the gradient of the convolution, got {types[2]}")
    return types[0], types[1]


def _input_slope(w: Array, dz: Array, sizes: tuple[int, ...], values: Values) -> Array:
    xp, groups, spatial = namespace(w), integer(values, "groups"), w.ndim - 2
    pairs = zip(equal_parts(dz, groups, 1), equal_parts(w, groups, 0), strict=True)
    parts = [xp.moveaxis(xp.tensordot(a, b, axes=([1], [0])), 1 + spatial, 1) for a, b in pairs]
    return _folded(xp.concat(parts, axis=1), sizes, values)


def _weight_slope(x: Array, dz: Array, kernel: tuple[int, ...], values: Values) -> Array:
    xp, groups = namespace(x), integer(values, "groups")
    over = [0, *range(2, 2 + len(kernel))]
    seen = equal_parts(_windows(x, kernel, values, 0.0), groups, 1)
    pairs = zip(equal_parts(dz, groups, 1), seen, strict=True)
    return xp.concat([xp.tensordot(a, b, axes=(over, over)) for a, b in pairs])


@rounded
def _conv_grad_compute(x: Array, w: Array, dz: Array, values: Values) -> tuple[Array, ...]:
    return _input_slope(w, dz, x.shape[2:], values), _weight_slope(x, dz, tuple(w.shape[2:]), values)


def _conv_gradients(back: Reverse) -> list[int | None]:
    """Gradient rule of `conv`. One operation computes both gradients.

    They become two operations if only one gradient is needed or if weight gradients must be separate.
    """
    (x, w), dz, (x_type, w_type) = back.inputs[:2], back.gradient, back.types[:2]
    by_bias = [
        back.one_for(2, "reduce_sum", dz, axes=(0, *range(2, len(x_type.shape))), keep=0) if wanted else None
        for wanted in back.wanted[2:]
    ]
    if all(back.wanted[:2]) and not (back.split and back.weights[1]):
        return [*back.add("conv_grad", (x, w, dz), **back.values), *by_bias]
    found: list[int | None] = [None, None]
    if back.wanted[0]:
        found[0] = back.one_for(0, "conv_input_grad", w, dz, sizes=x_type.shape[2:], **back.values)
    if back.wanted[1]:
        found[1] = back.one_for(1, "conv_weight_grad", x, dz, kernel=w_type.shape[2:], **back.values)
    return [*found, *by_bias]


def _conv_work(types: Types, outputs: Types, values: Values) -> Work:
    each = 2 * math.prod(types[1].shape[1:]) + (len(types) > 2)
    return Work(float(outputs[0].elements * each), moved(types, outputs))


def _product_flops(dz: TensorType, w: TensorType) -> float:
    return 2.0 * dz.elements * math.prod(w.shape[1:])


def _conv_grad_work(types: Types, outputs: Types, values: Values) -> Work:
    """Return the work of both gradients: two products as large as the forward convolution.

    Each reads the gradient once.
    """
    return Work(2 * _product_flops(types[2], types[1]), moved(types, outputs) + types[2].bytes)


def _pool(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    return (types[0].shaped((*types[0].shape[:2], *_swept(types[0], integers(values, "kernel"), values))),)


def _pool_work(types: Types, outputs: Types, values: Values) -> Work:
    """Return the work: one FLOP per number of each window."""
    return Work(float(outputs[0].elements * math.prod(integers(values, "kernel"))), moved(types, outputs))


def _pool_grad_work(types: Types, outputs: Types, values: Values) -> Work:
    """Return the work of the gradient: one FLOP per number of each window."""
    return Work(float(types[-1].elements * math.prod(integers(values, "kernel"))), moved(types, outputs))


def _max_pool_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    (x,), kernel = arrays, integers(values, "kernel")
    return [largest_of(_windows(x, kernel, values, end_of(x, largest=False)), tuple(range(-len(kernel), 0)), False)]


@rounded
def _average_pool_compute(x: Array, values: Values) -> Array:
    kernel = integers(values, "kernel")
    last = tuple(range(-len(kernel), 0))
    return _windows(x, kernel, values, 0.0).sum(axis=last) / _counted(x, x.shape[2:], values)


def _average_pool(types: Types, values: Values) -> tuple[TensorType, ...]:
    need(integer(values, "count_pads") in (0, 1), f"count_pads must be 0 or 1, got {values['count_pads']}")
    return _pool(types, values)


@rounded
def _max_pool_grad_compute(x: Array, dz: Array, values: Values) -> Array:
    """Return the input's gradient. Each window adds its gradient at the first of its largest numbers."""
    xp, size = namespace(x), math.prod(integers(values, "kernel"))
    seen = _windows(x, integers(values, "kernel"), values, -math.inf)
    first = seen.reshape(*dz.shape, size).argmax(axis=-1)
    hit = first[..., None] == xp.arange(size, device=x.device)
    return _folded((hit * dz[..., None]).reshape(seen.shape), x.shape[2:], values)


def _average_pool_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    x = types[0].shaped((*types[0].shape[:2], *integers(values, "sizes", 0)))
    need(_average_pool((x,), values) == tuple(types), f"needs the gradient of the pool of {x}, got {types[0]}")
    return (x,)


def _counted(like: Array, sizes: tuple[int, ...], values: Values) -> Array:
    """Return how many numbers each window's mean divides by. Padding counts if `count_pads` is 1."""
    kernel, inside = (
        integers(values, "kernel"),
        namespace(like).ones((1, 1, *sizes), dtype=like.dtype, device=like.device),
    )
    return _windows(inside, kernel, values, integer(values, "count_pads")).sum(axis=tuple(range(-len(kernel), 0)))


@rounded
def _average_pool_grad_compute(dz: Array, values: Values) -> Array:
    kernel, sizes = integers(values, "kernel"), integers(values, "sizes")
    share = (dz / _counted(dz, sizes, values)).reshape(*dz.shape, *[1] * len(kernel))
    return _folded(namespace(dz).broadcast_to(share, (*dz.shape, *kernel)), sizes, values)


def _average_pool_gradient(back: Reverse) -> list[int | None]:
    return [back.one("average_pool_grad", back.gradient, sizes=back.types[0].shape[2:], **back.values)]


def _spatial(back: Reverse) -> tuple[int, ...]:
    return tuple(range(2, len(back.types[0].shape)))


def _global_average_gradient(back: Reverse) -> list[int | None]:
    share = back.one("scale", back.gradient, by=1 / max(math.prod(back.types[0].shape[2:]), 1))
    return [spread(back, share, _spatial(back))]


def _global_max_gradient(back: Reverse) -> list[int | None]:
    return [back.one("reduce_max_grad", back.inputs[0], back.gradient, axes=_spatial(back), keep=1)]


def _global(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    need(len(types[0].shape) > 2, f"needs [n, channels, sizes ..], got {types[0]}")
    return (types[0].shaped((*types[0].shape[:2], *[1] * (len(types[0].shape) - 2))),)


def _global_pool(kind: str, function: Reduction, gradient: GradientRule) -> Operator:
    @rounded
    def compute(x: Array, values: Values) -> Array:
        return function(x, tuple(range(2, x.ndim)), True)

    return Operator(kind, _global, compute, read_work(1.0), gradient=gradient)


_CONV, _WINDOW = ("groups", *_STEPS), ("kernel", *_STEPS)

_MAX_POOL = Operator(
    "max_pool",
    _pool,
    _max_pool_compute,
    _pool_work,
    _WINDOW,
    statistics=lambda types, values: 8 * _pool(types, values)[0].elements,  # Positions of the maxima, in int64.
)

WINDOWS = (
    Operator("conv", _conv, _conv_compute, _conv_work, _CONV, gradient=_conv_gradients),
    Operator("conv_grad", _conv_grad, _conv_grad_compute, _conv_grad_work, _CONV),
    Operator(
        "conv_input_grad",
        _conv_input_grad,
        rounded(lambda w, dz, values: _input_slope(w, dz, integers(values, "sizes"), values)),
        lambda types, outputs, values: Work(_product_flops(types[1], types[0]), moved(types, outputs)),
        (*_CONV, "sizes"),
    ),
    Operator(
        "conv_weight_grad",
        _conv_weight_grad,
        rounded(lambda x, dz, values: _weight_slope(x, dz, integers(values, "kernel"), values)),
        lambda types, outputs, values: Work(_product_flops(types[1], outputs[0]), moved(types, outputs)),
        (*_CONV, "kernel"),
    ),
    *with_gradient(_MAX_POOL, range(1), _max_pool_grad_compute, _pool_grad_work, of="pool"),
    Operator(
        "average_pool",
        _average_pool,
        _average_pool_compute,
        _pool_work,
        ("count_pads", *_WINDOW),
        gradient=_average_pool_gradient,
    ),
    Operator(
        "average_pool_grad",
        _average_pool_grad,
        _average_pool_grad_compute,
        _pool_grad_work,
        ("count_pads", *_WINDOW, "sizes"),
    ),
    _global_pool("global_average_pool", mean_of, _global_average_gradient),
    _global_pool("global_max_pool", largest_of, _global_max_gradient),
)
"""Convolutions and pools. `count_pads` is 1 if padding counts in a mean.

`kernel` is the size of a pool's window. `sizes` of a gradient are the spatial sizes of the input.
"""
