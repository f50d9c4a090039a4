"""Basic operators on one device: copies, sums, splits and products."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tessel_core.ir.operators.arrays import copied, equal_parts, in_format, namespace, rounded
from tessel_core.ir.operators.attributes import axis_of, integer, number
from tessel_core.ir.operators.operator import Array, Arrays, Operator, Reverse, Types, Values, Work, need
from tessel_core.ir.operators.rules import (
    alike,
    broadcast,
    count,
    joined,
    joined_parts,
    one,
    padded_part,
    part_of,
    passed_on,
    same_device,
    summed_to,
    together,
    with_gradient,
)
from tessel_core.ir.operators.work import copying, copying_part, elementwise_work, moved, no_work, read_work
from tessel_core.ir.types import TensorType


def _concat_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    return [namespace(arrays[0]).concat(arrays, axis=axis_of(values, arrays[0].ndim))]


def _concat(types: Types, values: Values) -> tuple[TensorType, ...]:
    need(len(types) > 0, "needs at least one input")
    same_device(types)
    axis = axis_of(values, len(types[0].shape))
    rest = {(each.dtype, each.shape[:axis], each.shape[axis + 1 :], len(each.shape)) for each in types}
    need(len(rest) == 1, f"needs inputs that differ along axis {axis} only, got {', '.join(map(str, types))}")
    return (types[0].resized(axis, sum(each.shape[axis] for each in types)),)


def _split(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    parts = integer(values, "parts", 1)
    return (part_of(types[0], parts, values),) * parts


def _part(types: Types, values: Values) -> tuple[TensorType, ...]:
    parts = _split(types, values)
    need(integer(values, "index") < len(parts), f"index must be below {len(parts)}, got {values['index']}")
    return parts[:1]


def _relu(types: Types, values: Values) -> tuple[TensorType, ...]:
    flag = values.get("keeps_output", 0)
    need(flag in (0, 1), f"keeps_output must be 0 or 1, got {flag}")
    return one(types, values)


def _relu_gradient(back: Reverse) -> list[int | None]:
    """Write the gradient from whichever is kept, input or output. Both are positive at the same positions."""
    kept = back.outputs if back.values.get("keeps_output") else back.inputs
    return [back.one("relu_grad", *kept, back.gradient)]


def _split_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    return [copied(each) for each in _chunk_compute(arrays, values)]


def _chunk_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    return equal_parts(arrays[0], integer(values, "parts"), axis_of(values, arrays[0].ndim))


def _part_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    return [copied(each) for each in _slice_compute(arrays, values)]


def _slice_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    return [_chunk_compute(arrays, values)[integer(values, "index")]]


def _matmul(types: Types, values: Values) -> tuple[TensorType, ...]:
    x, y = together(types, 2)
    fits = len(x.shape) >= 2 and len(y.shape) >= 2 and x.dtype == y.dtype and x.shape[-1] == y.shape[-2]
    need(fits, f"needs [.., m, k] and [.., k, n] of one dtype, got {x} and {y}")
    before = broadcast([x.shaped(x.shape[:-2]), y.shaped(y.shape[:-2])])
    return (x.shaped((*before, x.shape[-2], y.shape[-1])),)


def _matmul_transposed(types: Types, values: Values) -> tuple[TensorType, ...]:
    x, w = together(types, 2)
    fits = len(x.shape) > 1 and len(w.shape) == 2 and x.dtype == w.dtype and x.shape[-1] == w.shape[1]
    need(fits, f"needs [.., k] and [n, k] of one dtype, got {x} and {w}")
    return (x.resized(len(x.shape) - 1, w.shape[0]),)


def _transposed_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    x, w, dz = arrays
    return [dz @ w, *_matmul_weight_grad_compute([dz, w, x], values)]


def _transposed_gradients(back: Reverse) -> list[int | None]:
    """Gradient rule of `matmul_transposed`. The weight's gradient dz.T @ x is written as `matmul_weight_grad`."""
    (x, w), dz = back.inputs, back.gradient
    if all(back.wanted) and not (back.split and back.weights[1]):
        return list(back.add("matmul_transposed_grad", (x, w, dz)))
    by_x = back.one("matmul", dz, w) if back.wanted[0] else None
    return [by_x, back.one_for(1, "matmul_weight_grad", dz, w, x) if back.wanted[1] else None]


def _product_flops(x: TensorType, y: TensorType) -> float:
    """Return the FLOPs of the product, 2 m k n per matrix [m, k] of the first input."""
    return 2.0 * x.elements * y.shape[-1]


def _matmul_work(types: Types, outputs: Types, values: Values) -> Work:
    return Work(2.0 * outputs[0].elements * types[0].shape[-1], moved(types, outputs))


