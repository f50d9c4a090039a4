"""Placement page: search a device for each operator, see what is proved, and move operators by hand."""

import streamlit as st

from pages.parts.placement.form import placing_form, why_not
from pages.parts.placement.lanes import lanes
from pages.parts.placement.moves import move_bar, placed_table
from pages.parts.placement.result import (
    memory_picture,
    numbers,
    placement_files,
    say,
    schedule_this,
    verdicts,
)
from pages.parts.placement.searches import compare_placers, running, search_both, search_placement, take_answer
from pages.parts.placement.step_by_step import step_by_step
from pages.shared.graph_openers import no_graph_yet
from pages.shared.graph_view import drawing, view_controls
from pages.shared.keeping import keeping
from pages.shared.run_panel import run_panel
from pages.shared.session import workspace
from pages.shared.widgets import heading_room, switch, title_of
from tessel_core.model import Placement, PlacementLoads
from tessel_core.workbench.messages.placement import outcome_verdict

OPERATORS, PLACERS, SCHEDULES, TABLE = "Operators", "Compare placers", "With schedules", "Step by step"


def heading() -> None:
    """Show the name of the graph, the workspace's buttons, and the buttons for files and for scheduling."""
    placing = workspace().placing
    assert placing.graph is not None
    graph = placing.graph.graph
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        title_of(graph.name, f"{len(graph.operators):,} operators · {placing.graph_source}")
        keeping()
        placement_files()
        schedule_this()


def result(placement: Placement) -> None:
    """Show the verdict and the numbers of a placement, then pictures, then tables."""
    placing, loads = workspace().placing, PlacementLoads.of(placement)
    names = [device.name for device in placement.devices]
    verdicts(placing, placement, loads)
    numbers(placing, placement, loads)
    view = view_controls(placement.graph, "placed", placed=True)
    left, right = st.columns([13, 6], gap="medium")
    with left:
        lanes(view)
    with right:
        memory_picture(placement, loads)
    moves = heading_room("moves")
    selected = drawing(placement.graph, view, "placed", placement)
    chosen = selected or tuple(each.name for each in placement.graph.operators if each.name in view.highlight)
    with moves:
        move_bar(chosen, names)
    below_the_pictures(placement, chosen, names)


def below_the_pictures(placement: Placement, chosen: tuple[str, ...], names: list[str]) -> None:
    """Show the chosen part below the pictures."""
    below = switch("Below", (OPERATORS, PLACERS, SCHEDULES, TABLE), "placed-below")
    if below == PLACERS:
        compare_placers()
    elif below == SCHEDULES:
        search_both()
    elif below == TABLE:
        step_by_step()
    else:
        shown = map(placement.graph.operator_index, chosen) if chosen else range(len(placement.graph.operators))
        placed_table(placement.graph, tuple(shown), names)


def page() -> None:
    """Show the form, and the running search or the current placement."""
    if workspace().placing.graph is None:
        no_graph_yet("placement")
        return
    take_answer()
    room = heading_room("placement")
    if placing_form():
        search_placement()
        st.rerun()
    with room:
        heading()
    placing = workspace().placing
    run = None if why_not(placing) else running()
    if run is not None:
        run_panel(run, placing.problem.graph.time_unit)
    elif not why_not(placing) and placing.placement is not None:
        result(placing.placement)
    elif placing.outcome is not None and (failed := outcome_verdict(placing.outcome)) is not None:
        say(failed)
    elif not why_not(placing):
        st.info("Press Place to assign every operator to a device.", icon=":material/grid_view:")
        graph = placing.problem.graph
        drawing(graph, view_controls(graph, "unplaced", placed=False), "unplaced")


page()
