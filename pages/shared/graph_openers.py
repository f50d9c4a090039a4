"""Ways to an operator graph, and what is made of the one that is open."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from pages.shared.export_menu import file_name
from pages.shared.openers import take_file
from pages.shared.session import session, workspace
from pages.shared.words import literal
from tessel_core.errors import InputError
from tessel_core.formats import GraphFile, kept_graph_text
from tessel_core.model import OperatorGraph
from tessel_core.networks.graphs.backward import with_backward
from tessel_core.networks.graphs.coarsen import by_layer


def open_graph_menu() -> None:
    """Everything that opens another graph, behind one button."""
    with st.popover("Open", icon=":material/folder_open:"):
        take_file("upload-graph")


def no_graph_yet() -> None:
    """The ways to a first graph, side by side."""
    st.markdown("#### Which network is to be placed?")
    with st.container(border=True):
        st.markdown("**Upload a graph**")
        st.caption("tessel-graph, or the published device-placement JSON.")
        take_file("upload-graph")


def graph_actions(file: GraphFile) -> None:
    """Buttons that make another graph of this one, and the file to take away."""
    graph = file.graph
    with st.popover("Change", icon=":material/build:", disabled=file.pool is not None):
        if graph.is_training:
            st.caption("It has backward operators.")
        else:
            recompute = st.checkbox("Recompute activations", key="backward-recompute", help=_RECOMPUTE)
            split = st.checkbox("Weight gradients apart", key="backward-split", help=_SPLIT)
            if st.button("Add backward", icon=":material/keyboard_return:"):
                _change(lambda: with_backward(graph, recompute=recompute, split_weights=split))
        depth = st.number_input(
            "Depth of a layer", 1, 6, key="layer-depth", help="Folders deep, where names are paths."
        )
        if st.button("Merge layers", icon=":material/layers:", help=_MERGE):
            _change(lambda: by_layer(graph, depth))
    st.download_button(
        "Export",
        lambda: kept_graph_text(file),
        f"{file_name(graph.name)}.graph.json",
        "application/json",
        icon=":material/download:",
        on_click="ignore",
        help="The graph as a file: to edit, to share, and for `tessel place`.",
    )


_RECOMPUTE = "Keep only what enters a layer, and compute the rest again on the way back."
_SPLIT = "Operators for weight gradients of their own, which nothing waits for."
_MERGE = "One operator a layer, with what its operators cost together."


def _change(make: Callable[[], OperatorGraph]) -> None:
    """A step that undo takes back; what cannot be is said in one sentence."""
    try:
        session().change_placing(workspace().placing.edited(make()))
    except InputError as error:
        st.error(literal(str(error)))
        return
    st.rerun()
