"""Device mesh: the devices there are and what links them, as tables to edit and as pictures."""

import streamlit as st

from pages.parts.mesh.editor import mesh_tables
from pages.parts.mesh.links import link_defaults
from pages.parts.mesh.openers import export_mesh, open_mesh_menu
from pages.shared.keeping import keeping
from pages.shared.markdown import literal
from pages.shared.session import workspace
from tessel_core.charts.mesh import link_heat_map, mesh_picture

BANDWIDTH, LATENCY = "Bandwidth", "Latency"


def heading() -> None:
    """What is open, and the ways to another one."""
    placing = workspace().placing
    mesh = placing.mesh.mesh
    facts = f"{len(mesh.devices)} devices · {placing.mesh_source}"
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(f"**{literal(mesh.name)}** &ensp; :gray[{literal(facts)}]", width="stretch")
        keeping()
        open_mesh_menu()
        export_mesh(placing.mesh)


def pictures() -> None:
    """The nodes, and how fast every two devices are linked."""
    mesh = workspace().placing.mesh.mesh
    st.plotly_chart(mesh_picture(mesh), key="mesh-picture", config={"displayModeBar": False})
    which = st.segmented_control(
        "Links", (BANDWIDTH, LATENCY), default=BANDWIDTH, key="mesh-heat", required=True, label_visibility="collapsed"
    )
    heat = link_heat_map(mesh, latency=which == LATENCY)
    st.plotly_chart(heat, key="mesh-links-map", config={"displayModeBar": False})


room = st.container()
tables, drawn = st.columns([10, 9], gap="medium")
with tables:
    link_defaults()
    mesh_tables()
with drawn:
    pictures()
with room:
    heading()
