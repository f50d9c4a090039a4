"""Show a device mesh as numbers and tables.

An edit that makes the mesh invalid changes nothing, and the reason is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from pages.shared.session import session, workspace
from pages.shared.tables import edit_table, number_column, take_over
from pages.shared.widgets import labelled, switch, switch_room
from tessel_core.costs.devices import DEVICE_KINDS
from tessel_core.formats.mesh_tables import (
    LINK_COLUMNS,
    SharedLinks,
    device_rows,
    kind_columns,
    kind_rows,
    link_rows,
    shared_links,
    with_devices,
    with_kinds,
    with_links,
    with_shared_links,
)
from tessel_core.model import DeviceMesh

DEVICES, KINDS, LINKS = "Devices", "Kinds", "Individual links"
_HEIGHT = 360
_DEFAULT = "For every pair without an individual link. Empty: every such pair needs an individual link."


def link_defaults() -> None:
    """Show the default links inside and between nodes, and the uplink of a node: five numbers in one row."""
    mesh = workspace().placing.mesh.mesh
    now = shared_links(mesh)
    numbers = (
        ("In a node, GB/s", now.inside_bandwidth, _DEFAULT),
        ("µs", now.inside_latency, "Latency inside a node: time until the first byte arrives."),
        ("Between, GB/s", now.between_bandwidth, _DEFAULT),
        ("µs ", now.between_latency, "Latency between nodes: time until the first byte arrives."),
        ("Uplink, GB/s", now.uplink, "Bandwidth shared by the devices of a node. Empty: not shared."),
    )
    places = st.columns([3, 2, 3, 2, 3], vertical_alignment="bottom")
    values = []
    for i, (place, (label, value, about)) in enumerate(zip(places, numbers, strict=True)):
        key = session().key(f"link-{i}")
        values.append(labelled(place).number_input(label, 0.0, value=value, key=key, help=about, format="%.6g"))
    _take(SharedLinks(*values) != now, lambda: with_shared_links(mesh, SharedLinks(*values)))


def mesh_tables() -> None:
    """Show one of the three tables: devices, kinds, or individual links."""
    with switch_room(left=True):
        which = switch("Table", (DEVICES, KINDS, LINKS), "mesh-table")
    mesh = workspace().placing.mesh.mesh
    if which == DEVICES:
        base, edits = edit_table("mesh-devices", mesh, device_rows, _device_columns(mesh), height=_HEIGHT)
        sheets = {kind: each.device(kind) for kind, each in DEVICE_KINDS.items()}
        _take(edits, lambda: with_devices(base, edits, sheets))
    elif which == KINDS:
        columns = {each: number_column(each) for each in kind_columns(mesh)}
        columns["kind"] = st.column_config.TextColumn("kind", disabled=True)
        base, edits = edit_table("mesh-kinds", mesh, kind_rows, columns, fixed=True, height=_HEIGHT)
        _take(edits, lambda: with_kinds(base, edits))
    else:
        base, edits = edit_table("mesh-links", mesh, link_rows, _link_columns(mesh), height=_HEIGHT)
        _take(edits, lambda: with_links(base, edits))


def _take(edits: object, edited: Callable[[], DeviceMesh]) -> None:
    take_over(edits, lambda: workspace().placing.with_mesh(edited()), "mesh")


def _device_columns(mesh: DeviceMesh) -> dict[str, Any]:
    kinds = dict.fromkeys((*mesh.kinds, *DEVICE_KINDS))
    return {
        "device": st.column_config.TextColumn("device"),
        "kind": st.column_config.SelectboxColumn(
            "kind", options=list(kinds), help="Choosing a kind fills in the memory and rates of its data sheet."
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
        bandwidth: number_column(bandwidth, "In each direction."),
        latency: number_column(latency, "Time until the first byte arrives."),
    }