def _product_gradients(back: Reverse, dz: int) -> list[int | None]:
    """Gradient rule of products. One operation computes both gradients.

    They become two operations if only one gradient is needed or if weight gradients must be separate.
    """
    x, y = back.inputs[:2]
    matrix = len(back.types[1].shape) == 2
    if not matrix or (all(back.wanted[:2]) and not (back.split and back.weights[1])):
        return list(back.add("matmul_grad", (x, y, dz)))
    by_x = back.one("matmul_input_grad", y, dz) if back.wanted[0] else None
    return [by_x, back.add_for_weight("matmul_weight_grad", (x, y, dz))[0] if back.wanted[1] else None]


def _bias_gradient(back: Reverse, dz: int, place: int) -> int | None:
    """Return the gradient of input `place`, which was added to each row: the sum of the gradient over all rows."""
    return back.one_for(place, "bias_grad", dz, axes=len(back.types[place].shape)) if back.wanted[place] else None


def _linear_gradients(back: Reverse) -> list[int | None]:
    by_bias = _bias_gradient(back, back.gradient, 2)
    return [*_product_gradients(back, back.gradient), by_bias]


def _matmul_input_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    w, dz = together(types, 2)
    fits = len(w.shape) == 2 and dz.shape[-1:] == w.shape[1:] and dz.dtype == w.dtype and len(dz.shape) > 1
    need(fits, f"needs [k, n] and the gradient of a product, [.., m, n], of one dtype, got {w} and {dz}")
    return (dz.resized(len(dz.shape) - 1, w.shape[0]),)


def _matmul_weight_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    need(len(types) == 3 and len(types[1].shape) == 2, f"needs [.., m, k], [k, n] and a gradient, got {len(types)}")
    return _matmul_grad(types, values)[1:]


def _matmul_weight_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    x, _, dz = arrays
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    return [rows.T @ dz.reshape(len(rows), dz.shape[-1])]


def _matmul_input_grad_work(types: Types, outputs: Types, values: Values) -> Work:
    return Work(_product_flops(outputs[0], types[0]), moved(types, outputs))


def _matmul_weight_grad_work(types: Types, outputs: Types, values: Values) -> Work:
    """Return the work of the weight's gradient.

    It reads the gradient and the activation. The weight is not read, because it only gives the shape of the result.
    """
    return Work(_product_flops(types[0], types[1]), moved((types[0], types[2]), outputs))


def _matmul_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 3)
    (dz,) = _matmul(types[:2], values)
    x, y = types[:2]
    fits = len(y.shape) == 2 or x.shape[:-2] == y.shape[:-2]
    need(fits, f"needs factors [.., m, k] and [k, n], or [.., k, n] with equal leading axes, got {x} and {y}")
    need(types[2] == dz, f"needs the gradient of the product, {dz}, got {types[2]}")
    return types[0], types[1]


def _matmul_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    x, y, dz = arrays
    if y.ndim > 2:
        return dz @ y.swapaxes(-1, -2), x.swapaxes(-1, -2) @ dz
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    return dz @ y.T, rows.T @ dz.reshape(len(rows), dz.shape[-1])


def _transposed_grad_work(types: Types, outputs: Types, values: Values) -> Work:
    """Return the work of the gradients of a product with a transposed matrix."""
    return Work(4.0 * types[0].elements * types[1].shape[0], moved(types, outputs) + types[2].bytes)


def _matmul_grad_work(types: Types, outputs: Types, values: Values) -> Work:
    """Return the work of both gradients: two products as large as the forward product. Each reads the gradient once."""
    return Work(2 * _product_flops(types[0], types[1]), moved(types, outputs) + types[2].bytes)


def _gemm(types: Types, values: Values) -> tuple[TensorType, ...]:
    need(len(types) in (2, 3), f"needs two matrices and optionally a summand, got {len(types)} inputs")
    same_device(types)
    a, b, *c = types
    for name in ("alpha", "beta"):
        number(values, name)
    need(len(a.shape) == len(b.shape) == 2, f"needs matrices, got {a} and {b}")
    (m, k), (inner, n) = (_turned(each, values, name) for each, name in ((a, "trans_a"), (b, "trans_b")))
    made = a.shaped((m, n))
    fits = k == inner and all(each.dtype == a.dtype for each in types)
    fits = fits and all(broadcast([made, each]) == (m, n) for each in c)
    need(
        fits,
        f"needs [m, k], [k, n] and optionally a summand that broadcasts to [m, n], got {', '.join(map(str, types))}",
    )
    return (made,)


def _turned(matrix: TensorType, values: Values, name: str) -> tuple[int, ...]:
    flag = integer(values, name)
    need(flag in (0, 1), f"{name} must be 0 or 1, got {flag}")
    return matrix.shape[::-1] if flag else matrix.shape


