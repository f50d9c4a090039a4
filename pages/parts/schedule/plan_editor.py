"""The plan as a picture of one micro-batch to change by hand and as tables; the schedule of it, to stand beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.parts.schedule.question_form import begins, why_not
from pages.shared.address import PLAN
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
_FOLLOWED_S, _LOOK_S = 1.0, 0.3
"""A search that took no longer is made again after each change, and looked for so often."""


@dataclass
class PlanState:
    """What the page with the plan remembers."""

    refused: str = ""
    """Why the last change by hand was not made; empty where it was."""
    of_workspace: ClassVar[bool] = True


@dataclass
class Beside:
    """The answer that is drawn beside the plan, which stays until there is another."""

    report: ScheduleReport | None = None
    of_workspace: ClassVar[bool] = True
    through_undo: ClassVar[bool] = True


def plan_editor() -> tuple[bool, DeltaGenerator]:
    """The picture over the tables, and what is wrong with them; the room at their side.

    True where the tables changed the plan, so that the page must be drawn again at its end.
    """
    left, right = st.columns(2, gap="medium")
    with left:
        drawn = workspace()
        _picture(drawn)
        session().change(workspace().edited(_tables()))
        st.caption("Click a cell to change it; the empty row adds one.")
    return (workspace().plan, workspace().complaint) != (drawn.plan, drawn.complaint), right


def _picture(work: Workspace) -> None:
    """The plan as one micro-batch, and what is wrong with the tables."""
    state = session().of(PlanState)
    title = "The last valid plan, not what the tables say now" if work.complaint else "One micro-batch alone"
    st.markdown(f"**{title}**")
    alone = one_micro_batch(work.plan)
    plan_timeline(work.plan, alone, "plan-timeline", None if work.complaint else _change)
    if work.complaint or state.refused:
        st.error(literal(work.complaint or state.refused), icon=":material/edit_off:")


def _change(asked: Mapping[str, object]) -> None:
    """Make a change that was asked for in the picture; the tables begin anew from it."""
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
    """The schedule of the plan as it is now, where it is known or quickly found; else the one before, pale.

    Drawn when every edit of this run has been taken: it may search, and so find that another tab has changed the plan.
    """
    state, run = session().of(Beside), _answer_to(workspace())
    report = None if run is None else report_of(workspace().question, run)
    if report is not None:
        state.report = report
    shown = state.report
    if shown is None:
        st.markdown("**Its schedule**")
        begin = begins(workspace().scheduler)
        st.caption(
            f"Press {begin}: on {PLAN} the schedule then stands here, and follows each change where that is quick."
        )
        return
    if run is not None and run.running:
        st.fragment(_awaited, run_every=_LOOK_S)(run)
    else:
        then = (
            "correct this one first" if workspace().complaint else f"{begins(workspace().scheduler)} answers this one"
        )
        _beside(in_brief(shown) if report else f"of the plan before; {then}")
    if shown.drawable is not None:
        small_timeline((("", shown.drawable),), "beside-timeline", memory=True, past=() if report else (0,))


def _awaited(run: Run[ScheduleReport]) -> None:
    if not run.running:
        st.rerun()
    _beside("of the plan before; this one is being searched")


def _beside(what: str) -> None:
    st.markdown(f"**Its schedule** &ensp; :gray[{literal(what)}]")


def _answer_to(work: Workspace) -> Run[ScheduleReport] | None:
    """The run that answers the present question; begun where the last search was quick.

    What was opened or changed by hand gives way to no search that nobody asked for.
    """
    state = session().of(Beside)
    if state.report is None and work.asked is not None:
        before = answer(work.asked)
        state.report = None if before is None else report_of(work.asked, before)
    if why_not(work):
        return None
    quick = state.report is not None and state.report.wall_s < _FOLLOWED_S and work.shown is None
    return answer(work.question) or (search(work.question) if quick else None)


def _tables() -> PlanTables:
    """The three table widgets; what they say now."""
    work = workspace()
    # Streamlit forgets widgets that were off the screen, and with them the edits: begin again from the draft.
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
    """A plain Python value, None for a gap."""
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
            f"memory ({base.memory_unit})", "> 0 is held from the block's start, < 0 released at its end."
        ),
    }


_MEMORY = "> 0 is held from the block's start, < 0 released at its end."


def _dependency_columns(base: PlanTables) -> dict[str, Any]:
    return {
        "from": st.column_config.TextColumn("from", required=True),
        "to": st.column_config.TextColumn("to", required=True),
        "lag": _whole(f"lag ({base.time_unit})", "Least time between end and start."),
    }


def _device_columns(base: PlanTables) -> dict[str, Any]:
    unit = base.memory_unit
    return {
        "device": st.column_config.TextColumn("device", required=True),
        "capacity": _whole(f"capacity ({unit})", "Empty: unlimited."),
        "static": _whole(f"static ({unit})", "Held all the time, inside the capacity: weights and such."),
    }


def _whole(title: str, about: str | None = None) -> Any:
    return st.column_config.NumberColumn(title, step=1, format="localized", help=about)
