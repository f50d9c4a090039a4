"""Show the strategy's own order of a pipeline, and the one that Tessel's search finds when asked."""

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


def shorter_order(plan: MicroBatchPlan | None, own: Schedule | None, strategy: Strategy) -> Schedule | None:
    """Return the order that was searched; None if none was, or it is not shorter than the strategy's."""
    report = None if plan is None else _report(_question(plan, strategy))
    found = None if report is None else report.solution
    return found if found is not None and own is not None and found.makespan < own.makespan else None


def timelines(plan: MicroBatchPlan, own: Schedule, strategy: Strategy) -> None:
    """Draw the strategy's order and the shorter one, and beside them the idle time of each device by cause."""
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
    """Offer the search for a shorter order, or say what it found."""
    question = _question(plan, strategy)
    run, report = answer(question), _report(question)
    if run is None:
        if button("Search a shorter order", icon=":material/search:", key="recommend-order", help=_SEARCH):
            start_search(question).wait(_SHOWN_AT_ONCE_S)
            st.rerun()
    elif run.running:
        watch_named(run, "Searching a shorter order")
    elif report is None:
        st.error(literal(run.complaint), icon=":material/error:")
    else:
        st.markdown(literal(order_sentence(strategy.schedule, own, report)))


_SEARCH = "Tessel's search, up to 20 s. The torchtitan configuration carries the order that it finds."


def _question(plan: MicroBatchPlan, strategy: Strategy) -> Question:
    """Return the question for the shortest schedule, which the page Schedule asks too."""
    config = find_scheduler(DEFAULT_SCHEDULER).config()
    return Question(DEFAULT_SCHEDULER, plan, strategy.micro_batches, config).about(MAKESPAN)


def _report(question: Question) -> ScheduleReport | None:
    run = answer(question)
    return None if run is None or run.running else report_of(question, run)
