"""An answer on the screen: what was proved, the numbers, the pictures, and the menu of files to take away."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from pages.shared.export_menu import export_menu
from pages.shared.markdown import literal
from pages.shared.session import session, workspace
from pages.shared.time_window import time_window
from tessel_core.charts.device_bars import bubble_chart
from tessel_core.charts.gantt import SHARES_TOLD, Detail, detail_of, gantt
from tessel_core.charts.progress import gap_curve
from tessel_core.charts.windows import EVERYTHING, TimeAxis
from tessel_core.model import MAKESPAN, PERIOD, BubbleBreakdown, MicroBatchPlan, Schedule, ScheduleReport, Status
from tessel_core.workbench.messages.schedule import key_numbers, verdict

MODE_BAR = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}


def show_answer(report: ScheduleReport, plan: MicroBatchPlan) -> None:
    """Everything about one report, most important first."""
    _say(report, plan)
    _objective_switch(report)
    schedule = report.drawable
    if schedule is None:
        return
    numbers = key_numbers(report)
    for place, number in zip(st.columns(len(numbers)), numbers, strict=True):
        place.metric(number.label, number.value, number.beside, delta_color="off", delta_arrow="off", help=number.help)
    st.fragment(_timeline)(schedule)
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


def _objective_switch(report: ScheduleReport) -> None:
    """Which of the two schedules of one search is shown; it is the option of the same name, so nothing is searched."""
    if report.steady_costs is None:
        return
    # A switch an objective: where the form has changed it, the switch begins anew.
    key = session().key(f"shown-{report.objective_name}")
    st.segmented_control(
        "Schedule",
        list(_SHOWN),
        default=report.objective_name,
        format_func=_SHOWN.__getitem__,
        key=key,
        required=True,
        label_visibility="collapsed",
        help="The shortest schedule of these micro-batches, or the shortest that keeps the repetend.",
        on_change=_show,
        args=(key,),
    )


def _show(key: str) -> None:
    session().change(workspace().about(st.session_state[key]))
    session().begin_again()


_SHOWN = {MAKESPAN: "Shortest", PERIOD: "Steady"}


@lru_cache(maxsize=8)
def _gantt(schedule: Schedule, window: tuple[int, int]) -> object:
    return gantt(schedule, window=window)


def _timeline(schedule: Schedule) -> None:
    axis = TimeAxis.of([schedule])
    slider = detail_of([schedule], axis.windows[EVERYTHING]) is Detail.SHARES
    window = time_window(axis, "answer", slider=slider)
    st.plotly_chart(_gantt(schedule, window), key="gantt", config=MODE_BAR)
    if detail_of([schedule], window) is Detail.SHARES:
        st.caption(f"{SHARES_TOLD} Choose a shorter window to see blocks.")


def _search_history(report: ScheduleReport, plan: MicroBatchPlan) -> None:
    known = [news for news in report.history if news.objective is not None or news.bound is not None]
    if not known:
        return
    st.markdown("**How the search closed in**", help="Best solution so far and proved bound over wall time.")
    st.plotly_chart(gap_curve(known, plan.time_unit, report.wall_s), key="history", config={"displayModeBar": False})
