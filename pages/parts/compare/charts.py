"""Timelines and bubbles of the pairs that are compared."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import streamlit as st

from pages.shared.session import workspace
from pages.shared.time_window import time_window
from pages.shared.widgets import MODE_BAR, literal, picture
from tessel_core.charts.comparison import Shown, compared
from tessel_core.charts.device_bars import bubble_chart, mean_bubbles
from tessel_core.charts.gantt import Detail, detail_of
from tessel_core.charts.windows import EVERYTHING, TimeAxis
from tessel_core.model import BubbleBreakdown
from tessel_core.scheduling import Answer


def timelines(found: Sequence[Answer]) -> None:
    """Every schedule on one time axis."""
    shown = _shown(found)
    if shown:
        st.fragment(_timelines)(shown)


def _timelines(shown: tuple[Shown, ...]) -> None:
    schedules = [each.schedule for each in shown if each.schedule is not None]
    axis = TimeAxis.of(schedules)
    left, right = st.columns([8, 2], vertical_alignment="center")
    with left:
        window = time_window(axis, "compare", slider=detail_of(schedules, axis.windows[EVERYTHING]) is Detail.SHARES)
    memory = right.toggle("Memory lanes", key="compare-memory")
    st.plotly_chart(_figure(shown, window, memory), key="compare-gantt", config=MODE_BAR)


@lru_cache(maxsize=16)
def _figure(shown: tuple[Shown, ...], window: tuple[int, int], memory: bool) -> object:
    return compared(shown, window=window, memory=memory)


def _shown(found: Sequence[Answer]) -> tuple[Shown, ...]:
    labels = workspace().comparison.labels()
    return tuple(
        Shown(label, each.report.drawable)
        for label, each in zip(labels, found, strict=True)
        if each.report is not None and each.report.drawable is not None
    )


def bubbles(found: Sequence[Answer]) -> None:
    """Where the time goes: over all devices, then device by device."""
    shown = _shown(found)
    if not shown:
        return
    breakdowns = [(each.title, BubbleBreakdown.of(each.schedule)) for each in shown if each.schedule is not None]
    picture(mean_bubbles(breakdowns), "compare-mean")
    st.caption(BubbleBreakdown.DEFINITION)
    places = st.columns(2, gap="medium")
    for number, each in enumerate(shown):
        assert each.schedule is not None
        with places[0] if number in range(0, len(shown), 2) else places[1]:
            st.markdown(f"**{literal(each.title)}**")
            chart = bubble_chart(BubbleBreakdown.of(each.schedule), each.schedule.plan)
            picture(chart, f"compare-bubbles-{number}")
