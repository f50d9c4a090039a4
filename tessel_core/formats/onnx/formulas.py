"""FLOPs of common operators, from their reference definitions (onnx.ai/onnx/operators).

A product of m x k and k x n matrices has 2·m·k·n FLOPs.  An addition, a root, an exponential, a comparison or any other
function of one number counts as one FLOP.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tessel_core.formats.onnx.tensors import Shape

Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]


class WithAttributes:
    """Access to attributes.  A missing attribute, or one of another type, has the default value."""

    __slots__ = ()
    attributes: Mapping[str, Attribute]

    def integer(self, name: str, default: int) -> int:
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else default

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of integers; empty by default."""
        value = self.attributes.get(name, ())
        return tuple(each for each in value if isinstance(each, int)) if isinstance(value, tuple) else ()

    def number(self, name: str, default: float) -> float:
        value = self.attributes.get(name, default)
        return float(value) if isinstance(value, int | float) else default

    def text(self, name: str, default: str) -> str:
        value = self.attributes.get(name, default)
        return value if isinstance(value, str) else default


@dataclass(frozen=True, slots=True)
class Call(WithAttributes):
    """Shapes of a node's inputs and outputs by position, and its attributes.

    An omitted optional tensor has the shape None.
    """

    inputs: tuple[Shape | None, ...]
    outputs: tuple[Shape | None, ...]
    attributes: Mapping[str, Attribute]

    def has(self, position: int) -> bool:
        """Return whether the optional input at `position` is present."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def input(self, position: int) -> Shape:
        """Return the shape of a required input.  Raises IndexError if it is missing."""
        shape = self.inputs[position]
        if shape is None:
            raise IndexError(position)
        return shape

    @property
    def read(self) -> int:
        """Number of elements of the first input."""
        return math.prod(self.input(0))

    @property
    def made(self) -> int:
        """Number of elements of the first output that is present."""
        return next((math.prod(shape) for shape in self.outputs if shape is not None), 0)


Formula = Callable[[Call], int]
"""Function that returns the FLOPs of one call.  A multiplication with an addition is two FLOPs."""


SOFTMAX_STEPS = 5
"""FLOPs per element of a softmax: maximum, subtraction, exponential, sum, division."""


def _matmul(call: Call) -> int:
    """Return 2·k per output element, where k is the last size of the left matrix."""
    return 2 * call.made * call.input(0)[-1]


def _gemm(call: Call) -> int:
    """Return the FLOPs of alpha·A·B + beta·C: 2·k per output element, and one more with C."""
    k = call.input(0)[0 if call.integer("transA", 0) else 1]
    return call.made * (2 * k + call.has(2))


def _conv(weight: int, bias: int) -> Formula:
    """Return a formula with 2·(channels per group)·(kernel elements) per output element.

    The weight has the shape (M, C/group, kernel…).  `weight` and `bias` are positions of inputs.
    """
    return lambda call: call.made * (2 * math.prod(call.input(weight)[1:]) + call.has(bias))


def _conv_transpose(call: Call) -> int:
    """Return 2·(M/group)·(kernel elements) per input element; the weight has the shape (C, M/group, kernel…)."""
    return 2 * call.read * math.prod(call.input(1)[1:]) + call.made * call.has(2)


def _einsum(call: Call) -> int:
    """Return the FLOPs of one loop over all indices.

    Each step has one multiplication per operand after the first, and one addition if an index is summed. Two operands
    give 2·(product of all extents). For more operands this is an upper bound.
    """
    left, arrow, result = call.text("equation", "").replace(" ", "").partition("->")
    extents, occurrences = dict[str, int](), list[str]()
    for term, shape in zip(left.split(","), call.inputs, strict=True):
        for index, size in zip(_indices(term, shape or ()), shape or (), strict=True):
            extents[index] = max(extents.get(index, 1), size)
            occurrences.append(index)
    # Without an arrow, indices that occur more than once are summed.
    once = {each for each in extents if occurrences.count(each) < 2}
    kept = set(_indices(result, call.outputs[0] or ())) if arrow else once
    summed = any(index not in kept and "." not in index for index in extents)
    return (len(call.inputs) - 1 + summed) * math.prod(extents.values())


def _indices(term: str, shape: Shape) -> list[str]:
    """Return one index name per axis.  Axes of an ellipsis are numbered from the right, as broadcasting aligns them."""
    before, dots, after = term.partition("...")
    if not dots:
        return list(term)
    hidden = len(shape) - len(before) - len(after)
    return [*before, *(f"...{place}" for place in range(hidden, 0, -1)), *after]


def _recurrent(gates: int, steps: int) -> Formula:
    """Return the formula of a recurrent layer with matrices W (D, gates·H, I) and R (D, gates·H, H).

    Per time step and sample, the input is multiplied by W and the state by R.  `steps` are further FLOPs per hidden
    unit.  Two biases are added for each gate.
    """

    def flops(call: Call) -> int:
        length, batch, _ = call.input(0)
        directions, _, hidden = call.input(2)
        products = 2 * (math.prod(call.input(1)) + math.prod(call.input(2)))
        return length * batch * (products + directions * hidden * (steps + 2 * gates * call.has(3)))

    return flops


def _attention(call: Call) -> int:
    """Return the FLOPs of attention. Each score costs 2·(key size + value size), a scaling and a softmax. Causal
    attention has fewer scores.

    Queries, keys and values have the shape (batch, heads, length, size) or (batch, length, heads·size), [opset 23].
    """
    query, key, value = (call.input(i) for i in range(3))
    if len(query) == 3:
        heads, of_keys = call.integer("q_num_heads", 1), call.integer("kv_num_heads", 1)
        lengths, size, value_size = (query[1], key[1]), query[2] // heads, value[2] // of_keys
    else:
        heads, lengths, size, value_size = query[1], (query[2], key[2]), query[3], value[3]
    past = call.input(4)[2] if call.has(4) else 0
    scores = lengths[0] * (lengths[1] + past)
    if call.integer("is_causal", 0):
        scores = min(scores, lengths[0] * past + lengths[0] * (lengths[0] + 1) // 2)
    return query[0] * heads * scores * (2 * (size + value_size) + 1 + SOFTMAX_STEPS)


PRODUCTS: dict[str, Formula] = {
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearMatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv(weight=1, bias=2),
    "ConvInteger": lambda call: 2 * call.made * math.prod(call.input(1)[1:]),
    "QLinearConv": _conv(weight=3, bias=8),
    "ConvTranspose": _conv_transpose,
    "Einsum": _einsum,
    # Three σ of 4 FLOPs each (negate, exponential, add, divide), two tanh, f∘c + i∘g and o∘h.
    "LSTM": _recurrent(gates=4, steps=18),
    # Two σ, one tanh, r∘h, 1 − z, two products and their sum.
    "GRU": _recurrent(gates=3, steps=14),
    "RNN": _recurrent(gates=1, steps=2),
    "Attention": _attention,
}


def _each_made(steps: int) -> Formula:
    return lambda call: steps * call.made


def _each_read(steps: int) -> Formula:
    return lambda call: steps * call.read


def _gelu(call: Call) -> int:
    """Return the FLOPs of x/2·(1 + erf(x/√2)), or of x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))."""
    return call.made * (9 if call.text("approximate", "none") == "tanh" else 5)


def _pool(call: Call) -> int:
    """Return the FLOPs of pooling: for each output element, one per element of the window."""
    return call.made * math.prod(call.integers("kernel_shape"))


def _resize(call: Call) -> int:
    """Return the FLOPs of a resize: 2 per neighbour.

    Each changed axis has 2 (linear) or 4 (cubic) neighbours. "nearest" only copies.
    """
    neighbours = {"nearest": 0, "linear": 2, "bilinear": 2, "cubic": 4}.get(call.text("mode", "nearest"), 0)
    changed = sum(a != b for a, b in zip(call.input(0), call.outputs[0] or (), strict=True))
    return 2 * call.made * neighbours**changed if neighbours and changed else 0


def _top_k(call: Call) -> int:
    """Return the FLOPs of a heap of k elements: log2(k) comparisons per input element, at least one."""
    made = call.outputs[0] or (1,)
    most = made[call.integer("axis", -1)] if made else 1
    return call.read * max(1, math.ceil(math.log2(max(1, most))))


def _lrn(call: Call) -> int:
    """Return the FLOPs of a local response normalization (LRN).

    Each element needs a square, a sum over a window of channels, a product, a sum, a power and a division.
    """
    return call.made * (5 + call.integer("size", 1))


_ONE_STEP = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "And", "Or", "Xor", "Not", "Equal", "Greater", "GreaterOrEqual"),
    *("Less", "LessOrEqual", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Where", "Neg", "Abs"),
    *("Sign", "Floor", "Ceil", "Round", "Sqrt", "Reciprocal", "Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos"),
    *("Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Tanh", "Erf", "IsNaN", "IsInf", "Relu", "ThresholdedRelu"),
)
_COPIES = (
    *("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "Scatter", "Slice", "Split", "Concat"),
    *("Transpose", "Pad", "Tile", "Expand", "DepthToSpace", "SpaceToDepth", "ReverseSequence", "OneHot", "Compress"),
    *("CenterCropPad", "TensorScatter", "Range", "ConstantOfShape", "EyeLike", "Trilu", "Cast", "CastLike", "BitCast"),
    *("MaxUnpool", "NonZero"),
)
VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"})
"""Operators whose output has the same bytes under another name or shape.  Dropout does nothing in inference."""

FORMULAS: dict[str, Formula] = {
    **PRODUCTS,
    **dict.fromkeys(_ONE_STEP, _each_made(1)),
    **dict.fromkeys((*_COPIES, *VIEWS), _each_made(0)),
    # Elementwise over any number of tensors.
    **dict.fromkeys(("Max", "Min", "Sum"), lambda call: call.made * (len(call.inputs) - 1)),
    "Mean": lambda call: call.made * len(call.inputs),
    # Activations, counted from their definitions.
    **dict.fromkeys(("LeakyRelu", "PRelu", "Clip"), _each_made(2)),
    **dict.fromkeys(("Elu", "Softplus", "Softsign", "Shrink"), _each_made(3)),
    **dict.fromkeys(("Sigmoid", "HardSigmoid", "Selu", "Celu"), _each_made(4)),
    **dict.fromkeys(("HardSwish", "Mish"), _each_made(5)),
    "Swish": _each_made(6),  # x·σ(αx)
    "Gelu": _gelu,
    **dict.fromkeys(("Softmax", "LogSoftmax"), _each_made(SOFTMAX_STEPS)),
    "Hardmax": _each_made(2),
    # Normalization: mean (1), deviation (1), its square (1) and the mean of squares (1), then two FLOPs each for the
    # normalization and for scale and shift.  RMS normalization has half.  Batch statistics are known in inference.
    **dict.fromkeys(("LayerNormalization", "InstanceNormalization", "GroupNormalization"), _each_read(8)),
    "MeanVarianceNormalization": _each_read(6),
    "RMSNormalization": _each_read(4),
    "BatchNormalization": _each_read(2),
    "LpNormalization": _each_read(3),
    "LRN": _lrn,
    # Reductions visit each input element.
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
"""Formulas of operators of the default domain.  All other operators count only the bytes that they move."""

TAKES_A_PART = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})
"""Operators that read at most as many bytes of their first input as they write."""

ARGUMENTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        ("Reshape", "Squeeze", "Unsqueeze", "Expand", "Tile", "Split", "TopK", "OneHot", "Trilu", "CenterCropPad"), (1,)
    ),
    **{"ConstantOfShape": (0,), "Slice": (1, 2, 3, 4), "Range": (0, 1, 2)},
    **dict.fromkeys(("Pad", "Resize"), (1, 2, 3)),
    **dict.fromkeys(("Upsample", "CumSum", "CumProd"), (1,)),
    **dict.fromkeys(("Dropout", "Clip", "Col2Im"), (1, 2)),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1"), (1,)),
    **dict.fromkeys(("ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"), (1,)),
}
"""Positions of inputs that the host needs, such as shapes and axes.  They are not weights."""
