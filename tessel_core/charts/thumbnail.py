"""Draw small pictures of samples, as SVG of up to a few thousand bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

from tessel_core.charts.palette import FAINT, KIND_COLOURS
from tessel_core.model import BlockKind, MicroBatchPlan, OperatorGraph, Schedule

_WIDTH, _HEIGHT = 96, 40
_MIN_BAR_WIDTH = 0.6
"""Least width of a bar, in pixels. A thinner bar would be invisible."""
_BARS = 32

Bar = tuple[float, float, float, float, str]
"""Bar of a picture: left, top, width, height (in pixels) and colour."""


def plan_thumbnail(plan: MicroBatchPlan, alone: Schedule) -> str:
    """Draw one micro-batch: one lane per device, time from left to right."""
    high = _HEIGHT / len(plan.devices)
    gap = min(1.0, high / 6)
    scale = _WIDTH / max(1, alone.makespan)

    def bars() -> Iterator[Bar]:
        for lane in range(len(plan.devices)):
            yield 0, lane * high, _WIDTH, high - gap, FAINT
        for start, b in zip(alone.start.tolist(), alone.block.tolist(), strict=True):
            block = plan.blocks[b]
            for lane in block.devices:
                wide = max(_MIN_BAR_WIDTH, block.duration * scale)
                yield start * scale, lane * high, wide, high - gap, KIND_COLOURS[block.kind]

    return _svg(bars())


def graph_thumbnail(graph: OperatorGraph) -> str:
    """Draw the costs of the operators from input to output, forward above the middle and backward below.

    A cost is the time if the graph has times, or else the FLOPs, or else 1 per operator.
    """
    sums = {False: [0.0] * _BARS, True: [0.0] * _BARS}
    for passed, bars in sums.items():
        costs = [cost for backward, cost in _costs(graph) if backward == passed]
        for i, cost in enumerate(costs):
            bars[int(Fraction(i, len(costs)) * _BARS)] += cost
    highest = max(max(bars) for bars in sums.values()) or 1.0
    middle = _HEIGHT / 2 if any(sums[True]) else _HEIGHT
    wide = _WIDTH / _BARS

    def drawn() -> Iterator[Bar]:
        yield 0, middle - 0.5, _WIDTH, 1, FAINT
        for i, (up, down) in enumerate(zip(sums[False], sums[True], strict=True)):
            forward, backward = middle * up / highest, middle * down / highest
            yield i * wide, middle - forward, wide - 0.6, forward, KIND_COLOURS[BlockKind.FORWARD]
            yield (_BARS - 1 - i) * wide, middle, wide - 0.6, backward, KIND_COLOURS[BlockKind.BACKWARD]

    return _svg(drawn())


def _costs(graph: OperatorGraph) -> list[tuple[bool, float]]:
    """Return each operator's cost, and whether the operator is backward."""
    timed, counted = any(each.times for each in graph.operators), any(each.flops for each in graph.operators)
    if timed:
        costs = [max((time.time for time in each.times), default=0.0) for each in graph.operators]
    else:
        costs = [(each.flops or 0.0) if counted else 1.0 for each in graph.operators]
    return [(each.backward, cost) for each, cost in zip(graph.operators, costs, strict=True)]


def _svg(bars: Iterable[Bar]) -> str:
    found = "".join(
        f'<rect x="{x:.3g}" y="{y:.3g}" width="{width:.3g}" height="{height:.3g}" fill="{colour}"/>'
        for x, y, width, height, colour in bars
        if height > 0
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="presentation">{found}</svg>'
