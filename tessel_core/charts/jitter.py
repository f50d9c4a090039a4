"""Draw schedules with random durations (jitter): distribution of the makespan, and probability to win."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from tessel_core.charts.figure import STILL_LEGEND, axis_title, finish, lane_axis, plain
from tessel_core.charts.palette import FAINT, LIMIT, SERIES_COLOURS
from tessel_core.inspection import Jittered
from tessel_core.units import many, show_time, time_scale

_TOP, _BOTTOM, _LANE_PIXELS, _THICKNESS = 54, 44, 30, 0.5
_CHANCES_PIXELS = 96


def jitter_chart(shown: Sequence[tuple[str, Jittered]], time_unit: str) -> go.Figure:
    """Draw one lane per schedule, with its makespan under jitter.

    It shows a bar from the median to the 95th percentile, a mark for the makespan without jitter, and the probability
    to win.
    """
    lanes = list(range(len(shown)))
    divisor, unit = time_scale(max((each.p95 for _, each in shown), default=1.0), time_unit)
    hover = [_hover(title, each, time_unit) for title, each in shown]
    looks = {"y": lanes, "customdata": hover, "hovertemplate": "%{customdata}<extra></extra>"}
    figure = go.Figure(
        go.Bar(
            name="p50 to p95",
            orientation="h",
            base=[each.p50 / divisor for _, each in shown],
            x=[(each.p95 - each.p50) / divisor for _, each in shown],
            width=_THICKNESS,
            marker={"color": SERIES_COLOURS[0], "line": {"width": 1, "color": SERIES_COLOURS[0]}},
            **looks,
        )
    )
    figure.add_scatter(
        name="without jitter",
        x=[each.nominal / divisor for _, each in shown],
        mode="markers",
        marker={"symbol": "line-ns", "size": 18, "line": {"color": LIMIT, "width": 2}},
        **looks,
    )
    heading = [("chance to win", -0.5)] if any(each.chance is not None for _, each in shown) else []
    chances = [(f"<b>{each.chance:.1%}</b>", lane) for lane, (_, each) in enumerate(shown) if each.chance is not None]
    for text, lane in (*heading, *chances):
        beside = {"xref": "paper", "x": 1, "xanchor": "left", "xshift": 8, "showarrow": False}
        figure.add_annotation(text=text, y=lane, yanchor="bottom" if lane < 0 else "middle", **beside)
    lane_axis(figure, [plain(title, 60) for title, _ in shown])
    figure.update_xaxes(title=axis_title(f"makespan ({plain(many(unit))})"), gridcolor=FAINT, zeroline=False)
    figure = finish(figure, len(shown) * _LANE_PIXELS, _TOP, _BOTTOM, legend=STILL_LEGEND)
    return figure.update_layout(margin_r=_CHANCES_PIXELS)


def _hover(title: str, jittered: Jittered, time_unit: str) -> str:
    times = {
        "p50": jittered.p50,
        "p95": jittered.p95,
        "mean": jittered.mean,
        "without jitter": jittered.nominal,
    }
    listed = "<br>".join(f"{name}: {plain(show_time(ticks, time_unit))}" for name, ticks in times.items())
    return f"<b>{plain(title, 60)}</b><br>{listed}"
