"""The plan as tables to edit, and as a picture of one micro-batch."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import pandas as pd
import streamlit as st

from pages.shared.markdown import literal
from pages.shared.session import session, workspace
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
    tables, picture = st.columns([11, 10], gap="medium")
    with tables:
        session().change(workspace().edited(_tables()))
    with picture:
        work = workspace()
        title = "The last valid plan, not what the tables say now" if work.complaint else "One micro-batch alone"
        st.markdown(f"**{title}**")
        st.plotly_chart(
            placement_picture(one_micro_batch(work.plan)), key="placement", config={"displayModeBar": False}
        )
        if work.complaint:
            st.error(literal(work.complaint), icon=":material/edit_off:")
        else:
            st.caption("Click a cell to change it; the empty row adds one.")


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
    return tuple(_row(record) for record in edited.to_dict("records"))


def _row(record: dict[Any, Any]) -> Row:
    """Plain Python values, gaps as None."""
    return {column: _cell(value) for column, value in record.items()}


def _cell(value: object) -> object:
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
        "duration": st.column_config.NumberColumn(f"duration ({base.time_unit})", step=1, format="localized"),
        "memory": st.column_config.NumberColumn(
            f"memory ({base.memory_unit})",
            step=1,
            format="localized",
            help="> 0 is held from the block's start, < 0 released at its end.",
        ),
    }


def _dependency_columns(base: PlanTables) -> dict[str, Any]:
    lag = f"lag ({base.time_unit})"
    return {
        "from": st.column_config.TextColumn("from", required=True),
        "to": st.column_config.TextColumn("to", required=True),
        "lag": st.column_config.NumberColumn(lag, step=1, format="localized", help="Least time between end and start."),
    }


def _device_columns(base: PlanTables) -> dict[str, Any]:
    unit = base.memory_unit
    return {
        "device": st.column_config.TextColumn("device", required=True),
        "capacity": st.column_config.NumberColumn(
            f"capacity ({unit})", step=1, format="localized", help="Empty: unlimited."
        ),
        "static": st.column_config.NumberColumn(
            f"static ({unit})",
            step=1,
            format="localized",
            help="Held all the time, inside the capacity: weights and such.",
        ),
    }
