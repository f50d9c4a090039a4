"""FLOPs of every operator in common use, from the definition in its reference (onnx.ai/onnx/operators).

A root, an exponential, a comparison or any other function of one number is one FLOP, as an addition is.
"""

from __future__ import annotations

import math

from tessel_core.formats.onnx.call import Call, Formula
from tessel_core.formats.onnx.products import PRODUCTS, SOFTMAX_STEPS


def _each_made(steps: int) -> Formula:
    return lambda call: steps * call.made


def _each_read(steps: int) -> Formula:
    return lambda call: steps * call.read


def _joined(call: Call) -> int:
    """Any number of tensors joined element by element."""
    return call.made * (len(call.inputs) - 1)


def _mean(call: Call) -> int:
    return call.made * len(call.inputs)


def _gelu(call: Call) -> int:
    """x/2·(1 + erf(x/√2)), or x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))."""
    return call.made * (9 if call.text("approximate", "none") == "tanh" else 5)


def _pool(call: Call) -> int:
    """Each element made looks at a whole window."""
    return call.made * math.prod(call.integers("kernel_shape"))


def _resize(call: Call) -> int:
    """2 for each neighbour along the axes that change: 1, 2 or 4 neighbours an axis; the nearest is only copied."""
    neighbours = {"nearest": 0, "linear": 2, "bilinear": 2, "cubic": 4}.get(call.text("mode", "nearest"), 0)
    changed = sum(a != b for a, b in zip(call.input(0), call.outputs[0] or (), strict=True))
    return 2 * call.made * neighbours**changed if neighbours and changed else 0


def _top_k(call: Call) -> int:
    """A heap of k: log2(k) comparisons for each element read, one where k is 1."""
    made = call.outputs[0] or (1,)
    most = made[call.integer("axis", -1)] if made else 1
    return call.read * max(1, math.ceil(math.log2(max(1, most))))


def _lrn(call: Call) -> int:
    """A square, a window's sum over channels, then a product, a sum, a power and a division."""
    return call.made * (5 + call.integer("size", 1))


_ONE_STEP = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "And", "Or", "Xor", "Not", "Equal", "Greater", "GreaterOrEqual"),
    *("Less", "LessOrEqual", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Where", "Neg", "Abs"),
    *("Sign", "Floor", "Ceil", "Round", "Sqrt", "Reciprocal", "Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos"),
    *("Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Tanh", "Erf", "IsNaN", "IsInf", "Relu", "ThresholdedRelu"),
)
_MOVES = (
    *("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "Scatter", "Slice", "Split", "Concat"),
    *("Transpose", "Pad", "Tile", "Expand", "DepthToSpace", "SpaceToDepth", "ReverseSequence", "OneHot", "Compress"),
    *(
        "CenterCropPad",
        "TensorScatter",
        "Range",
        "ConstantOfShape",
        "EyeLike",
        "Trilu",
        "Cast",
        "CastLike",
        "MaxUnpool",
        "NonZero",
        "BitCast",
    ),
)
VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"})
"""They give the same bytes another name or shape; dropout does nothing in inference."""

FORMULAS: dict[str, Formula] = {
    **PRODUCTS,
    **dict.fromkeys(_ONE_STEP, _each_made(1)),
    **dict.fromkeys((*_MOVES, *VIEWS), _each_made(0)),
    **dict.fromkeys(("Max", "Min", "Sum"), _joined),
    "Mean": _mean,
    # Activations, as their definitions spell them.
    **dict.fromkeys(("LeakyRelu", "PRelu", "Clip"), _each_made(2)),
    **dict.fromkeys(("Elu", "Softplus", "Softsign", "Shrink"), _each_made(3)),
    **dict.fromkeys(("Sigmoid", "HardSigmoid", "Selu", "Celu"), _each_made(4)),
    **dict.fromkeys(("HardSwish", "Mish"), _each_made(5)),
    "Swish": _each_made(6),  # x·σ(αx)
    "Gelu": _gelu,
    **dict.fromkeys(("Softmax", "LogSoftmax"), _each_made(SOFTMAX_STEPS)),
    "Hardmax": _each_made(2),
    # Normalization: mean (1), deviation (1), its square (1) and their mean (1), then two steps each for the
    # normalization and for scale and shift; without a mean it is half.  A batch's statistics are known in inference.
    **dict.fromkeys(("LayerNormalization", "InstanceNormalization", "GroupNormalization"), _each_read(8)),
    "MeanVarianceNormalization": _each_read(6),
    "RMSNormalization": _each_read(4),
    "BatchNormalization": _each_read(2),
    "LpNormalization": _each_read(3),
    "LRN": _lrn,
    # Reductions touch each element read.
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"), _each_read(1)),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSumSquare"), _each_read(2)),
    "ReduceLogSum": _each_read(1),
    "ReduceLogSumExp": _each_read(4),  # maximum, subtraction, exponential, sum
    **dict.fromkeys(("ArgMax", "ArgMin", "CumSum", "CumProd", "Col2Im"), _each_read(1)),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _each_read(1)),
    "GlobalLpPool": _each_read(2),
    **dict.fromkeys(("AveragePool", "MaxPool"), _pool),
    "LpPool": lambda call: 2 * _pool(call),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "TopK": _top_k,
    "RotaryEmbedding": _each_read(3),  # four products and two sums for a pair
    "QuantizeLinear": _each_made(3),  # division, rounding, sum
    "DequantizeLinear": _each_made(2),
    "DynamicQuantizeLinear": _each_read(5),
}
"""Operators of the default domain; any other one is counted by the bytes that it moves."""

TAKES_A_PART = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})
"""Of their first input they read no more than they write."""

ARGUMENTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        ("Reshape", "Squeeze", "Unsqueeze", "Expand", "Tile", "Split", "TopK", "OneHot", "Trilu", "CenterCropPad"), (1,)
    ),
    **dict.fromkeys(("ConstantOfShape",), (0,)),
    **dict.fromkeys(("Slice",), (1, 2, 3, 4)),
    **dict.fromkeys(("Pad",), (1, 2, 3)),
    **dict.fromkeys(("Range",), (0, 1, 2)),
    **dict.fromkeys(("Resize",), (1, 2, 3)),
    **dict.fromkeys(("Upsample", "CumSum", "CumProd"), (1,)),
    **dict.fromkeys(("Dropout", "Clip"), (1, 2)),
    **dict.fromkeys(("Col2Im",), (1, 2)),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1"), (1,)),
    **dict.fromkeys(("ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"), (1,)),
}
"""Positions of shapes, axes and the like: they steer an operator from the host, and are no weights."""
