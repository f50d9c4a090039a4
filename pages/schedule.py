"""Schedule page: the plan, the search, and the schedule it found."""

from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.parts.schedule.answer import show_answer
from pages.parts.schedule.by_hand import finishing
from pages.parts.schedule.plan_editor import plan_editor, schedule_beside
from pages.parts.schedule.question_form import begins, question_form, question_room, why_not
from pages.shared.address import PLAN, SCHEDULE, keep_address
from pages.shared.comparing import add_what_is_asked
from pages.shared.keeping import keeping
from pages.shared.run_panel import latest, report_of, run_panel, search
from pages.shared.session import session, unbroken, workspace
from pages.shared.widgets import form, heading_row, literal, switch_room, title_of
from tessel_core.model import ScheduleReport
from tessel_core.scheduling import Question
from tessel_core.units import counted
from tessel_core.workbench.jobs import Run

_BUTTONS, _VIEWS = 390, 152
"""Widths in pixels, reserved because both load late and would otherwise push their neighbours aside."""


def heading() -> tuple[str, DeltaGenerator]:
    """Show the heading. Return the chosen view and the container for the workspace's buttons."""
    work, tab = workspace(), session()
    key = tab.key("view")
    wanted, tab.next_view = tab.next_view, ""
    if wanted or key not in st.session_state:
        st.session_state[key] = wanted or tab.view or (SCHEDULE if work.asked or work.opened else PLAN)
    with heading_row("schedule"):
        title_of(work.name, f"{len(work.plan.devices)} devices · {len(work.plan.blocks)} blocks · {work.source}")
        room = st.container(horizontal=True, vertical_alignment="center", width=_BUTTONS)
        views = (PLAN, SCHEDULE)
        with switch_room(width=_VIEWS):
            look: dict[str, Any] = {"required": True, "label_visibility": "collapsed", "on_change": _turned}
            tab.view = st.segmented_control("View", views, key=key, **look)
    return tab.view, room


@unbroken
def _turned() -> None:
    """Forget the view that the code asked for, because the user has just chosen a view."""
    session().next_view = ""


def answer_view() -> None:
    """Show the answer to the current question, or the previous answer with a note that it is out of date."""
    if finishing():
        st.rerun()
    work, tab = workspace(), session()
    linked, tab.linked = tab.linked, False
    found = None if work.shown else latest(work)
    if found is not None:
        answer_to(*found)
    elif linked and not work.opened and not why_not(work):
        search(work.question)
        st.rerun()
    elif work.opened is not None and work.opened.solution is not None:
        how, stale = "changed by hand" if work.by_hand else "opened", ""
        if work.opened.solution.plan != work.plan:
            stale = f"The plan has changed since this schedule was {how}. Press {begins(work.scheduler)} for a new one."
        elif work.opened.solution.micro_batches != work.micro_batches:
            kept = counted(work.opened.solution.micro_batches, "micro-batch")
            begin, now = begins(work.scheduler), work.micro_batches
            stale = f"This schedule was {how} with {kept}. Press {begin} for one with {now}."
        show_answer(work.opened, work.opened.solution.plan, stale)
    elif not why_not(work):
        st.info(f"Press {begins(work.scheduler)} to find a schedule for this plan.", icon=":material/search:")


def answer_to(asked: Question, run: Run[ScheduleReport]) -> None:
    """Show the progress of a run, then its answer."""
    if run.running:
        run_panel(run, asked.plan.time_unit)
        return
    report = report_of(asked, run)
    if report is None:
        st.error(literal(run.complaint), icon=":material/error:")
    else:
        begin, stale = begins(workspace().scheduler), ""
        if asked.search != workspace().question.search:
            stale = f"Plan, scheduler or options have changed since this search. Press {begin} for a new schedule."
        show_answer(report, asked.plan, stale)


before = session().view
view, room = heading()
fields = form("question")
with fields:
    places = question_room()
changed, beside = plan_editor() if view == PLAN else (False, None)
with fields:
    pressed = question_form(places, beside_tables=view == PLAN)
with room:
    add_what_is_asked()
    keeping()
if pressed:
    search(workspace().question)
    if view == before:  # Otherwise the user has changed the view after pressing the button.
        session().view = session().next_view = SCHEDULE
    keep_address()
    st.rerun()
if beside is None:
    answer_view()
else:
    with beside:
        schedule_beside()
session().again |= changed
