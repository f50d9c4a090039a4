"""Show the strategy's own order of a pipeline, and search for a shorter order on request."""

from __future__ import annotations

import streamlit as st

from pages.shared.run_panel import answer, report_of, start_search, watch_named
from pages.shared.timeline.component import small_timeline
from pages.shared.widgets import button, literal, picture
from tessel_core.charts.device_bars import cause_chart
from tessel_core.inspection import idle_causes
from tessel_core.model import MAKESPAN, MicroBatchPlan, Schedule, ScheduleReport
from tessel_core.scheduling import DEFAULT_SCHEDULER, Question, find_scheduler
from tessel_core.strategies.strategy import Strategy
from tessel_core.workbench.messages.idle import BY_CAUSE
from tessel_core.workbench.messages.recommendation import idle_sentence, order_sentence

_SHOWN_AT_ONCE_S = 0.6
"""Seconds to wait for an answer before the page shows the progress."""


def shorter_order(plan: MicroBatchPlan | None, own: Schedule | None, strategy: Strategy) -> Schedule | None:
    """Return the order that a search found; None if it is not shorter than the strategy's, or there was no search."""
    report = None if plan is None else _report(_question(plan, strategy))
    found = None if report is None else report.solution
    return found if found is not None and own is not None and found.makespan < own.makespan else None


def timelines(plan: MicroBatchPlan, own: Schedule, strategy: Strategy) -> None:
    """Draw the strategy's order, the shorter order if there is one, and the idle time of each device by cause."""
    found = shorter_order(plan, own, strategy)
    shown = own if found is None else found
    left, right = st.columns([7, 5], gap="large")
    with left:
        st.markdown("**Timeline of the pipeline**")
        named = ((strategy.schedule, own), *([] if found is None else [("searched", found)]))
        small_timeline(named, f"recommend-{len(named)}")
        st.caption(literal(idle_sentence(shown)))
        _search(plan, own, strategy)
    with right:
        which = " :gray[in the searched order]" if found is not None else ""
        st.markdown(f"**Idle time by cause, per device**{which}", help=BY_CAUSE)
        picture(cause_chart(idle_causes(shown), plan), "recommend-causes")


def _search(plan: MicroBatchPlan, own: Schedule, strategy: Strategy) -> None:
    """Offer a search for a shorter order, or show its result."""
    question = _question(plan, strategy)
    run, report = answer(question), _report(question)
    if run is None:
        if button("Search for a shorter order", icon=":material/search:", key="recommend-order", help=_SEARCH):
            start_search(question).wait(_SHOWN_AT_ONCE_S)
            st.rerun()
    elif run.running:
        watch_named(run, "Searching for a shorter order")
    elif report is None:
        st.error(literal(run.complaint), icon=":material/error:")
    else:
        st.markdown(literal(order_sentence(strategy.schedule, own, report)))


_SEARCH = "Run Tessel's search for up to 20 s. The torchtitan configuration includes the order that it finds."


def _question(plan: MicroBatchPlan, strategy: Strategy) -> Question:
    """Return the question for the schedule with the shortest makespan, as the page Schedule asks it."""
    config = find_scheduler(DEFAULT_SCHEDULER).config()
    return Question(DEFAULT_SCHEDULER, plan, strategy.micro_batches, config).about(MAKESPAN)


def _report(question: Question) -> ScheduleReport | None:
    run = answer(question)
    return None if run is None or run.running else report_of(question, run)
