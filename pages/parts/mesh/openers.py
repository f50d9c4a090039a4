"""Ways to a device mesh, and the file to take away."""

from __future__ import annotations

import streamlit as st

from pages.shared.markdown import file_name, literal
from pages.shared.session import session, workspace
from pages.shared.uploads import take_file
from tessel_core.costs.meshes import MESHES, find_mesh
from tessel_core.formats import MeshFile, mesh_text


def open_mesh_menu() -> None:
    """Presets, and files."""
    with st.popover("Open", icon=":material/folder_open:"):
        name = st.selectbox("Preset", list(MESHES), format_func=lambda each: MESHES[each].title, key="mesh-preset")
        st.caption(literal(MESHES[name].source))
        if st.button("Open preset", width="stretch"):
            session().change_placing(workspace().placing.on(MeshFile.of(find_mesh(name)), f"preset {name}"))
            st.rerun()
        take_file("upload-mesh")


def export_mesh(file: MeshFile) -> None:
    """The mesh as a tessel-mesh file."""
    st.download_button(
        "Export",
        lambda: mesh_text(file.mesh),
        f"{file_name(file.mesh.name)}.mesh.json",
        "application/json",
        icon=":material/download:",
        on_click="ignore",
        help="The mesh as a file: to edit, to share, and for `tessel place`.",
    )
