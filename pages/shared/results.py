"""An answer on the screen: what was proved, the numbers, the pictures, and the menu of files to take away."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from pages.shared.export_menu import export_menu
from pages.shared.words import literal
from tessel_core.charts import bubble_chart, drawn_window, gantt, gap_curve
from tessel_core.model import BubbleBreakdown, MicroBatchPlan, Schedule, ScheduleReport, Status
from tessel_core.scheduling import key_numbers, verdict

_BAR = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}


def show_answer(report: ScheduleReport, plan: MicroBatchPlan) -> None:
    """Everything about one report, most important first."""
    _say(report, plan)
    schedule = report.drawable
    if schedule is None:
        return
    numbers = key_numbers(report)
    for place, number in zip(st.columns(len(numbers)), numbers, strict=True):
        place.metric(number.label, number.value, number.beside, delta_color="off", delta_arrow="off", help=number.help)
    st.plotly_chart(_gantt(schedule, _window(schedule)), key="gantt", config=_BAR)
    export_menu(report, plan)
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**Bubbles per device**", help=BubbleBreakdown.DEFINITION)
        st.plotly_chart(
            bubble_chart(BubbleBreakdown.of(schedule), plan), key="bubbles", config={"displayModeBar": False}
        )
        st.caption(BubbleBreakdown.DEFINITION)
    with right:
        _search_history(report, plan)


def _say(report: ScheduleReport, plan: MicroBatchPlan) -> None:
    text = literal(verdict(report, plan))
    if report.status is Status.PROVED_OPTIMAL:
        st.success(text, icon=":material/verified:")
    elif report.status is Status.FEASIBLE:
        st.info(text, icon=":material/check:")
    else:
        st.warning(text, icon=":material/error:")


@lru_cache(maxsize=8)
def _gantt(schedule: Schedule, window: tuple[int, int]) -> object:
    return gantt(schedule, window=window)


def _window(schedule: Schedule) -> tuple[int, int]:
    """All of the schedule, or the part that a slider chooses where a browser would choke on all of it."""
    window = drawn_window(schedule)
    if window == (0, schedule.makespan):
        return window
    label = "Too many blocks to draw at once: this moves the part that is shown, from the beginning to the end."
    return drawn_window(schedule, st.slider(label, 0.0, 1.0, 0.0, step=0.01, format="percent"))


def _search_history(report: ScheduleReport, plan: MicroBatchPlan) -> None:
    known = [news for news in report.history if news.objective is not None or news.bound is not None]
    if not known:
        return
    st.markdown("**How the search closed in**", help="Best solution so far and proved bound over wall time.")
    st.plotly_chart(gap_curve(known, plan.time_unit, report.wall_s), key="history", config={"displayModeBar": False})
