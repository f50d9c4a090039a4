"""Measurements on one NVIDIA H200 in bf16. The cost model is fitted to them. Also the parameter count of a GPT layer.

The measurements were made with PyTorch 2.11 and CUDA 13 in eager mode. Each is the median of 9 to 15 runs, timed by
CUDA events. The file is read when it is first needed.
"""

from __future__ import annotations

import csv
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log
from pathlib import Path
from statistics import median

from tessel_core.formats.fields import parse

FILE = Path(__file__).with_name("h200_costs.csv")


@dataclass(frozen=True, slots=True)
class Row:
    """An operator measured for one shape. If the file has several rows for a shape, this is their median."""

    shape: tuple[int, ...]
    flops: float
    bytes_moved: float
    seconds: float
    parameters: int = 0
    """Number of parameters of a layer. 0 for other operators."""
    activation_bytes: int = 0
    """Bytes that a layer keeps for its backward pass. 0 for other operators."""


def rows(operator: str) -> Mapping[tuple[int, ...], Row]:
    """Return the measurements of one operator by shape, such as (m, k, n) for `matmul`.

    Raises KeyError for an operator that was not measured.
    """
    return _all_rows()[operator]


@cache
def _all_rows() -> Mapping[str, Mapping[tuple[int, ...], Row]]:
    found: dict[str, dict[tuple[int, ...], list[Row]]] = defaultdict(lambda: defaultdict(list))
    lines = csv.reader(FILE.read_text(encoding="utf-8").splitlines())
    next(lines)  # The header is: op, shape, flops, bytes, us, extra.
    for operator, shape_text, flops, bytes_moved, microseconds, extra in lines:
        shape, sizes = tuple(map(int, shape_text.split("x"))), (0, 0)
        if extra:
            fields = parse(extra.encode(), FILE.name)
            sizes = fields.integer("params", least=1), fields.integer("activation_bytes", least=1)
        row = Row(shape, float(flops), float(bytes_moved), float(microseconds) * 1e-6, *sizes)
        found[operator][shape].append(row)
    return {operator: {shape: _merge(same) for shape, same in by_shape.items()} for operator, by_shape in found.items()}


def _merge(same: list[Row]) -> Row:
    return replace(same[0], seconds=median(row.seconds for row in same))


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds as a function of work (FLOPs, bytes or elements), interpolated linearly between the logarithms of its
    points.

    Below its first point, the curve is constant, because the launch dominates small operators. Beyond its last point,
    the work per second is constant. More work never takes less time.
    """

    work: tuple[float, ...]
    seconds: tuple[float, ...]

    @classmethod
    def through(cls, points: Iterable[tuple[float, float]]) -> Curve:
        """Return the curve through the points (work, seconds).

        Points with equal work are replaced by their median. A point is raised if a point with less work is slower.

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
        """Return the seconds for this amount of work."""
        after = bisect_left(self.work, work)
        if after == 0:
            return self.seconds[0]
        if after == len(self.work):
            return self.seconds[-1] * work / self.work[-1]
        low, high = after - 1, after
        share = log(work / self.work[low]) / log(self.work[high] / self.work[low])
        return exp((1 - share) * log(self.seconds[low]) + share * log(self.seconds[high]))


def layer_parameters(hidden: int, tensor_parallel: int = 1) -> int:
    """Return the exact number of parameters of a GPT layer on each of `tensor_parallel` = t devices.

    With hidden size h, the layer has 12 h² / t weights, 7 h / t biases of divided products, and 6 h parameters that
    every device has: the other biases and the norms.
    """
    return (12 * hidden**2 + 7 * hidden) // tensor_parallel + 6 * hidden
