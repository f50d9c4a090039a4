"""Plot results over the number of micro-batches, or over the memory capacity."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tessel_core.charts.figure import LEGEND, axis_title, finish, plain
from tessel_core.charts.palette import FAINT, KIND_COLOURS, LIMIT, QUIET, SERIES_COLOURS
from tessel_core.model import BlockKind, MicroBatchPlan, Status
from tessel_core.scheduling.curves import CountPoint, MemoryPoint
from tessel_core.units import counted, many, memory_scale, show_memory, show_time, time_scale

_EACH = {False: "micro-batch", True: "sample"}
_HEIGHT, _TOP, _BOTTOM = 252, 40, 48
_DASHES = ("solid", "dash", "dot", "dashdot")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")


def count_curves(
    lines: Sequence[tuple[str, Sequence[CountPoint]]], time_unit: str, *, per_sample: bool = False
) -> go.Figure:
    """Plot the results of each pair over the number of micro-batches.

    The two plots show the share of idle time, and the time per micro-batch or sample. Hollow points are published
    orders that do not fit in memory.
    """
    figure = make_subplots(rows=1, cols=2, horizontal_spacing=0.09)
    spans = [float(point.time_each(per_sample=per_sample) or 0) for _, points in lines for point in points]
    divisor, unit = time_scale(max(spans, default=1.0), time_unit)
    for number, (label, points) in enumerate(lines):
        known = [point for point in points if point.idle is not None]
        figure.add_trace(_count_line(label, number, known, [100 * (point.idle or 0.0) for point in known]), 1, 1)
        spans = [float(point.time_each(per_sample=per_sample) or 0) / divisor for point in known]
        figure.add_trace(_count_line(label, number, known, spans, legend=False), 1, 2)
    counts = sorted({point.micro_batches for _, points in lines for point in points})
    figure.update_xaxes(type="log", tickvals=counts, title=axis_title("micro-batches"))
    figure.update_yaxes(title=axis_title("idle (%)"), row=1, col=1)
    figure.update_yaxes(title=axis_title(f"{plain(many(unit))} per {_EACH[per_sample]}"), row=1, col=2)
    return _finish(figure)


def _count_line(
    label: str, number: int, points: Sequence[CountPoint], values: list[float], *, legend: bool = True
) -> go.Scatter:
    fits = [point.fits for point in points]
    symbol = _SYMBOLS[number % len(_SYMBOLS)]
    dash = _DASHES[number // len(SERIES_COLOURS) % len(_DASHES)]
    return go.Scatter(
        name=plain(label, 60),
        x=[point.micro_batches for point in points],
        y=values,
        mode="lines+markers",
        line={"color": SERIES_COLOURS[number % len(SERIES_COLOURS)], "width": 2, "dash": dash},
        marker={"size": 8, "symbol": [symbol if ok else f"{symbol}-open" for ok in fits]},
        text=[counted(point.micro_batches, "micro-batch") for point in points],
        customdata=["" if ok else " (does not fit in memory)" for ok in fits],
        hovertemplate="%{text}: %{y:.4g}%{customdata}<extra>" + plain(label, 60) + "</extra>",
        legendgroup=str(number),
        showlegend=legend,
    )


_LOOKS = {
    Status.PROVED_OPTIMAL: ("proved optimal", "circle", KIND_COLOURS[BlockKind.WEIGHT]),
    Status.FEASIBLE: ("found, not proved", "circle-open", KIND_COLOURS[BlockKind.FORWARD]),
    Status.INFEASIBLE: ("infeasible", "x-thin", LIMIT),
    Status.NOTHING_FOUND: ("nothing found in time", "x-thin", QUIET),
}


def memory_curve(points: Sequence[MemoryPoint], plan: MicroBatchPlan, *, per_sample: bool = False) -> go.Figure:
    """Plot the least period found and its bound over the memory capacity. Marks show the status of each point.

    Periods are per micro-batch. With `per_sample`, they are per sample if the plan has samples per micro-batch.
    """
    size = (plan.samples if per_sample else None) or 1
    largest = max((point.capacity for point in points), default=1)
    divisor, unit = memory_scale(largest, plan.memory_unit)
    slowest = max((float((point.period or point.bound) / size) for point in points), default=1.0)
    time_divisor, time_unit = time_scale(slowest, plan.time_unit)
    figure = go.Figure()
    known = [point for point in points if point.period is not None]
    for name, dash, colour, values in (
        ("bound", "dash", LIMIT, [float(point.bound / size) for point in known]),
        ("period", "solid", QUIET, [float((point.period or 0) / size) for point in known]),
    ):
        figure.add_scatter(
            name=name,
            x=[point.capacity / divisor for point in known],
            y=[value / time_divisor for value in values],
            mode="lines",
            line={"shape": "hv", "dash": dash, "color": colour, "width": 2},
            hoverinfo="skip",
        )
    for status, (name, symbol, colour) in _LOOKS.items():
        found = [point for point in points if point.status is status]
        if found:
            periods = [0.0 if point.period is None else float(point.period / size) / time_divisor for point in found]
            figure.add_scatter(
                name=name,
                x=[point.capacity / divisor for point in found],
                y=periods,
                mode="markers",
                marker={"symbol": symbol, "size": 10, "color": colour, "line": {"width": 2, "color": colour}},
                customdata=[_hover_text(point, plan, name, size, _EACH[per_sample]) for point in found],
                hovertemplate="%{customdata}<extra></extra>",
            )
    figure.update_xaxes(title=axis_title(f"capacity of every device ({plain(many(unit))})"), rangemode="tozero")
    figure.update_yaxes(title=axis_title(f"{plain(many(time_unit))} per {_EACH[per_sample]}"))
    return _finish(figure)


def _hover_text(point: MemoryPoint, plan: MicroBatchPlan, name: str, size: int, each: str) -> str:
    capacity = show_memory(point.capacity, plan.memory_unit)
    if point.period is None:
        return f"{plain(capacity)}: {plain(point.reason, 120)}"
    period, bound = (show_time(float(value / size), plan.time_unit) for value in (point.period, point.bound))
    held = show_memory(point.peak or 0, plan.memory_unit)
    return f"{plain(capacity)}: {plain(period)} per {each}, {name}<br>bound {plain(bound)}, holds up to {plain(held)}"


def _finish(figure: go.Figure) -> go.Figure:
    known = any(len(trace.x) for trace in figure.data)
    look = {"gridcolor": FAINT, "zeroline": False, "showticklabels": known}
    figure.update_xaxes(look)
    figure.update_yaxes(look, rangemode="tozero")
    return finish(figure, _HEIGHT, _TOP, _BOTTOM, legend=LEGEND)
