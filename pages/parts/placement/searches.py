"""Searches for a placement: one placer, all of them in turn, or placement and schedule together."""

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
from pages.shared.widgets import button, complain, config_form
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
    """Ask the present question; `take_answer` takes its answer over."""
    question = workspace().placing.question
    session().of(PlacementState).awaited = question
    start_search(question).wait(_SHOWN_AT_ONCE_S)


def running() -> Run[PlacementReport] | None:
    """The run of the present question while it is under way, by whichever tab; None otherwise."""
    found = answer(workspace().placing.question)
    return found if found is not None and found.running else None


def take_answer() -> None:
    """Move the operators where the awaited answer has them, if it is there and still answers what is asked."""
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
    """All placers on one problem in one table: the button that begins it, and the way to take a placement over."""
    tab, placing = session().of(PlacementState), workspace().placing
    if not tab.comparing:
        st.caption("Every placer that serves the objective, on the same graph, devices and costs.")
        if button("Ask all placers", icon=":material/compare_arrows:"):
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
    """Placement and schedule together: the question, its button, and a row per placement as its schedule is found."""
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
    if button("Search both", place=place, type="primary", icon=":material/search:", width="stretch", disabled=off):
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
    "Placement and schedule are searched together for throughput: no other objective bounds the period of a schedule."
)
_WHY_BOTH = (
    "Placements near the best, each with its schedule: one whose largest load is not the least may leave "
    "room for more micro-batches in flight, and repeat sooner. With several stages per device: the layouts with as "
    "many or fewer, in both shapes, ranked by makespan."
)


def _entries(entries: tuple[JointEntry, ...], question: JointQuestion) -> dict[str, list[object]]:
    return _columns(joint_rows(entries, question.problem.graph.time_unit), JOINT_COLUMNS)


def _found(entries: tuple[JointEntry, ...], report: JointReport, question: JointQuestion) -> None:
    """The verdict, all entries, and the ways on from the chosen row or the best."""
    say(joint_verdict(report))
    if not entries:
        return
    chosen = row_table(_entries(entries, question), session().key(f"joint-table-{len(entries)}"), placeholder="–")
    entry = report.best if chosen is None else ranked(entries)[chosen]
    off = entry is None or entry.period is None
    with st.container(horizontal=True, vertical_alignment="center"):
        take = button("Use this placement", key="use-joint", icon=":material/grid_view:", disabled=off)
        follow = button("Open this schedule", key="open-joint", icon=":material/view_timeline:", disabled=off)
        whose = "Of the best; select a row for another one." if chosen is None else "Of the selected row."
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
    """Its plan becomes the workspace's, with the schedule that was found."""
    assert entry.report.solution is not None, "an entry without a schedule is not offered"
    tab = session()
    work = workspace().with_plan(entry.plan, f"{plan_source(workspace().placing)}: {entry.candidate.origin}")
    tab.change(replace(work, opened=entry.report, micro_batches=entry.report.solution.micro_batches))
    tab.begin_again()
    tab.next_view = SCHEDULE
    go_to("schedule")
