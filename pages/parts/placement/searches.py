"""Placement searches: by one placer, by all placers in turn, or together with a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import streamlit as st

from pages.parts.placement.result import say
from pages.parts.placement.state import PlacementState
from pages.shared.address import SCHEDULE
from pages.shared.contents import go_to
from pages.shared.run_panel import answer, run_panel, search_in_turn, start_search, unanswered
from pages.shared.session import session, workspace
from pages.shared.tables import row_table
from pages.shared.widgets import button, complain, config_form, form_button
from tessel_core.errors import InputError
from tessel_core.model import THROUGHPUT, PlacementReport
from tessel_core.model.layout import layout_of
from tessel_core.placement import PlacementQuestion
from tessel_core.planning import JointConfig, JointEntry, JointQuestion, JointReport, ranked
from tessel_core.workbench.jobs import Run
from tessel_core.workbench.messages.placement import PLACER_COLUMNS, placer_rows
from tessel_core.workbench.messages.plan import JOINT_COLUMNS, joint_rows, joint_verdict
from tessel_core.workbench.planning import joint_question, plan_source

_SHOWN_AT_ONCE_S = 0.6


def search_placement() -> None:
    """Start the search for the current question. `take_answer` applies its result."""
    question = workspace().placing.question
    session().of(PlacementState).awaited = question
    start_search(question).wait(_SHOWN_AT_ONCE_S)


def running() -> Run[PlacementReport] | None:
    """Return the running search for the current question, started by any tab. None if there is none."""
    found = answer(workspace().placing.question)
    return found if found is not None and found.running else None


def take_answer() -> None:
    """Apply the result of the awaited search, if it has ended and its question is still the current one."""
    tab, state = session(), session().of(PlacementState)
    try:
        question = workspace().placing.question
    except InputError:
        return
    run = answer(question)
    if run is not None and run.running:
        state.awaited = question
    elif run is not None and state.awaited == question:
        state.awaited = None
        if run.result is None:
            tab.message, tab.again = f"{run.complaint[0].upper()}{run.complaint[1:]}.", True
        else:
            tab.change_placing(workspace().placing.answered(run.result))


def compare_placers() -> None:
    """Show a table with the result of every placer on this problem, and a button that applies the chosen one."""
    tab, placing = session().of(PlacementState), workspace().placing
    if not tab.comparing:
        st.caption("Compare every placer that supports this objective on the same graph, devices and costs.")
        if button("Run all placers", icon=":material/compare_arrows:"):
            tab.comparing = True
            st.rerun()
        return
    questions = {name: placing.question_to(name) for name in placing.placers}
    search_in_turn(unanswered(questions.values()), lambda question: question.title)
    rows = [_row(name, question) for name, question in questions.items()]
    unit = next(iter(questions.values())).problem.graph.time_unit
    key = f"placers-{sum(report is not None for _, report, _ in rows)}"
    chosen = row_table(_columns(placer_rows(rows, unit), PLACER_COLUMNS), key, placeholder="–")
    report = None if chosen is None else rows[chosen][1]
    if button("Use this placement", disabled=report is None or report.solution is None, help="Select a row first."):
        assert report is not None
        session().change_placing(placing.answered(report))
        st.rerun()


def _row(name: str, question: PlacementQuestion) -> tuple[str, PlacementReport | None, str]:
    run = answer(question)
    if run is None or run.running:
        return name, None, "" if run is None else "is at work"
    return name, run.result, run.complaint


def _columns(rows: Sequence[Mapping[str, object]], names: tuple[str, ...]) -> dict[str, list[object]]:
    return {name: [row[name] for row in rows] for name in names}


def search_both() -> None:
    """Search placement and schedule together. The table gets a row for each placement when its schedule is found."""
    placing, tab = workspace().placing, session().of(PlacementState)
    if placing.objective != THROUGHPUT:
        st.info(_ONLY_THROUGHPUT, icon=":material/block:")
        return
    form, place = st.columns([10, 2], vertical_alignment="bottom")
    with form:
        tab.joint = config_form(tab.joint or JointConfig(), session().key("joint"), columns=5)
    question = joint_question(placing, tab.joint, split_weights=tab.split_weights)
    run = answer(question)
    off = run is not None and run.running
    if form_button("Search both", "search", place, disabled=off):
        start_search(question).wait(_SHOWN_AT_ONCE_S)
        st.rerun()
    if run is None:
        st.caption(_WHY_BOTH)
    elif run.running:
        found = lambda: st.dataframe(_entries(run.parts, question), hide_index=True, placeholder="–")  # noqa: E731
        run_panel(run, "ns", found)
    elif run.result is None:
        complain(run.complaint)
    else:
        _found(run.parts, run.result, question)


_ONLY_THROUGHPUT = (
    "Choose a throughput objective to search placement and schedule together. Only that objective bounds the period."
)
_WHY_BOTH = (
    "Searches a schedule for each of several good placements. A placement with a slightly larger load can leave memory "
    "for more micro-batches in flight, and so reach a shorter period. With several stages per device, layouts with up "
    "to that many stages in both shapes are ranked by makespan."
)


def _entries(entries: tuple[JointEntry, ...], question: JointQuestion) -> dict[str, list[object]]:
    return _columns(joint_rows(entries, question.problem.graph.time_unit), JOINT_COLUMNS)


def _found(entries: tuple[JointEntry, ...], report: JointReport, question: JointQuestion) -> None:
    """Show the verdict, the table, and the buttons that use the chosen row, or the best one."""
    say(joint_verdict(report))
    if not entries:
        return
    chosen = row_table(_entries(entries, question), session().key(f"joint-table-{len(entries)}"), placeholder="–")
    entry = report.best if chosen is None else ranked(entries)[chosen]
    off = entry is None or entry.period is None
    with st.container(horizontal=True, vertical_alignment="center"):
        take = button("Use this placement", key="use-joint", icon=":material/grid_view:", disabled=off)
        follow = button("Open this schedule", key="open-joint", icon=":material/view_timeline:", disabled=off)
        whose = "Uses the best row. Select a row to use another one." if chosen is None else "Uses the selected row."
        st.caption(whose, width="stretch")
    if entry is not None and take:
        placing = workspace().placing.with_micro_batches(question.config.micro_batches)
        if placing.layout is not None:
            layout = layout_of(entry.candidate.placement)
            placing = placing.wanting(THROUGHPUT, contiguous=True, layout=layout)
        session().change_placing(placing.answered(report.placement_report(entry)))
        st.rerun()
    if entry is not None and follow:
        _open(entry)


def _open(entry: JointEntry) -> None:
    """Open the plan and the schedule of an entry."""
    assert entry.report.solution is not None, "an entry without a schedule is not offered"
    tab = session()
    work = workspace().with_plan(entry.plan, f"{plan_source(workspace().placing)}: {entry.candidate.origin}")
    tab.change(replace(work, opened=entry.report, micro_batches=entry.report.solution.micro_batches))
    tab.begin_again()
    tab.next_view = SCHEDULE
    go_to("schedule")
