"""From a placement on to its schedule."""

from __future__ import annotations

import streamlit as st

from pages.parts.placement.state import PlacementState
from pages.shared.address import PLAN
from pages.shared.contents import go_to
from pages.shared.markdown import literal
from pages.shared.session import session, workspace
from tessel_core.errors import InputError
from tessel_core.workbench.planning import has_weight_gradients, plan_source, planned


def schedule_this() -> None:
    """The button that makes the placement's micro-batch plan the workspace's, and opens it."""
    tab, placing = session(), workspace().placing
    state = tab.of(PlacementState)
    assert placing.graph is not None
    state.split_weights = has_weight_gradients(placing.graph.graph) and st.checkbox(
        "Weight gradients apart",
        state.split_weights,
        key=tab.key("split-weights"),
        help=_SPLIT,
        width="content",
    )
    off = placing.assignment is None
    if not st.button("Schedule this", icon=":material/view_timeline:", type="primary", disabled=off, help=_HELP):
        return
    try:
        plan = planned(placing, split_weights=state.split_weights)
    except InputError as error:
        st.toast(literal(f"{error}."), icon=":material/block:")
        return
    tab.change(workspace().with_plan(plan, plan_source(placing)))
    tab.begin_again()
    tab.next_view = PLAN
    go_to("schedule")


_SPLIT = "In the plan, weight gradients are blocks of their own, which nothing waits for: a schedule may delay them."
_HELP = "Make a micro-batch plan of this placement: blocks per device and direction. Undo brings the plan before back."
