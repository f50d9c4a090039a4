"""Placement and schedule searched together: asked, watched, and either taken over."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from pages.parts.placement.result import say
from pages.parts.placement.state import PlacementState
from pages.shared.address import SCHEDULE
from pages.shared.config_form import config_form
from pages.shared.contents import go_to
from pages.shared.markdown import literal
from pages.shared.run_panel import answer, run_panel, start_search
from pages.shared.session import session, workspace
from tessel_core.model import THROUGHPUT
from tessel_core.planning import JointConfig, JointEntry, JointQuestion, JointReport
from tessel_core.workbench.messages.plan import JOINT_COLUMNS, joint_rows, joint_verdict
from tessel_core.workbench.planning import joint_question, plan_source

_SHOWN_AT_ONCE_S = 0.6


def search_both() -> None:
    """The question, its button, and a row per placement as its schedule is found."""
    placing, tab = workspace().placing, session().of(PlacementState)
    if placing.objective != THROUGHPUT:
        st.info(
            "Placement and schedule are searched together for throughput: what a schedule repeats is not bounded by "
            "another objective.",
            icon=":material/block:",
        )
        return
    form, button = st.columns([10, 2], vertical_alignment="bottom")
    with form:
        tab.joint = config_form(tab.joint or JointConfig(), session().key("joint"), columns=5)
    question = joint_question(placing, tab.joint, split_weights=tab.split_weights)
    run = answer(question)
    off = run is not None and run.running
    if button.button("Search both", type="primary", icon=":material/search:", width="stretch", disabled=off):
        start_search(question).wait(_SHOWN_AT_ONCE_S)
        st.rerun()
    if run is None:
        st.caption(
            "Placements near the best, each with its schedule: one whose largest load is not the least may leave "
            "room for more micro-batches in flight, and repeat sooner."
        )
    elif run.running:
        run_panel(run, "ns", lambda: st.dataframe(_columns(run.parts, question), hide_index=True, placeholder="–"))
    elif run.result is None:
        st.error(literal(f"{run.complaint}."), icon=":material/error:")
    else:
        _found(run.parts, run.result, question)


def _found(entries: tuple[JointEntry, ...], report: JointReport, question: JointQuestion) -> None:
    """What is proved, all that was tried, and the ways on from the chosen row or the best."""
    say(joint_verdict(report))
    if not entries:
        return
    event = st.dataframe(
        _columns(entries, question),
        hide_index=True,
        placeholder="–",
        on_select="rerun",
        selection_mode="single-row",
        key=session().key(f"joint-table-{len(entries)}"),
    )
    rows = event["selection"]["rows"]
    _ways_on(entries[rows[0]] if rows else report.best, report, "Of the selected row." if rows else _OF_THE_BEST)


_OF_THE_BEST = "Of the best; select a row for another one."


def _ways_on(entry: JointEntry | None, report: JointReport, whose: str) -> None:
    off = entry is None or entry.period is None
    with st.container(horizontal=True, vertical_alignment="center"):
        take = st.button("Use this placement", key="use-joint", icon=":material/grid_view:", disabled=off)
        follow = st.button("Open this schedule", key="open-joint", icon=":material/view_timeline:", disabled=off)
        st.caption(whose, width="stretch")
    if entry is not None and take:
        session().change_placing(workspace().placing.answered(report.placement_report(entry)))
        st.rerun()
    if entry is not None and follow:
        _open(entry)


def _columns(entries: tuple[JointEntry, ...], question: JointQuestion) -> dict[str, list[object]]:
    rows = joint_rows(entries, question.problem.graph.time_unit)
    return {column: [row[column] for row in rows] for column in JOINT_COLUMNS}


def _open(entry: JointEntry) -> None:
    """Its plan becomes the workspace's, with the schedule that was found."""
    assert entry.report.solution is not None, "an entry without a schedule is not offered"
    tab = session()
    work = workspace().with_plan(entry.plan, f"{plan_source(workspace().placing)}: {entry.candidate.origin}")
    tab.change(replace(work, opened=entry.report, micro_batches=entry.report.solution.micro_batches))
    tab.begin_again()
    tab.next_view = SCHEDULE
    go_to("schedule")
