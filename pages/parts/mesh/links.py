"""The links of a mesh that are not listed one by one: inside a node, between nodes, and what nodes share."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from pages.shared.markdown import literal
from pages.shared.session import session, workspace
from tessel_core.errors import InputError
from tessel_core.formats.mesh_tables import SharedLinks, shared_links, with_shared_links

_HELP = "Of every pair without a link of its own. Empty: there is none, so every such pair needs one."


def link_defaults() -> None:
    """Five numbers in one row."""
    mesh = workspace().placing.mesh.mesh
    now = shared_links(mesh)
    labels = (
        ("In a node, GB/s", now.inside_bandwidth, _HELP),
        ("µs", now.inside_latency, "Inside a node, until the first byte arrives."),
        ("Between, GB/s", now.between_bandwidth, _HELP),
        ("µs ", now.between_latency, "Between nodes, until the first byte arrives."),
        ("Uplink, GB/s", now.uplink, "Shared by the devices of a node. Empty: each has its own."),
    )
    values = [
        place.number_input(label, 0.0, value=value, key=session().key(f"link-{i}"), help=help, format="%.6g")
        for i, (place, (label, value, help)) in enumerate(
            zip(st.columns([3, 2, 3, 2, 3], vertical_alignment="bottom"), labels, strict=True)
        )
    ]
    wanted = SharedLinks(*values)
    if wanted == now:
        return
    try:
        placing = workspace().placing.with_mesh(with_shared_links(mesh, wanted))
        session().change(replace(workspace(), placing=placing))
    except InputError as error:
        st.error(literal(f"{error}. The mesh is still as it was before this edit."), icon=":material/edit_off:")
