"""From a placement on to its schedule."""

from __future__ import annotations

import streamlit as st

from pages.shared.address import PLAN
from pages.shared.session import session, workspace
from pages.shared.uploads import SCHEDULE_PAGE
from pages.shared.words import literal
from tessel_core.errors import InputError
from tessel_core.placing import planned


def schedule_this() -> None:
    """The button that makes the placement's micro-batch plan the workspace's, and opens it."""
    off = workspace().placing.assignment is None
    if not st.button("Schedule this", icon=":material/view_timeline:", type="primary", disabled=off, help=_HELP):
        return
    try:
        plan, source = planned(workspace().placing)
    except InputError as error:
        st.toast(literal(f"{error}."), icon=":material/block:")
        return
    tab = session()
    tab.change(workspace().with_plan(plan, source))
    tab.begin_again()
    tab.next_view = PLAN
    st.switch_page(SCHEDULE_PAGE)


_HELP = "Make a micro-batch plan of this placement: blocks per device and direction. Undo brings the plan before back."
