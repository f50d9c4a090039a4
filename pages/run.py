"""Run page: run the schedule on processes of this machine, and compare measured with predicted times."""

import streamlit as st

from pages.parts.run.asked import RunState, run_form, running, shown, take_answer
from pages.parts.run.result import run_progress, show_run
from pages.shared.contents import go_to
from pages.shared.keeping import keeping
from pages.shared.run_panel import latest_report
from pages.shared.session import session, workspace
from pages.shared.widgets import button, heading_row, literal, title_of
from tessel_core.scheduling.comparison import Made
from tessel_core.units import counted


def page() -> None:
    """Show the form, and the run in progress or the latest run."""
    take_answer()
    report = latest_report(workspace())
    schedule = None if report is None else report.solution
    with heading_row("run"):
        facts = "no schedule yet" if schedule is None else counted(schedule.micro_batches, "micro-batch")
        title_of(workspace().name, facts)
        keeping()
    if report is None or schedule is None:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.info("No schedule yet. Search or open one on Schedule to run it here.", icon=":material/view_timeline:")
            if button("Open Schedule"):
                go_to("schedule")
    else:
        run_form(report, schedule)
    if complaint := session().of(RunState).complaint:
        st.error(literal(complaint), icon=":material/error:")
    if (run := running()) is not None:
        run_progress(run)
        return
    found = shown()
    if found is None:
        return
    if schedule is not None and Made.of(found.run.schedule) != Made.of(schedule):
        st.info("This run used another schedule than the current one.", icon=":material/history:")
    show_run(found)


page()
