"""Open, build, change and export operator graphs."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from pages.shared.contents import go_to
from pages.shared.gallery import choose_graph
from pages.shared.keeping import keeping
from pages.shared.session import session, workspace
from pages.shared.uploads import OpenedModel, paste_config, take_file
from pages.shared.widgets import (
    button,
    choose,
    complaining,
    config_form,
    download,
    file_name,
    heading_row,
    literal,
)
from tessel_core.errors import InputError
from tessel_core.formats import GraphFile
from tessel_core.formats.graph_file import graph_file_text
from tessel_core.model import OperatorGraph
from tessel_core.networks.graphs.coarsen import by_layer

FIRST_GRAPH = "gpt2-xl-training"


def open_graph_menu() -> None:
    """Show the menu that opens another graph."""
    with st.popover("Open", icon=":material/input:", type="tertiary"):
        sample, build, upload = st.tabs(["Sample", "Build", "File"])
        with sample:
            open_graph_sample()
        with build:
            build_network("build")
        with upload:
            take_file("upload-graph")


def no_graph_yet(then: str = "graph") -> None:
    """Show the ways to open a first graph side by side. Opening one leads to the page named `then`."""
    with heading_row("first-graph"):
        st.markdown("#### Choose a network", width="stretch")
        keeping()
    sample, build, upload = st.columns(3)
    with sample.container(border=True, height="stretch"):
        st.markdown("**Open a sample network**")
        open_graph_sample(then)
    with build.container(border=True, height="stretch"):
        st.markdown("**Build a network**")
        build_network("first", then)
    with upload.container(border=True, height="stretch"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown("**Upload a graph**", width="stretch")
            paste_config("upload-graph")
        take_file("upload-graph")
        st.caption("tessel-graph, ONNX, a Hugging Face config, or the published device-placement JSON.")


def place_a_network() -> None:
    """Show the sample networks under a title, for the Start page."""
    st.markdown("**Place a network**")
    open_graph_sample()


def open_graph_sample(then: str = "graph") -> None:
    """Show the sample networks and the button that opens the chosen one."""
    name = choose_graph(FIRST_GRAPH)
    if button("Open network", width="stretch"):
        session().open_graph_sample(name)
        go_to(then)


def build_network(key: str, then: str = "graph") -> None:
    """Show the form that builds a network of a known family and any size."""
    from tessel_core.networks.graphs.table import GRAPHS, build_graph  # imported here, because Start does not need it

    families = {name: family.title for name, family in GRAPHS.items()}
    family = GRAPHS[choose("Family", families, key=f"{key}-family")]
    preset = st.selectbox("Size", list(family.presets), key=f"{key}-preset-{family.name}")
    with st.expander("Micro-batch, precision, training …"):
        spec = config_form(family.presets[preset], f"{key}-{family.name}-{preset}", columns=2)
    st.caption(literal(family.source))
    if button("Build network", key=f"{key}-button", width="stretch"):
        with complaining():
            graph = build_graph(family.name, spec, preset)
            session().open_graph(GraphFile.of(graph), f"built: {family.title}", preset)
            go_to(then)


def graph_actions(file: GraphFile) -> None:
    """Show the menu that changes this graph, and the button that exports it."""
    graph = file.graph
    with st.popover("Change", icon=":material/build:", type="tertiary", disabled=file.pool is not None):
        if graph.is_training:
            st.caption("This graph already has backward operators.")
        else:
            recompute = st.checkbox("Recompute activations", key="backward-recompute", help=_RECOMPUTE)
            split = st.checkbox("Separate weight gradients", key="backward-split", help=_SPLIT)
            if button("Add backward", icon=":material/keyboard_return:"):
                _change(lambda: _trained(graph, recompute=recompute, split_weights=split))
        about = "Number of path parts in an operator's name that identify its layer."
        depth = st.number_input("Depth of a layer", 1, 6, key="layer-depth", help=about)
        if button("Merge layers", icon=":material/layers:", help=_MERGE):
            _change(lambda: by_layer(graph, depth))
    about = "Download the graph as a file to edit, share, or pass to `tessel place`."
    name = f"{file_name(graph.name)}.graph.json"
    download("Export", lambda: graph_file_text(file), name, type="tertiary", help=about)


_RECOMPUTE = "Keep only the inputs of each layer, and compute the other activations again in the backward pass."
_SPLIT = "Compute weight gradients in separate operators. No operator waits for them."
_MERGE = "Merge each layer into one operator with the sum of its costs."


def _trained(graph: OperatorGraph, *, recompute: bool, split_weights: bool) -> OperatorGraph:
    """Return the training graph. It is made from the program of the ONNX model if this tab has opened one."""
    from tessel_core.ir.transforms.checkpoint import Recompute
    from tessel_core.networks.graphs.table import training_graph  # imported here for the same reason
    from tessel_core.networks.onnx import OnnxSpec, model_graph

    opened, how = session().of(OpenedModel), Recompute.FULL if recompute else Recompute.NONE
    if opened.model is None or opened.graph != graph:
        return training_graph(graph, recompute=how, split_weights=split_weights)
    spec = OnnxSpec(sizes=opened.sizes, training=True, recompute=how, split_weights=split_weights)
    return model_graph(opened.model, spec).graph


def _change(make: Callable[[], OperatorGraph]) -> None:
    """Change the graph, or show why that is not possible."""
    try:
        session().change_placing(workspace().placing.edited(make()))
    except InputError as error:
        st.error(literal(str(error)))
        return
    st.rerun()
