"""Rules that convert an ONNX node to one operation of a program. Default values are those of ONNX.

An attribute contains no size that depends on the input. So the operation is also valid for a part of the batch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from tessel_core.formats.onnx.tensors import Shape
from tessel_core.ir.operators.shaping import reshaping
from tessel_core.networks.onnx.use import Operation, Use

Rule = Callable[[Use], Operation | None]
"""Converts a node to an operation, or returns None if there is no equivalent operation."""

_SAME_INPUTS = (
    "Add Sub Mul Div Pow And Or Xor Not Equal Less Greater LessOrEqual GreaterOrEqual Tanh Sigmoid Erf Sqrt Exp "
    "Log Neg Abs Sign Floor Ceil Round Sin Cos Reciprocal Softplus Softsign Mish HardSwish Where Max Min "
    "GlobalAveragePool GlobalMaxPool"
)
"""Operators without attributes that equal the operation of the same name."""
_REDUCTIONS = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL2 ReduceSumSquare"
_SOFTMAX_ONE_AXIS_OPSET = 13
"""Before this opset, softmax covers all axes from the attribute `axis` on, by default from the second axis."""
_CLIP_INPUTS_OPSET = 11
"""From this opset on, the limits of Clip are inputs instead of attributes."""
_SPATIAL_OPSET = 9
"""Before this opset, a batch normalization may have statistics per position."""
_SLICE_INPUTS_OPSET = 10
"""From this opset on, starts and ends of Slice are inputs instead of attributes."""
_PAD_INPUTS_OPSET = 11
"""From this opset on, the sizes of Pad are inputs instead of attributes."""


def _same(kind: str) -> Rule:
    return lambda use: use.operation(kind)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _clip(use: Use) -> Operation | None:
    if use.opset < _CLIP_INPUTS_OPSET:
        return use.operation("clip", 1, low=use.number("min", -math.inf), high=use.number("max", math.inf))
    if use.is_unknown(1) or use.is_unknown(2):
        return None
    low, high = use.node.arguments.get(1, (-math.inf,)), use.node.arguments.get(2, (math.inf,))
    return use.operation("clip", 1, low=low[0], high=high[0])


def _softmax(kind: str) -> Rule:
    def rule(use: Use) -> Operation | None:
        rank = len(use.shape)
        one_axis = use.opset >= _SOFTMAX_ONE_AXIS_OPSET
        axis = use.integer("axis", -1 if one_axis else 1) % max(rank, 1)
        return use.operation(kind, axes=(axis,) if one_axis else tuple(range(axis, rank)))

    return rule


def _reduction(kind: str) -> Rule:
    def rule(use: Use) -> Operation | None:
        axes = use.axes(1)
        if use.is_unknown(1) or (not axes and use.integer("noop_with_empty_axes", 0)):
            return None
        rank = len(use.shape)
        named = tuple(axis % rank for axis in axes) if axes else tuple(range(rank))
        return use.operation(kind, 1, axes=named, keep=use.integer("keepdims", 1))

    return rule


def _layer_norm(use: Use) -> Operation | None:
    if not use.makes_one:
        return None
    rank = len(use.shape)
    axes = tuple(range(use.integer("axis", -1) % max(rank, 1), rank))
    return use.operation("layer_normalization", axes=axes, epsilon=use.number("epsilon", 1e-5))


def _batch_norm(use: Use) -> Operation | None:
    per_place = use.opset < _SPATIAL_OPSET and not use.integer("spatial", 1)
    if not use.makes_one or use.integer("training_mode", 0) or per_place:
        return None
    return use.operation("batch_norm", 5, epsilon=use.number("epsilon", 1e-5))


def _gemm(use: Use) -> Operation | None:
    return use.operation(
        "gemm",
        alpha=use.number("alpha", 1.0),
        beta=use.number("beta", 1.0),
        trans_a=use.integer("transA", 0),
        trans_b=use.integer("transB", 0),
    )


def _cast(use: Use) -> Operation | None:
    return use.operation("cast", 1, dtype=use.network.tensors[use.node.outputs[0]].dtype)


def _reshape(use: Use) -> Operation | None:
    return use.operation("reshape", 1, shape=reshaping(use.shape, use.made))


def _transpose(use: Use) -> Operation | None:
    rank = len(use.shape)
    axes = use.integers("perm") or tuple(reversed(range(rank)))
    return use.operation("permute" if use.node.is_ready else "transpose", axes=axes)


def _split(use: Use) -> Operation | None:
    if not all(use.node.outputs):
        return None
    axis = use.integer("axis", 0) % max(len(use.shape), 1)
    sizes = tuple(use.network.tensors[name].shape[axis] for name in use.node.outputs)
    if len(set(sizes)) == 1:
        return use.operation("split", 1, axis=axis, parts=len(sizes))
    return use.operation("split_at", 1, axis=axis, sizes=sizes)


def _slice(use: Use) -> Operation | None:
    """Convert a Slice. Its starts and ends may be outside of the tensor, or negative to count from the end."""
    if any(use.is_unknown(position) for position in (1, 2, 3, 4)):
        return None
    by_inputs = use.opset >= _SLICE_INPUTS_OPSET
    starts = use.argument(1) if by_inputs else use.integers("starts")
    ends = use.argument(2) if by_inputs else use.integers("ends")
    if starts is None or ends is None:
        return None
    axes = use.axes(3) or tuple(range(len(starts)))
    steps = use.argument(4) or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        return None
    rank = len(use.shape)
    named = tuple(axis % rank for axis in axes)
    each = zip(named, starts, ends, steps, strict=True)
    ranges = [range(use.shape[axis])[start:end:step] for axis, start, end, step in each]
    return use.operation(
        "strided_slice",
        1,
        axes=named,
        counts=tuple(map(len, ranges)),
        starts=tuple(places.start if places else 0 for places in ranges),
        steps=steps,
    )


def _expand(use: Use) -> Operation | None:
    """Convert an Expand. A size that the input already has becomes 1 in the attribute."""
    has = (1,) * (len(use.made) - len(use.shape)) + use.shape
    shape = tuple(1 if own == size else size for own, size in zip(has, use.made, strict=True))
    return use.operation("expand", 1, shape=shape)


def _pad(use: Use) -> Operation | None:
    if any(use.is_unknown(position) for position in (1, 2, 3)) or use.text("mode", "constant") != "constant":
        return None
    by_inputs = use.opset >= _PAD_INPUTS_OPSET
    pads = (use.argument(1) if by_inputs else use.integers("pads")) or ()
    value = use.node.arguments.get(2, (0.0,))[0] if by_inputs else use.number("value", 0.0)
    rank = len(use.shape)
    axes = use.argument(3) or tuple(range(rank))
    if len(pads) != 2 * len(axes) or min(pads, default=0) < 0:
        return None
    both = [0] * 2 * rank
    for place, axis in enumerate(axes):
        both[axis % rank] = pads[place]
        both[rank + axis % rank] = pads[len(axes) + place]
    return use.operation("pad", 1, pads=tuple(both), value=float(value))


def _swept(use: Use, kernel: Shape) -> dict[str, Shape] | None:
    """Return explicit dilations, pads and strides. Pads at the end are chosen to give the output sizes.

    Return None if the attributes do not fit the number of axes.
    """
    spatial = len(kernel)
    ones = (1,) * spatial
    strides, dilations = use.integers("strides") or ones, use.integers("dilations") or ones
    if not len(strides) == len(dilations) == len(use.shape) - 2 == spatial:
        return None
    pads = use.integers("pads") or (0,) * (2 * spatial)
    how = use.text("auto_pad", "NOTSET")
    before, after = list(pads[:spatial]), list(pads[spatial:])
    for axis in range(spatial):
        size, made = use.shape[2 + axis], use.made[2 + axis]
        needed = (made - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1 - size
        if how.startswith("SAME"):
            total = max(needed, 0)
            before[axis] = total // 2 if how == "SAME_UPPER" else total - total // 2
            after[axis] = total - before[axis]
        elif use.integer("ceil_mode", 0):
            after[axis] = max(after[axis], needed - before[axis])
    return {"dilations": dilations, "pads": (*before, *after), "strides": strides}


def _conv(use: Use) -> Operation | None:
    swept = _swept(use, use.shape_of(1)[2:])
    return None if swept is None else use.operation("conv", groups=use.integer("group", 1), **swept)


def _max_pool(use: Use) -> Operation | None:
    if not use.makes_one:
        return None
    kernel = use.integers("kernel_shape") or ()
    swept = _swept(use, kernel)
    return None if swept is None else use.operation("max_pool", kernel=kernel, **swept)


def _average_pool(use: Use) -> Operation | None:
    """Convert an AveragePool.

    Return None if pads count and sizes are rounded up. Elements beyond the pads never count, and the operation cannot
    express this.
    """
    kernel = use.integers("kernel_shape") or ()
    swept, counts = _swept(use, kernel), use.integer("count_include_pad", 0)
    if swept is None or (counts and use.integer("ceil_mode", 0)):
        return None
    return use.operation("average_pool", count_pads=counts, kernel=kernel, **swept)


RULES: dict[str, Rule] = {
    **{name: _same(_snake_case(name)) for name in _SAME_INPUTS.split()},
    **{name: _reduction(_snake_case(name)) for name in _REDUCTIONS.split()},
    "MatMul": _same("matmul"),
    "PRelu": _same("prelu"),
    # Frameworks keep the output of a ReLU for the backward pass. The next operator usually keeps this tensor, too.
    "Relu": lambda use: use.operation("relu", keeps_output=1),
    "Sum": _same("add"),
    "Gelu": lambda use: use.operation("gelu" if use.text("approximate", "none") == "tanh" else "gelu_erf"),
    "LeakyRelu": lambda use: use.operation("leaky_relu", alpha=use.number("alpha", 0.01)),
    "Elu": lambda use: use.operation("elu", alpha=use.number("alpha", 1.0)),
    "HardSigmoid": lambda use: use.operation(
        "hard_sigmoid", alpha=use.number("alpha", 0.2), beta=use.number("beta", 0.5)
    ),
    "Clip": _clip,
    "Softmax": _softmax("softmax"),
    "LogSoftmax": _softmax("log_softmax"),
    "LayerNormalization": _layer_norm,
    "BatchNormalization": _batch_norm,
    "Gemm": _gemm,
    "Cast": _cast,
    "CastLike": _cast,
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    "Transpose": _transpose,
    "Concat": lambda use: use.operation("concat", axis=use.integer("axis", 1)),
    "Split": _split,
    "Slice": _slice,
    "Expand": _expand,
    "Pad": _pad,
    "Gather": lambda use: use.operation("take", axis=use.integer("axis", 0)),
    "Conv": _conv,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
}
"""Conversion rule for each ONNX operator. Operators without a rule become opaque."""
