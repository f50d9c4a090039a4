"""The plan as a picture of one micro-batch and as tables, both to edit, with the schedule of the plan beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.parts.schedule.question_form import begins, why_not
from pages.shared.run_panel import answer, report_of, search
from pages.shared.session import session, workspace
from pages.shared.timeline.component import plan_timeline, small_timeline
from pages.shared.widgets import literal
from tessel_core.editing.plan import PlanChange
from tessel_core.errors import InputError
from tessel_core.formats.tables import (
    BLOCK_COLUMNS,
    DEPENDENCY_COLUMNS,
    DEVICE_COLUMNS,
    NUMBER_COLUMNS,
    PlanTables,
    Row,
    tables_of,
)
from tessel_core.model import BlockKind, ScheduleReport
from tessel_core.scheduling import one_micro_batch
from tessel_core.workbench.jobs import Run
from tessel_core.workbench.messages.schedule import in_brief
from tessel_core.workbench.workspace import Workspace

_HEIGHT = 400
_QUICK_S, _POLL_S = 1.0, 0.3
"""A search that took less than `_QUICK_S` is repeated after each change of the plan, and polled every `_POLL_S`."""


@dataclass
class PlanState:
    """State of the plan's picture."""

    refused: str = ""
    """Reason why the latest change in the picture was refused. Empty if it was accepted."""
    of_workspace: ClassVar[bool] = True


@dataclass
class Beside:
    """Latest answer for the plan. It stays on the screen until the next answer."""

    report: ScheduleReport | None = None
    of_workspace: ClassVar[bool] = True
    through_undo: ClassVar[bool] = True


def plan_editor() -> tuple[bool, DeltaGenerator]:
    """Show the picture above the tables. Return whether they changed the plan, and the container beside them.

    If they changed the plan, the page must run again at its end.
    """
    left, right = st.columns(2, gap="medium")
    with left:
        drawn = workspace()
        _picture(drawn)
        session().change(workspace().edited(_tables()))
        st.caption("Click a cell to change it. Fill in the empty row to add one.")
    return (workspace().plan, workspace().complaint) != (drawn.plan, drawn.complaint), right


def _picture(work: Workspace) -> None:
    """Show the plan as a timeline of one micro-batch, and the error in the tables, if any."""
    state = session().of(PlanState)
    title = "Last valid plan (the tables have an error)" if work.complaint else "One micro-batch alone"
    st.markdown(f"**{title}**")
    alone = one_micro_batch(work.plan)
    plan_timeline(work.plan, alone, "plan-timeline", None if work.complaint else _change)
    if work.complaint or state.refused:
        st.error(literal(work.complaint or state.refused), icon=":material/edit_off:")


def _change(asked: Mapping[str, object]) -> None:
    """Make a change from the picture, and show its result in the tables."""
    state, work = session().of(PlanState), workspace()
    try:
        plan = PlanChange.of(asked).made_to(work.plan)
    except InputError as error:
        state.refused = str(error)
        return
    state.refused = ""
    session().change(work.edited(tables_of(plan)))
    session().begin_again()


def schedule_beside() -> None:
    """Show the schedule of the current plan if it is known or quickly found, or else the previous one, pale.

    Call this after all edits of the run are saved, because it may start a search, and then another tab's changes to
    the workspace are loaded.
    """
    state, run = session().of(Beside), _answer_to(workspace())
    report = None if run is None else report_of(workspace().question, run)
    if report is not None:
        state.report = report
    shown = state.report
    if shown is None:
        st.markdown("**Its schedule**")
        begin = begins(workspace().scheduler)
        st.caption(f"Press {begin} to see the schedule here. A quick search is repeated after each change of the plan.")
        return
    if run is not None and run.running:
        st.fragment(_awaited, run_every=_POLL_S)(run)
    else:
        then = (
            "correct the tables first" if workspace().complaint else f"press {begins(workspace().scheduler)} to update"
        )
        _beside(in_brief(shown) if report else f"of the previous plan; {then}")
    if shown.drawable is not None:
        small_timeline((("", shown.drawable),), "beside-timeline", memory=True, past=() if report else (0,))


