"""Operator graph page: the operators of a network as a drawing and as tables to edit."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.parts.graph.editor import edges_editor, operators_editor
from pages.shared.contents import go_to
from pages.shared.graph_openers import graph_actions, no_graph_yet, open_graph_menu
from pages.shared.graph_view import drawing, look_closer, view_controls
from pages.shared.keeping import keeping
from pages.shared.session import workspace
from pages.shared.widgets import button, heading_row, metrics, switch, title_of
from tessel_core.formats import GraphFile
from tessel_core.workbench.messages.graph import graph_numbers

DRAWING, OPERATORS, EDGES = "Drawing", "Operators", "Edges"


def heading(file: GraphFile) -> tuple[str, DeltaGenerator]:
    """Show the heading. Return the chosen view and the container for the workspace's buttons."""
    with heading_row("graph"):
        title_of(file.graph.name, workspace().placing.graph_source)
        room = st.container(horizontal=True, vertical_alignment="center", width="content")
        return switch("View", (DRAWING, OPERATORS, EDGES), "graph-view"), room


def page() -> None:
    """Show the open graph, or ways to open one."""
    file = workspace().placing.graph
    if file is None:
        no_graph_yet()
        return
    view, beside = heading(file)
    if view == DRAWING:
        metrics(graph_numbers(workspace().placing))
        look = view_controls(file.graph, "graph", placed=False)
        look_closer(file.graph, drawing(file.graph, look, "graph"), look)
    else:
        room = st.container()
        editor = operators_editor if view == OPERATORS else edges_editor
        editor(file.graph)
        with room:  # filled last, because edits in the table change these numbers
            metrics(graph_numbers(workspace().placing))
    with beside:
        keeping()
        if button("Place it", icon=":material/arrow_forward:", type="tertiary", help="Continue on *Placement*."):
            go_to("placement")
        open_graph_menu()
        graph_actions(workspace().placing.graph or file)


page()
