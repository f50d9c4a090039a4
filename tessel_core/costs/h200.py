"""Measurements on one NVIDIA H200 in bf16, to which the cost model is fitted, and the parameters of a GPT layer.

They were taken with PyTorch 2.11 and CUDA 13 in eager mode, as medians of 9 to 15 runs timed by CUDA events. The file
is read once, when it is first needed.
"""

from __future__ import annotations

import csv
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import exp, log
from statistics import median

from tessel_core.formats.fields import parse

_FILE = "h200_costs.csv"


@dataclass(frozen=True, slots=True)
class Row:
    """One measured operator at one shape. Rows that repeat a shape are merged into their median."""

    shape: tuple[int, ...]
    flops: float
    bytes_moved: float
    seconds: float
    parameters: int = 0
    """Parameters of a layer, else 0."""
    activation_bytes: int = 0
    """Bytes that a layer keeps for its backward pass, else 0."""


def rows(operator: str) -> Mapping[tuple[int, ...], Row]:
    """Return the measured rows of one operator by shape, such as (m, k, n) for `matmul`. Raises KeyError for others."""
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
    """Seconds as a function of work (FLOPs, bytes or elements), interpolated between logarithms of its points.

    The curve is flat below its first point, because the launch dominates small operators. Beyond the last point, the
    rate stays that of the last point. More work never takes less time.
    """

    work: tuple[float, ...]
    seconds: tuple[float, ...]

    @classmethod
    def through(cls, points: Iterable[tuple[float, float]]) -> Curve:
        """Return the curve through (work, seconds) points.

        Points of equal work are merged into their median, and raised to the slowest point of less work.

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
        """Return the seconds of this work."""
        after = bisect_left(self.work, work)
        if after == 0:
            return self.seconds[0]
        if after == len(self.work):
            return self.seconds[-1] * work / self.work[-1]
        low, high = after - 1, after
        share = log(work / self.work[low]) / log(self.work[high] / self.work[low])
        return exp((1 - share) * log(self.seconds[low]) + share * log(self.seconds[high]))


def layer_parameters(hidden: int, tensor_parallel: int = 1) -> int:
    """Return the exact number of parameters of a GPT layer on one of `tensor_parallel` = t devices.

    With hidden size h, it has 12 h² / t weights, 7 h / t biases of split products, and 6 h whole biases and parameters
    of norms.
    """
    return (12 * hidden**2 + 7 * hidden) // tensor_parallel + 6 * hidden
