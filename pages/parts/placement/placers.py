"""All placers on one problem, one after the other, in one table."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from pages.parts.placement.state import PlacementState
from pages.shared.run_panel import answer, search_in_turn
from pages.shared.session import session, workspace
from tessel_core.model import PlacementReport
from tessel_core.placement import PlacementQuestion
from tessel_core.workbench.messages.placement import PLACER_COLUMNS, placer_rows


def compare_placers() -> None:
    """The button that begins it, the table, and the way to take one of the placements over."""
    tab = session().of(PlacementState)
    if not tab.comparing:
        st.caption("Every placer that serves the objective, on the same graph, devices and costs.")
        if st.button("Ask all placers", icon=":material/compare_arrows:"):
            tab.comparing = True
            st.rerun()
        return
    questions = {name: workspace().placing.question_to(name) for name in workspace().placing.placers}
    search_in_turn(questions.values(), lambda question: question.title)
    rows = [_row(name, question) for name, question in questions.items()]
    assert workspace().placing.graph is not None
    unit = questions[next(iter(questions))].problem.graph.time_unit
    table = placer_rows(rows, unit)
    event = st.dataframe(
        {column: [row[column] for row in table] for column in PLACER_COLUMNS},
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        key=f"placers-{sum(report is not None for _, report, _ in rows)}",
        placeholder="–",
    )
    chosen = event["selection"]["rows"]
    report = rows[chosen[0]][1] if chosen else None
    if st.button("Use this placement", disabled=report is None or report.solution is None, help="Select a row first."):
        assert report is not None
        session().change(replace(workspace(), placing=workspace().placing.answered(report)))
        session().begin_again()
        st.rerun()


def _row(name: str, question: PlacementQuestion) -> tuple[str, PlacementReport | None, str]:
    run = answer(question)
    if run is None or run.running:
        return name, None, "" if run is None else "is at work"
    return name, run.result, run.complaint
