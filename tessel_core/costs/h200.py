"""Seconds and bytes on one NVIDIA H200 in bf16: the measured row where there is one, else a stated estimate.

Estimates interpolate the measured seconds over the operator's amount of work (`Curve`), so an operator runs at the
efficiency of measured operators of its size.  They do not know that thin matrices run slower than square ones: left
out one by one, half of the measured matrix products are estimated within 10 %, nine in ten within 50 %.  The rows, read
once when first needed: PyTorch 2.11, CUDA 13, eager mode, median of 9 to 15 runs by CUDA events.
"""

from __future__ import annotations

import csv
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import exp, log, prod
from operator import attrgetter
from statistics import median

from tessel_core.errors import InputError
from tessel_core.formats.fields import parse

_FILE = "h200_costs.csv"

MEMORY_BYTES = 150_000_000_000
"""Memory of one H200 that programs can use, about 139 GiB."""

BYTES_PER_ELEMENT = 2
"""bf16."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured operator at one shape; rows that repeat a shape are merged into their median."""

    shape: tuple[int, ...]
    flops: float
    bytes_moved: float
    seconds: float
    parameters: int = 0
    """Of a layer, else 0."""
    activation_bytes: int = 0
    """Kept for the backward by a layer; else 0."""


def rows(operator: str) -> Mapping[tuple[int, ...], Row]:
    """The measured rows of one operator by shape, such as (m, k, n) for `matmul`; KeyError for another operator."""
    return _all_rows()[operator]


@cache
def _all_rows() -> Mapping[str, Mapping[tuple[int, ...], Row]]:
    found: dict[str, dict[tuple[int, ...], list[Row]]] = defaultdict(lambda: defaultdict(list))
    text = files("tessel_core.costs").joinpath("data", _FILE).read_text(encoding="utf-8")
    lines = csv.reader(text.splitlines())
    next(lines)  # the header: op, shape, flops, bytes, us, extra
    for operator, shape_text, flops, bytes_moved, microseconds, extra in lines:
        shape, sizes = tuple(map(int, shape_text.split("x"))), (0, 0)
        if extra:
            fields = parse(extra.encode(), _FILE)
            sizes = fields.integer("params", least=1), fields.integer("activation_bytes", least=1)
        row = Row(shape, float(flops), float(bytes_moved), float(microseconds) * 1e-6, *sizes)
        found[operator][shape].append(row)
    return {operator: {shape: _merge(same) for shape, same in by_shape.items()} for operator, by_shape in found.items()}


def _merge(same: list[Row]) -> Row:
    return replace(same[0], seconds=median(row.seconds for row in same))


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds over work (FLOPs, bytes or elements), linear between the logarithms of its points.

    Below its first point it is flat, because small operators are bound by their launch; beyond its last point the
    last rate holds.  More work never takes less time.
    """

    work: tuple[float, ...]
    seconds: tuple[float, ...]

    @classmethod
    def through(cls, points: Iterable[tuple[float, float]]) -> Curve:
        """The curve through (work, seconds) points: medians of equal work, raised to the slowest of less work.

        >>> round(Curve.through([(1, 4.0), (4, 1.0), (4, 16.0), (4, 8.0)])(2), 3)
        5.657
        """
        same: dict[float, list[float]] = defaultdict(list)
        for work, seconds in points:
            same[work].append(seconds)
        slowest = 0.0
        rising = []
        for work in sorted(same):
            slowest = max(slowest, median(same[work]))
            rising.append((work, slowest))
        return cls(tuple(work for work, _ in rising), tuple(seconds for _, seconds in rising))

    def __call__(self, work: float) -> float:
        after = bisect_left(self.work, work)
        if after == 0:
            return self.seconds[0]
        if after == len(self.work):
            return self.seconds[-1] * work / self.work[-1]
        low, high = after - 1, after
        share = log(work / self.work[low]) / log(self.work[high] / self.work[low])
        return exp((1 - share) * log(self.seconds[low]) + share * log(self.seconds[high]))


@dataclass(frozen=True, slots=True)
class LayerCost:
    """One GPT layer on one device: seconds of its parts, its parameters, and what it keeps for the backward."""

    forward: float
    input_gradient: float
    weight_gradient: float
    parameters: int
    activation_bytes: int

    @property
    def backward(self) -> float:
        """Seconds of the whole backward."""
        return self.input_gradient + self.weight_gradient


def layer(batch: int, sequence: int, hidden: int, heads: int, tensor_parallel: int = 1) -> LayerCost:
    """A pre-norm GPT layer with causal attention and an MLP of 4 x hidden, split over `tensor_parallel` devices.

    Heads and MLP width are divided by `tensor_parallel`; communication is not in the time.  The weight gradient is the
    measured whole backward less the measured input gradient.  Where this batch was not measured, seconds are
    interpolated over `layer_flops` between the batches of the same layer, or between all layers where it was measured
    at none; the sizes follow `layer_parameters` and `layer_activation_bytes`.
    """
    shape = _checked(batch=batch, sequence=sequence, hidden=hidden, heads=heads, tensor_parallel=tensor_parallel)
    forward = rows("layer_fwd").get(shape)
    if forward is not None:
        whole, by_input = rows("layer_bwd")[shape].seconds, rows("layer_bwd_input")[shape].seconds
        return LayerCost(forward.seconds, by_input, whole - by_input, forward.parameters, forward.activation_bytes)
    flops, layer_shape = layer_flops(*shape), shape[1:]
    return LayerCost(
        _layer_curve("layer_fwd", layer_shape)(flops),
        _layer_curve("layer_bwd_input", layer_shape)(flops),
        _weight_gradient_curve(layer_shape)(flops),
        layer_parameters(hidden, tensor_parallel),
        layer_activation_bytes(*shape),
    )


def layer_flops(batch: int, sequence: int, hidden: int, heads: int, tensor_parallel: int = 1) -> int:
    """Forward FLOPs of a layer's matrix products: (24 b s h² + 2 b s² h) / t, attention halved by its causal mask
    [Narayanan 2021, appendix]; `heads` change nothing."""
    return (24 * batch * sequence * hidden**2 + 2 * batch * sequence**2 * hidden) // tensor_parallel


def layer_parameters(hidden: int, tensor_parallel: int = 1) -> int:
    """12 h² / t weights, 7 h / t biases of split products, 6 h of whole biases and layer norms; exact."""
    return (12 * hidden**2 + 7 * hidden) // tensor_parallel + 6 * hidden


def layer_activation_bytes(batch: int, sequence: int, hidden: int, heads: int, tensor_parallel: int = 1) -> int:
    """Kept for the backward: 8 + 24 / t bytes per token and hidden unit, and 4 bytes of attention statistics per token
    and head, 16 of layer norms per token.  Counted tensor by tensor; up to 7 % below measured layers, whose allocations
    are rounded up."""
    tokens = batch * sequence
    per_token = 8 * hidden + (24 * hidden + 4 * heads) // tensor_parallel + 16
    return tokens * per_token


def matmul_seconds(m: int, k: int, n: int) -> float:
    """(m x k) times (k x n); else interpolated over its 2 m k n FLOPs."""
    return _seconds("matmul", _checked(m=m, k=k, n=n), _flops, 2.0 * m * k * n)


def attention_seconds(batch: int, heads: int, sequence: int, head_size: int) -> float:
    """Fused causal attention, forward; else interpolated over its 2 b a s² d FLOPs."""
    shape = _checked(batch=batch, heads=heads, sequence=sequence, head_size=head_size)
    return _seconds("attention_fwd", shape, _flops, 2.0 * batch * heads * sequence**2 * head_size)


def attention_backward_seconds(batch: int, heads: int, sequence: int, head_size: int) -> float:
    """Fused causal attention, backward; else interpolated over its FLOPs, 2.5 times the forward's."""
    shape = _checked(batch=batch, heads=heads, sequence=sequence, head_size=head_size)
    return _seconds("attention_bwd", shape, _flops, 5.0 * batch * heads * sequence**2 * head_size)


