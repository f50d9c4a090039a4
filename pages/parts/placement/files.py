"""The placement as a file to take away, and files that bring one."""

from __future__ import annotations

import streamlit as st

from pages.shared.markdown import file_name, literal
from pages.shared.session import workspace
from pages.shared.uploads import take_file
from tessel_core.errors import InputError
from tessel_core.workbench.placement_files import placement_file_text
from tessel_core.workbench.placing import Placing


def placement_files() -> None:
    """The menu of both."""
    with st.popover("File", icon=":material/draft:"):
        _export(workspace().placing)
        take_file("upload-placement")
        st.caption("A tessel-placement of the open graph (and mesh), or a published split of it, made by hand.")


def _export(placing: Placing) -> None:
    assert placing.graph is not None
    text, objection = "", "Nothing is placed yet."
    try:
        if placing.assignment is not None:
            text, objection = placement_file_text(placing), ""
    except InputError as error:
        objection = f"{error}."
    st.download_button(
        "Placement JSON",
        text,
        f"{file_name(placing.graph.graph.name)}.placement.json",
        "application/json",
        icon=":material/download:",
        on_click="ignore",
        disabled=bool(objection),
        help="Operators and their devices: for `tessel check` and `tessel plan`, and to open here again.",
    )
    if objection:
        st.caption(literal(objection))
