"""The measured rows, read once when first needed.

One NVIDIA H200, PyTorch 2.11, CUDA 13, bf16, eager mode, median of 9 to 15 runs by CUDA events.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import median

from tessel_core.formats.fields import parse

_FILE = "h200_costs.csv"


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
    """Of a layer: what it keeps for the backward; else 0."""


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
        shape = tuple(map(int, shape_text.split("x")))
        row = Row(shape, float(flops), float(bytes_moved), float(microseconds) * 1e-6, *_layer_sizes(extra))
        found[operator][shape].append(row)
    return {operator: {shape: _merge(same) for shape, same in by_shape.items()} for operator, by_shape in found.items()}


def _layer_sizes(extra: str) -> tuple[int, int]:
    if not extra:
        return 0, 0
    fields = parse(extra.encode(), _FILE)
    return fields.integer("params", least=1), fields.integer("activation_bytes", least=1)


def _merge(same: list[Row]) -> Row:
    first = same[0]
    seconds = median(row.seconds for row in same)
    return Row(first.shape, first.flops, first.bytes_moved, seconds, first.parameters, first.activation_bytes)