def layer_norm_seconds(tokens: int, hidden: int) -> float:
    """Layer norm, forward; else interpolated over the elements."""
    return _seconds("layernorm", _checked(tokens=tokens, hidden=hidden), _elements, float(tokens * hidden))


def add_seconds(elements: int) -> float:
    """Element-wise sum of two tensors into one, such as a gradient's accumulation; else interpolated."""
    return _seconds("add", _checked(elements=elements), _elements, float(elements))


def move_seconds(amount: float) -> float:
    """Any operator bound by memory that reads and writes `amount` bytes in all, at the measured speed of copies."""
    return _curve("copy", _bytes_moved)(amount)


def embedding_seconds(tokens: int, vocabulary: int, hidden: int) -> float:
    """Look up `tokens` rows of a vocabulary x hidden table; else interpolated over the bytes read and written."""
    shape = _checked(tokens=tokens, vocabulary=vocabulary, hidden=hidden)
    return _seconds("embedding", shape, _bytes_moved, 2.0 * tokens * hidden * BYTES_PER_ELEMENT)


def cross_entropy_seconds(tokens: int, vocabulary: int) -> float:
    """Loss of bf16 logits through a float32 copy; else interpolated over tokens x vocabulary.

    The rows do not say whether they hold the backward too; like all rows without a twin they are taken as forward.
    """
    shape = _checked(tokens=tokens, vocabulary=vocabulary)
    return _seconds("cross_entropy", shape, _elements, 1.0 * tokens * vocabulary)


def cross_entropy_backward_seconds(tokens: int, vocabulary: int) -> float:
    """Estimated, none was measured: per logit read 4 and write 4 bytes for the float32 gradient, then read 4 and write
    2 to return to bf16, all at the speed of memory."""
    _checked(tokens=tokens, vocabulary=vocabulary)
    return move_seconds(14.0 * tokens * vocabulary)


def _seconds(operator: str, shape: tuple[int, ...], work_of: Callable[[Row], float], work: float) -> float:
    measured = rows(operator).get(shape)
    return _curve(operator, work_of)(work) if measured is None else measured.seconds


@cache
def _curve(operator: str, work_of: Callable[[Row], float]) -> Curve:
    return Curve.through((work_of(row), row.seconds) for row in rows(operator).values())


def _alike(operator: str, layer_shape: tuple[int, ...]) -> list[Row]:
    """Rows of the layer at any batch; of every layer where there are none."""
    measured = rows(operator)
    return [row for shape, row in measured.items() if shape[1:] == layer_shape] or list(measured.values())


@cache
def _layer_curve(operator: str, layer_shape: tuple[int, ...]) -> Curve:
    return Curve.through((row.flops, row.seconds) for row in _alike(operator, layer_shape))


@cache
def _weight_gradient_curve(layer_shape: tuple[int, ...]) -> Curve:
    by_input = rows("layer_bwd_input")
    whole = _alike("layer_bwd", layer_shape)  # its FLOPs are twice the forward's
    return Curve.through((row.flops / 2, row.seconds - by_input[row.shape].seconds) for row in whole)


_flops: Callable[[Row], float] = attrgetter("flops")
_bytes_moved: Callable[[Row], float] = attrgetter("bytes_moved")


def _elements(row: Row) -> float:
    return float(prod(row.shape))


def _checked(**sizes: int) -> tuple[int, ...]:
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InputError(name.replace("_", " "), f"must be an integer of at least 1, got {size!r}")
    return tuple(sizes.values())
