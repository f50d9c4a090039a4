"""Ways to an operator graph: a file, and later whatever else brings one."""

from __future__ import annotations

import streamlit as st

from pages.shared.openers import take_file


def open_graph_menu() -> None:
    """Everything that opens a graph, behind one button."""
    with st.popover("Open a graph", icon=":material/folder_open:"):
        take_file("upload-graph")
