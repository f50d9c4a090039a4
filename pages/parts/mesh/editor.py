"""A device mesh as tables; an edit that makes no mesh changes nothing and says why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import streamlit as st

from pages.shared.markdown import literal
from pages.shared.session import session, workspace
from pages.shared.table_edits import edit_table, number_column
from tessel_core.costs.devices import DEVICE_KINDS
from tessel_core.errors import InputError
from tessel_core.formats.mesh_tables import (
    LINK_COLUMNS,
    device_rows,
    kind_columns,
    kind_rows,
    link_rows,
    with_devices,
    with_kinds,
    with_links,
)
from tessel_core.formats.tables import TableEdits
from tessel_core.model import Device, DeviceMesh

DEVICES, KINDS, LINKS = "Devices", "Kinds", "Links of their own"
_HEIGHT = 360


def mesh_tables() -> None:
    """One of the three tables."""
    which = st.segmented_control(
        "Table", (DEVICES, KINDS, LINKS), default=DEVICES, key="mesh-table", required=True, label_visibility="collapsed"
    )
    mesh = workspace().placing.mesh.mesh
    if which == DEVICES:
        base, edits = edit_table("mesh-devices", mesh, device_rows, _device_columns(mesh), height=_HEIGHT)
        _take(lambda: with_devices(base, edits, _sheets()), edits)
    elif which == KINDS:
        columns = {each: number_column(each) for each in kind_columns(mesh)}
        columns["kind"] = st.column_config.TextColumn("kind", disabled=True)
        base, edits = edit_table("mesh-kinds", mesh, kind_rows, columns, fixed=True, height=_HEIGHT)
        _take(lambda: with_kinds(base, edits), edits)
    else:
        base, edits = edit_table("mesh-links", mesh, link_rows, _link_columns(mesh), height=_HEIGHT)
        _take(lambda: with_links(base, edits), edits)


def _take(edited: Callable[[], DeviceMesh], edits: TableEdits) -> None:
    if not edits:
        return
    try:
        tab, work = session(), workspace()
        tab.change(replace(work, placing=work.placing.with_mesh(edited())))
    except InputError as error:
        st.error(literal(f"{error}. The mesh is still as it was before this edit."), icon=":material/edit_off:")


def _sheets() -> dict[str, Device]:
    """What the data sheets say of kinds that the mesh does not have yet."""
    return {kind: each.device(kind) for kind, each in DEVICE_KINDS.items()}


def _device_columns(mesh: DeviceMesh) -> dict[str, Any]:
    kinds = dict.fromkeys((*mesh.kinds, *DEVICE_KINDS))
    return {
        "device": st.column_config.TextColumn("device"),
        "kind": st.column_config.SelectboxColumn(
            "kind", options=list(kinds), help="Times, rates and links go by it; a kind brings its data sheet along."
        ),
        "node": number_column("node", "Devices of one node share its faster links.", step=1),
        "memory (GB)": number_column("memory (GB)", "Empty: unlimited."),
    }


def _link_columns(mesh: DeviceMesh) -> dict[str, Any]:
    names = [device.name for device in mesh.devices]
    one, other, bandwidth, latency = LINK_COLUMNS
    return {
        one: st.column_config.SelectboxColumn(one, options=names, required=True),
        other: st.column_config.SelectboxColumn(other, options=names, required=True),
        bandwidth: number_column(bandwidth, "Each way."),
        latency: number_column(latency, "Until the first byte arrives."),
    }
