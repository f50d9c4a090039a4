"""Single operators as parts on one H200, for networks whose layers were not measured whole.

An operator keeps the inputs that its backward reads, unless another one keeps them.  Matrix products never take less
time than moving their operands: the curve over FLOPs does not know how thin they are.  None is split in halves of a
backward, and none says what it sends.
"""

from __future__ import annotations

from tessel_core.costs import h200
from tessel_core.networks.parts import Part

_WIDTH = h200.BYTES_PER_ELEMENT

_MEASURED_HEAD = 128
"""Most of the measured attention has heads of this size."""


def linear(rows: int, inputs: int, outputs: int, *, bias: bool = True) -> Part:
    """rows x inputs times a weight matrix; backward: two products as large."""
    seconds = _product_seconds(1, rows, inputs, outputs)
    parameters = inputs * outputs + (outputs if bias else 0)
    return Part(seconds, 2 * seconds, parameters, _WIDTH * rows * inputs, 0)


def product(batch: int, m: int, k: int, n: int) -> Part:
    """`batch` products of two activations, (m x k) times (k x n); backward: two as large for each."""
    seconds = _product_seconds(batch, m, k, n)
    return Part(seconds, 2 * seconds, 0, _WIDTH * batch * (m * k + k * n), 0)


def layer_norm(rows: int, channels: int, *, keeps_input: bool = True) -> Part:
    """Backward: twice the forward.  Keeps the input, and mean and deviation of each row in float32."""
    seconds = h200.layer_norm_seconds(rows, channels)
    kept = _WIDTH * rows * channels if keeps_input else 0
    return Part(seconds, 2 * seconds, 2 * channels, kept + 8 * rows, 0)


def attention(batch: int, heads: int, length: int, head_size: int, *, pair_bias: bool = False) -> Part:
    """Fused attention without a mask: two causal ones.  Keeps queries, keys and values, and 4 bytes a row and head.

    A score of a smaller head takes as long as one of a head of 128: between heads of 64 and 128 the measured seconds
    per score hardly differ.  A pair bias is read for every score, 2 bytes each way, and its gradient is added up in
    float32, 4 bytes read and 4 written a score; what is kept of it is below 1 % of the rest.
    """
    scores, rows = batch * heads * length**2, batch * heads * length
    forward = 2 * h200.attention_seconds(batch, heads, length, _MEASURED_HEAD)
    backward = 2 * h200.attention_backward_seconds(batch, heads, length, _MEASURED_HEAD)
    if pair_bias:
        forward += h200.move_seconds(2 * scores)
        backward += h200.move_seconds(10 * scores)
    return Part(forward, backward, 0, 3 * _WIDTH * rows * head_size + 4 * rows, 0)


def gate(elements: int) -> Part:
    """sigmoid(g) · x.  Forward: two tensors read, one written; backward: three read, two written.  Keeps g and x."""
    return _pointwise(elements, forward=3, backward=5, kept=2)


def relu(elements: int) -> Part:
    """Forward: one tensor read, one written; backward: two read, one written.  The next product keeps its output."""
    return _pointwise(elements, forward=2, backward=3, kept=0)


def residual_sum(elements: int) -> Part:
    """Forward: two tensors read, one written; backward likewise, where the two gradients meet."""
    return _pointwise(elements, forward=3, backward=3, kept=0)


def transpose(elements: int) -> Part:
    """The elements in another order: read and written each way; the operator after it keeps them."""
    return _pointwise(elements, forward=2, backward=2, kept=0)


def _pointwise(elements: int, forward: int, backward: int, kept: int) -> Part:
    """An operator bound by memory; `forward`, `backward` and `kept` count tensors."""
    size = _WIDTH * elements
    return Part(h200.move_seconds(forward * size), h200.move_seconds(backward * size), 0, kept * size, 0)


def _product_seconds(batch: int, m: int, k: int, n: int) -> float:
    moved = _WIDTH * batch * (m * k + k * n + m * n)
    return max(h200.matmul_seconds(batch * m, k, n), h200.move_seconds(moved))
