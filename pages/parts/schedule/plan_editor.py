"""The plan as tables to edit, and as a picture of one micro-batch."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import pandas as pd
import streamlit as st

from pages.shared.session import session, workspace
from pages.shared.timeline.component import timeline
from pages.shared.widgets import literal, picture
from tessel_core.charts.gantt import placement_picture
from tessel_core.formats.tables import (
    BLOCK_COLUMNS,
    DEPENDENCY_COLUMNS,
    DEVICE_COLUMNS,
    NUMBER_COLUMNS,
    PlanTables,
    Row,
)
from tessel_core.model import BlockKind, MicroBatchPlan, Schedule
from tessel_core.scheduling import solve_schedule

_HEIGHT = 400


def plan_editor() -> None:
    """Tables on the left; the picture on the right, and under it what is wrong with the tables."""
    tables, beside = st.columns([11, 10], gap="medium")
    with tables:
        session().change(workspace().edited(_tables()))
        st.caption("Click a cell to change it; the empty row adds one.")
    with beside:
        work = workspace()
        title = "The last valid plan, not what the tables say now" if work.complaint else "One micro-batch alone"
        st.markdown(f"**{title}**")
        alone = one_micro_batch(work.plan)
        if not timeline((("", alone),), "plan-timeline", memory=False):
            picture(placement_picture(alone), "placement")
        if work.complaint:
            st.error(literal(work.complaint), icon=":material/edit_off:")


@lru_cache(maxsize=32)
def one_micro_batch(plan: MicroBatchPlan) -> Schedule:
    """The plan run once, as early as its dependencies allow."""
    schedule = solve_schedule("sequential", plan, 1).drawable
    assert schedule is not None
    return schedule


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
    return tuple({column: _cell(value) for column, value in row.items()} for row in edited.to_dict("records"))


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
