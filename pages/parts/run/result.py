"""Show a run: verdict, measured and predicted times, and the largest differences."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import streamlit as st

from pages.parts.run.asked import RunState
from pages.shared.address import SCHEDULE
from pages.shared.contents import go_to
from pages.shared.run_panel import search, watch
from pages.shared.session import session, workspace
from pages.shared.timeline.component import run_timeline
from pages.shared.widgets import button, download, file_name, literal, metrics, verdict
from tessel_core.charts.run_timeline import Laid
from tessel_core.formats.run_file import run_file, run_text
from tessel_core.units import show_time
from tessel_core.workbench.jobs import Run
from tessel_core.workbench.messages.running import (
    BLOCK_COLUMNS,
    DEVICE_COLUMNS,
    about_run,
    block_rows,
    device_rows,
    equality_sentence,
    makespan_sentence,
    progress_sentence,
    run_numbers,
    run_title,
)
from tessel_core.workbench.running import RunReport, measured_plan

_MEASURED, _PREDICTED, _PLANNED = "Measured", "Predicted", "Planned"


def show_run(report: RunReport) -> None:
    """Show everything about one run, most important first."""
    st.markdown(f"**{literal(run_title(report))}**")
    if said := equality_sentence(report):
        verdict(said, proved=report.run.equal is True, found=False)
    metrics(run_numbers(report))
    run_timeline(_laid(report), f"run-{session().key('timeline')}", lambda on, place: about_run(report, on == 0, place))
    st.caption(literal(makespan_sentence(report)))
    _leads_on(report)
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**Devices**")
        st.dataframe(_table(DEVICE_COLUMNS, device_rows(report)), hide_index=True)
    with right:
        st.markdown("**Blocks, largest difference first**")
        st.dataframe(_table(BLOCK_COLUMNS, block_rows(report)), hide_index=True)


@lru_cache(maxsize=4)
def _laid(report: RunReport) -> tuple[Laid, ...]:
    """Return the timelines to draw: measured, predicted, and planned if it differs from the prediction."""
    found = [Laid.measured(_MEASURED, report.run)]
    if (prediction := report.prediction) is not None:
        title = f"{_PREDICTED} from {prediction.source}"
        found.append(Laid.planned(title, prediction.schedule, prediction.tick_ns, prediction.block_ns))
    if prediction is None or prediction.schedule is not report.run.schedule:
        schedule, tick = report.run.schedule, report.plan_tick_ns
        title = f"{_PLANNED}, one {schedule.plan.time_unit} drawn as {show_time(tick, 'ns')}"
        found.append(Laid.planned(title, schedule, tick))
    return tuple(found)


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> dict[str, list[str]]:
    return {name: [row[i] for row in rows] for i, name in enumerate(columns) if any(row[i] for row in rows)}


def _leads_on(report: RunReport) -> None:
    """Show the buttons that download the run, and that search again with its measured durations."""
    run = report.run
    with st.container(horizontal=True, vertical_alignment="center"):
        name = f"{file_name(run.schedule.plan.name)}.run.json"
        download("Export", lambda: run_text(run_file(run)), name, help=_FILE)
        if button("Search again with measured durations", icon=":material/search:", help=_AGAIN):
            session().open_plan(measured_plan(run), f"measured run of {run.schedule.plan.name}")
            session().change(replace(workspace(), micro_batches=run.schedule.micro_batches))
            search(workspace().question)
            session().next_view = SCHEDULE
            go_to("schedule")


_FILE = "Download the run as a file, to open here again or to pass to `tessel check`."
_AGAIN = "Open a new workspace whose plan has the measured durations and lags in nanoseconds, and search it."


def run_progress(run: Run[RunReport]) -> None:
    """Show the progress of a run, with a button to stop it."""
    question = session().of(RunState).question
    assert question is not None
    schedule = question.schedule

    def line() -> None:
        st.markdown(
            f":material/hourglass_top: {literal(progress_sentence(question, run.parts))}: {run.elapsed_s:.1f} s"
        )

    def below() -> None:
        rows = question.latest(run.parts)
        run_timeline((Laid.of("Measured so far", schedule, rows),), f"run-live-{id(run)}", None)

    watch(run, line, below)