def _gemm_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    a, b = (each.T if values[name] else each for each, name in zip(arrays, ("trans_a", "trans_b"), strict=False))
    made = number(values, "alpha") * (a @ b)
    if len(arrays) > 2:
        made = made + number(values, "beta") * arrays[2]
    return [in_format(made, arrays[0])]


def _bias(types: Types, values: Values) -> tuple[TensorType, ...]:
    x, b = together(types, 2)
    fits = x.dtype == b.dtype and 0 < len(b.shape) < len(x.shape) and x.shape[-len(b.shape) :] == b.shape
    need(fits, f"needs [.., n] and a summand of each row, [n], got {x} and {b}")
    return (x,)


def _bias_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    axes = integer(values, "axes", 1)
    need(axes < len(types[0].shape), f"needs an axis before the last {axes} to sum over, got {types[0]}")
    return (types[0].shaped(types[0].shape[-axes:]),)


@rounded
def _bias_grad_compute(dz: Array, values: Values) -> Array:
    return dz.sum(axis=tuple(range(dz.ndim - integer(values, "axes", 1))))


def _linear(types: Types, values: Values) -> tuple[TensorType, ...]:
    x, w, b = together(types, 3)
    fits = len(w.shape) == 2 and x.shape[-1:] == w.shape[:1] and b == w.shaped(w.shape[1:]) and x.dtype == w.dtype
    need(fits and len(x.shape) > 1, f"needs [.., m, k], [k, n] and [n] of one dtype, got {x}, {w} and {b}")
    return (x.resized(len(x.shape) - 1, w.shape[1]),)


def _linear_work(types: Types, outputs: Types, values: Values) -> Work:
    """Return the work of the product. Adding the bias takes no time, since it happens while the product is written."""
    return Work(_product_flops(types[0], types[1]), moved(types, outputs))


def _residual(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 3)
    alike(types[:2], values)
    return _bias(types[1:], values)


def _after(types: Types, values: Values) -> tuple[TensorType, ...]:
    need(len(types) > 1, f"needs a tensor and the tensors that it waits for, got {len(types)} inputs")
    same_device(types)
    return tuple(types[:1])


def _add_gradients(back: Reverse) -> list[int | None]:
    return [summed_to(back, back.gradient, place) for place in range(2)]


def _concat_gradients(back: Reverse) -> list[int | None]:
    axis = axis_of(back.values, len(back.made[0].shape))
    return list(back.add("split_at", (back.gradient,), axis=axis, sizes=tuple(each.shape[axis] for each in back.types)))


def _part_gradient(back: Reverse) -> list[int | None]:
    (whole,), (part,) = back.types, back.made
    axis = axis_of(back.values, len(whole.shape))
    start = integer(back.values, "index") * part.shape[axis]
    return [padded_part(back, back.gradient, whole, axis, start, part.shape[axis])]


def _gemm_gradients(back: Reverse) -> list[int | None]:
    """Gradient rule of `gemm`: products of dz with the other factor, in the layouts of A and B."""
    (a, b), dz = back.inputs[:2], back.gradient
    alpha, beta = number(back.values, "alpha"), number(back.values, "beta")
    turned_a, turned_b = integer(back.values, "trans_a"), integer(back.values, "trans_b")
    by_a = (b, dz, turned_b, 1) if turned_a else (dz, b, 0, 1 - turned_b)
    by_b = (dz, a, 1, turned_a) if turned_b else (a, dz, 1 - turned_a, 0)
    found: list[int | None] = [
        back.one_for(place, "gemm", x, y, alpha=alpha, beta=0.0, trans_a=turned_x, trans_b=turned_y)
        if back.wanted[place]
        else None
        for place, (x, y, turned_x, turned_y) in enumerate((by_a, by_b))
    ]
    if len(back.inputs) > 2:
        by_c = summed_to(back, dz, 2)
        found.append(by_c if by_c is None or beta == 1 else back.one_for(2, "scale", by_c, by=beta))
    return found


def _relu_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    return [in_format(namespace(arrays[0]).where(arrays[0] > 0, arrays[1], 0), arrays[1])]


def _loss_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    return [in_format(2 * (arrays[0] - arrays[1]) / arrays[2], arrays[0])]


def _gemm_work(types: Types, outputs: Types, values: Values) -> Work:
    inner = types[0].shape[0 if values["trans_a"] else 1]
    return Work(float(outputs[0].elements * (2 * inner + (len(types) > 2))), moved(types, outputs))


def _loss(types: Types, values: Values) -> tuple[TensorType, ...]:
    prediction, target, size = together(types, 3)
    need(prediction == target, f"needs a prediction and a target of one type, got {prediction} and {target}")
    need(size.shape == () and size.dtype.startswith("int"), f"needs the batch size as int32[], got {size}")
    return (prediction,)


_PART = ("axis", "index", "parts")

