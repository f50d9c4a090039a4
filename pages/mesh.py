"""Device mesh page: devices and links as tables to edit and as pictures."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.parts.mesh.editor import link_defaults, mesh_tables
from pages.shared.keeping import keeping
from pages.shared.session import session, workspace
from pages.shared.uploads import take_file
from pages.shared.widgets import (
    button,
    choose,
    complaining,
    download,
    file_name,
    heading_row,
    literal,
    picture,
    switch,
    switch_room,
    title_of,
)
from tessel_core.charts.mesh import link_heat_map, mesh_picture
from tessel_core.costs.devices import find_device_kind, origin_of_times
from tessel_core.costs.meshes import DEVICES_PER_NODE, INTERCONNECTS, MESHES, find_mesh
from tessel_core.formats import MeshFile, mesh_text
from tessel_core.model.mesh import MAX_DEVICES

BANDWIDTH, LATENCY = "Bandwidth", "Latency"


def heading() -> DeltaGenerator:
    """Show the heading. Return the container for the workspace's buttons."""
    placing = workspace().placing
    mesh = placing.mesh.mesh
    with heading_row("mesh"):
        title_of(mesh.name, f"{len(mesh.devices)} devices · {placing.mesh_source} · {origin_of_times(mesh)}")
        room = st.container(horizontal=True, vertical_alignment="center", width="content")
        open_menu()
        about = "Download the mesh as a file to edit, share, or pass to `tessel place`."
        download("Export", lambda: mesh_text(mesh), f"{file_name(mesh.name)}.mesh.json", help=about)
    return room


def open_menu() -> None:
    """Show the menu that opens a preset, a mesh of any size, or a file."""
    with st.popover("Open", icon=":material/folder_open:"):
        name = choose("Preset", {each: preset.title for each, preset in MESHES.items()}, key="mesh-preset")
        st.caption(literal(MESHES[name].source))
        if button("Open preset", width="stretch"):
            session().change_placing(workspace().placing.on(MeshFile.of(find_mesh(name)), f"preset {name}"))
            st.rerun()
        any_size()
        take_file("upload-mesh")


def any_size() -> None:
    """Open a mesh of identical devices, in nodes of equal size."""
    kind = choose("Kind", {each: find_device_kind(each).title for each in INTERCONNECTS}, key="mesh-kind")
    left, right = st.columns(2)
    count = left.number_input("Devices", 1, MAX_DEVICES, 64, key="mesh-count")
    per_node = right.number_input("Per node", 1, DEVICES_PER_NODE, DEVICES_PER_NODE, key="mesh-per-node")
    if button("Open mesh", width="stretch"):
        with complaining():
            mesh = find_mesh(f"{kind}-{count}", per_node)
            session().change_placing(workspace().placing.on(MeshFile.of(mesh), f"{mesh.name}, {per_node} per node"))
            st.rerun()


def pictures() -> None:
    """Show the nodes, and the bandwidth or latency between every two devices."""
    mesh = workspace().placing.mesh.mesh
    picture(mesh_picture(mesh), "mesh-picture")
    with switch_room(left=True):
        which = switch("Links", (BANDWIDTH, LATENCY), "mesh-heat")
    picture(link_heat_map(mesh, latency=which == LATENCY), "mesh-links-map")


shown = workspace().placing
room = heading()
tables, drawn = st.columns([10, 9], gap="medium")
with tables:
    link_defaults()
    mesh_tables()
with drawn:
    pictures()
with room:
    keeping()
session().again |= workspace().placing != shown
