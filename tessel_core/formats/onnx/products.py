"""FLOPs of the operators that multiply and add: a product of m x k and k x n matrices is 2·m·k·n.

What the letters mean is in the operators' reference, onnx.ai/onnx/operators.
"""

from __future__ import annotations

import math

from tessel_core.formats.onnx.call import Call, Formula
from tessel_core.formats.onnx.tensors import Shape

SOFTMAX_STEPS = 5
"""An element of a softmax: maximum, subtraction, exponential, sum, division."""


def _matmul(call: Call) -> int:
    """2·k for each element made, k the last size of the left matrix."""
    return 2 * call.made * call.input(0)[-1]


def _gemm(call: Call) -> int:
    """alpha·A·B + beta·C: 2·k for each element made, and one more where there is a C."""
    k = call.input(0)[0 if call.integer("transA", 0) else 1]
    return call.made * (2 * k + call.has(2))


def _conv(weight: int, bias: int) -> Formula:
    """2·(channels of a group)·(elements of the kernel) for each element made, the weight is (M, C/group, kernel…)."""
    return lambda call: call.made * (2 * math.prod(call.input(weight)[1:]) + call.has(bias))


def _conv_transpose(call: Call) -> int:
    """Each element read meets (M/group)·(elements of the kernel), the weight is (C, M/group, kernel…)."""
    return 2 * call.read * math.prod(call.input(1)[1:]) + call.made * call.has(2)


def _einsum(call: Call) -> int:
    """For each value of all indices a multiplication per further operand, and an addition where any is summed.

    Two operands: 2·(product of all extents).  More are counted as one loop over all indices, the most it can take.
    """
    left, arrow, result = call.text("equation", "").replace(" ", "").partition("->")
    extents, met = dict[str, int](), list[str]()
    for term, shape in zip(left.split(","), call.inputs, strict=True):
        for index, size in zip(_indices(term, shape or ()), shape or (), strict=True):
            extents[index] = max(extents.get(index, 1), size)
            met.append(index)
    # Without an arrow, the letters that occur more than once are summed.
    kept = set(_indices(result, call.outputs[0] or ())) if arrow else {each for each in extents if met.count(each) < 2}
    summed = any(index not in kept and "." not in index for index in extents)
    return (len(call.inputs) - 1 + summed) * math.prod(extents.values())


def _indices(term: str, shape: Shape) -> list[str]:
    """One name an axis; those of an ellipsis are numbered from the right, as they are broadcast."""
    before, dots, after = term.partition("...")
    if not dots:
        return list(term)
    hidden = len(shape) - len(before) - len(after)
    return [*before, *(f"...{place}" for place in range(hidden, 0, -1)), *after]


def _recurrent(gates: int, steps: int) -> Formula:
    """For each time and sample, the input and the state meet their matrices, W (D, gates·H, I) and R (D, gates·H, H).

    `steps` is what a hidden unit does besides; two biases are added for each gate.
    """

    def flops(call: Call) -> int:
        length, batch, _ = call.input(0)
        directions, _, hidden = call.input(2)
        products = 2 * (math.prod(call.input(1)) + math.prod(call.input(2)))
        return length * batch * (products + directions * hidden * (steps + 2 * gates * call.has(3)))

    return flops


def _attention(call: Call) -> int:
    """2·(size of a key + size of a value) and a scale and a softmax for each score; a causal one leaves scores out.

    Queries, keys and values are (batch, heads, length, size) or (batch, length, heads·size), [opset 23].
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
    # σ = 4 steps (negate, exponential, add, divide); three of them, two tanh, f∘c + i∘g and o∘h.
    "LSTM": _recurrent(gates=4, steps=18),
    # Two σ, one tanh, r∘h, 1 − z, two products and their sum.
    "GRU": _recurrent(gates=3, steps=14),
    "RNN": _recurrent(gates=1, steps=2),
    "Attention": _attention,
}