BASIC = (
    Operator("identity", one, lambda arrays, values: [copied(arrays[0])], copying, gradient=passed_on),
    Operator(
        "add", joined, lambda arrays, values: [arrays[0] + arrays[1]], elementwise_work(), gradient=_add_gradients
    ),
    Operator("add_in_place", alike, lambda arrays, values: [arrays[0] + arrays[1]], elementwise_work(), in_place=True),
    Operator("accumulate", alike, lambda arrays, values: [arrays[0] + arrays[1]], no_work, in_place=True),
    Operator("after", _after, lambda arrays, values: [arrays[0]], no_work, view=True),
    Operator("concat", _concat, _concat_compute, copying, ("axis",), gradient=_concat_gradients),
    Operator("split", _split, _split_compute, copying, ("axis", "parts"), gradient=joined_parts),
    Operator("chunk", _split, _chunk_compute, no_work, ("axis", "parts"), view=True, gradient=joined_parts),
    Operator("part", _part, _part_compute, copying_part, _PART, optional=("over",), gradient=_part_gradient),
    Operator("slice", _part, _slice_compute, no_work, _PART, view=True, optional=("over",), gradient=_part_gradient),
    Operator(
        "matmul",
        _matmul,
        lambda arrays, values: [arrays[0] @ arrays[1]],
        _matmul_work,
        gradient=lambda back: _product_gradients(back, back.gradient),
    ),
    *with_gradient(
        Operator(
            "matmul_transposed",
            _matmul_transposed,
            lambda arrays, values: [arrays[0] @ arrays[1].T],
            _matmul_work,
            gradient=_transposed_gradients,
        ),
        range(2),
        _transposed_grad_compute,
        _transposed_grad_work,
        of="product",
    ),
    Operator(
        "matmul_input_grad",
        _matmul_input_grad,
        lambda arrays, values: [arrays[1] @ arrays[0].T],
        _matmul_input_grad_work,
    ),
    Operator("matmul_weight_grad", _matmul_weight_grad, _matmul_weight_grad_compute, _matmul_weight_grad_work),
    Operator("matmul_grad", _matmul_grad, _matmul_grad_compute, _matmul_grad_work),
    Operator(
        "gemm",
        _gemm,
        _gemm_compute,
        _gemm_work,
        ("alpha", "beta", "trans_a", "trans_b"),
        gradient=_gemm_gradients,
    ),
    Operator(
        "linear",
        _linear,
        lambda arrays, values: [arrays[0] @ arrays[1] + arrays[2]],
        _linear_work,
        gradient=_linear_gradients,
    ),
    Operator(
        "bias",
        _bias,
        lambda arrays, values: [arrays[0] + arrays[1]],
        elementwise_work(),
        gradient=lambda back: [back.gradient, _bias_gradient(back, back.gradient, 1)],
    ),
    Operator("bias_grad", _bias_grad, _bias_grad_compute, read_work(1.0), ("axes",)),
    Operator(
        "residual",
        _residual,
        lambda a, values: [a[0] + (a[1] + a[2])],
        elementwise_work(2.0),
        gradient=lambda back: [back.gradient, back.gradient, _bias_gradient(back, back.gradient, 2)],
    ),
    Operator(
        "relu",
        _relu,
        lambda arrays, values: [namespace(arrays[0]).maximum(arrays[0], 0)],
        elementwise_work(),
        optional=("keeps_output",),
        gradient=_relu_gradient,
    ),
    Operator("relu_grad", alike, _relu_grad_compute, elementwise_work()),
    Operator(
        "loss",
        _loss,
        lambda arrays, values: [in_format((arrays[0] - arrays[1]) ** 2 / arrays[2], arrays[0])],
        elementwise_work(3.0),
        gradient=lambda back: [back.one("loss_grad", *back.inputs), None, None],
        loss=True,
    ),
    Operator("loss_grad", _loss, _loss_grad_compute, elementwise_work(3.0)),
)
"""Operators whose names do not say it all:

- `split` copies equal parts, and `chunk` returns views of them. `part` copies one of them, and `slice` returns a view
  of it.
- `relu` keeps its input for the gradient, or its output with `keeps_output`, which a later operator may keep anyway.
- `gemm` is alpha A B + beta C, with optional transposition of A and B.
- `linear` is a product plus a bias. `matmul_transposed` is a product with a transposed matrix, such as an embedding
  table. `residual` adds a branch with its bias to the residual stream.
- `bias` adds a tensor to each row. `bias_grad` sums over the axes before the last `axes`.
- `loss` is the squared error per element, divided by the batch size.
- `add_in_place` adds into the memory of a sum. `accumulate` does so without taking time, since the kernel that makes
  the summand adds it.
- `after` passes its first tensor on once the others are ready.
"""
