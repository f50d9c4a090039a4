"""Show a placement: verdict, numbers, memory, and the buttons for files and for scheduling."""

from __future__ import annotations

import streamlit as st

from pages.parts.placement.state import PlacementState
from pages.shared.address import PLAN
from pages.shared.contents import go_to
from pages.shared.session import session, workspace
from pages.shared.uploads import take_file
from pages.shared.widgets import button, complaining, download, file_name, literal, metrics, picture, verdict
from tessel_core.charts.device_bars import memory_bars
from tessel_core.errors import InputError
from tessel_core.model import Placement, PlacementLoads
from tessel_core.scheduling import find_scheduler
from tessel_core.workbench.messages.placement import (
    Tone,
    Verdict,
    outcome_verdict,
    placement_numbers,
    placement_verdict,
)
from tessel_core.workbench.messages.plan import period_number
from tessel_core.workbench.placement_files import placement_file_text
from tessel_core.workbench.placing import Placing
from tessel_core.workbench.planning import halves_source, has_weight_gradients, plan_source, planned, split_for


def verdicts(placing: Placing, placement: Placement, loads: PlacementLoads) -> None:
    """Show the verdict on the placement. If the latest search found no placement, show the reason first."""
    failed = None if placing.outcome is None else outcome_verdict(placing.outcome)
    if failed is not None:
        say(failed)
        st.caption("The previous placement is shown below.")
    say(placement_verdict(placing, placement, loads))


def say(found: Verdict) -> None:
    """Show a verdict in the colour of its tone."""
    verdict(found.text, proved=found.tone is Tone.PROVED, found=found.tone is Tone.FOUND)


def numbers(placing: Placing, placement: Placement, loads: PlacementLoads) -> None:
    """Show the key numbers of a placement."""
    largest, *others = placement_numbers(placing, placement, loads)
    period = period_number(placing, placement, split_weights=session().of(PlacementState).split_weights)
    metrics((largest, period, *others))


def memory_picture(placement: Placement, loads: PlacementLoads) -> None:
    """Show the memory and the capacity of each device."""
    picture(memory_bars(loads, placement.devices), "placement-memory")


def placement_files() -> None:
    """Show the menu that downloads the placement as a file and opens one from a file."""
    with st.popover("File", icon=":material/draft:"):
        _export(workspace().placing)
        take_file("upload-placement")
        st.caption("Open a tessel-placement file for this graph and mesh, or a published expert split of this graph.")


def _export(placing: Placing) -> None:
    assert placing.graph is not None
    text, objection = "", "Nothing is placed yet. Press Place first."
    try:
        if placing.assignment is not None:
            text, objection = placement_file_text(placing), ""
    except InputError as error:
        objection = f"{error}."
    name = f"{file_name(placing.graph.graph.name)}.placement.json"
    download("Placement JSON", text, name, disabled=bool(objection), help=_FILE)
    if objection:
        st.caption(literal(objection))


_FILE = "Download the device of every operator, for `tessel check`, `tessel plan`, or to open here again."


def schedule_this() -> None:
    """Show the button that turns the placement into a micro-batch plan and opens it on *Schedule*."""
    tab, placing = session(), workspace().placing
    state, key = tab.of(PlacementState), tab.key("split-weights")
    assert placing.graph is not None
    state.split_weights = has_weight_gradients(placing.graph.graph) and st.checkbox(
        "Separate weight gradients", state.split_weights, key=key, help=_SPLIT, width="content"
    )
    off = placing.assignment is None
    if not button("Schedule this", icon=":material/view_timeline:", type="primary", disabled=off, help=_PLAN):
        return
    work = workspace()
    with complaining():
        plan, source = planned(placing, split_weights=state.split_weights), plan_source(placing)
        halves = split_for(placing, plan, find_scheduler(work.scheduler), work.micro_batches)
        tab.change(work.with_plan(halves, halves_source(placing)) if halves else work.with_plan(plan, source))
        tab.begin_again()
        tab.next_view = PLAN
        go_to("schedule")


_SPLIT = "Make weight gradients separate blocks of the plan. No block waits for them, so a schedule can delay them."
_PLAN = "Turn this placement into a micro-batch plan and open it. Undo restores the current plan."