def _awaited(run: Run[ScheduleReport]) -> None:
    if not run.running:
        st.rerun()
    _beside("of the previous plan; searching …")


def _beside(what: str) -> None:
    st.markdown(f"**Its schedule** &ensp; :gray[{literal(what)}]")


def _answer_to(work: Workspace) -> Run[ScheduleReport] | None:
    """Return the run for the current question. Start it if the last search was quick.

    A schedule that was opened or changed by hand is never replaced by an automatic search.
    """
    state = session().of(Beside)
    if state.report is None and work.asked is not None:
        before = answer(work.asked)
        state.report = None if before is None else report_of(work.asked, before)
    if why_not(work):
        return None
    quick = state.report is not None and state.report.wall_s < _QUICK_S and work.shown is None
    return answer(work.question) or (search(work.question) if quick else None)


def _tables() -> PlanTables:
    """Show the three tables. Return their current content."""
    work = workspace()
    # Streamlit forgets a widget, and its edits, while it is not shown. Start again from the draft.
    if session().key("blocks") not in st.session_state or session().editor_base is None:
        session().editor_base = work.draft
    base = session().editor_base
    assert base is not None
    blocks, dependencies, devices = st.tabs(["Blocks", "Dependencies and lags", "Devices"])
    with blocks:
        block_rows = _table("blocks", base.blocks, BLOCK_COLUMNS, _block_columns(base))
    with dependencies:
        dependency_rows = _table("dependencies", base.dependencies, DEPENDENCY_COLUMNS, _dependency_columns(base))
    with devices:
        device_rows = _table("devices", base.devices, DEVICE_COLUMNS, _device_columns(base))
    return replace(work.draft, blocks=block_rows, dependencies=dependency_rows, devices=device_rows)


def _table(name: str, rows: tuple[Row, ...], columns: tuple[str, ...], config: dict[str, Any]) -> tuple[Row, ...]:
    frame = pd.DataFrame([dict(row) for row in rows], columns=list(columns))
    for column in columns:
        frame[column] = frame[column].astype("Int64" if column in NUMBER_COLUMNS else "object")
    edited = st.data_editor(frame, key=session().key(name), num_rows="dynamic", column_config=config, height=_HEIGHT)
    records = edited.to_dict("records")
    return tuple({str(column): _cell(value) for column, value in row.items()} for row in records)


def _cell(value: object) -> object:
    """Return a plain Python value, or None for an empty cell."""
    if isinstance(value, list):
        return [str(each) for each in value]
    if isinstance(value, str):
        return value
    return None if value is None or pd.isna(value) else int(value)  # type: ignore[call-overload]


def _block_columns(base: PlanTables) -> dict[str, Any]:
    names = [str(row["device"]) for row in base.devices]
    return {
        "block": st.column_config.TextColumn("block", required=True, width=70),
        "kind": st.column_config.SelectboxColumn("kind", options=list(BlockKind), required=True, width=75),
        "devices": st.column_config.MultiselectColumn("devices", options=names, accept_new_options=True, width=115),
        "duration": _whole(f"duration ({base.time_unit})"),
        "memory": _whole(
            f"memory ({base.memory_unit})", "> 0: acquired at the block's start. < 0: released at its end."
        ),
    }


def _dependency_columns(base: PlanTables) -> dict[str, Any]:
    return {
        "from": st.column_config.TextColumn("from", required=True),
        "to": st.column_config.TextColumn("to", required=True),
        "lag": _whole(f"lag ({base.time_unit})", "Least time from the end of one block to the start of the other."),
    }


def _device_columns(base: PlanTables) -> dict[str, Any]:
    unit = base.memory_unit
    return {
        "device": st.column_config.TextColumn("device", required=True),
        "capacity": _whole(f"capacity ({unit})", "Empty: unlimited."),
        "static": _whole(f"static ({unit})", "Always held and counted in the capacity, such as weights."),
    }


def _whole(title: str, about: str | None = None) -> Any:
    return st.column_config.NumberColumn(title, step=1, format="localized", help=about)
