"""Table of the process groups of a strategy, with their devices and links."""

from __future__ import annotations

import streamlit as st

from pages.shared.widgets import literal
from tessel_core.model import DeviceMesh
from tessel_core.strategies.ranks import Ranks
from tessel_core.workbench.messages.ranks import groups_of


def rank_groups(ranks: Ranks, mesh: DeviceMesh) -> None:
    """Show one row per dimension that is cut, innermost first. Show nothing for one device."""
    found = groups_of(ranks, mesh)
    if not found:
        return
    cells = [(each.dimension, each.groups, each.devices, each.links) for each in found]
    rows = [f"| {' | '.join(map(literal, row))} |" for row in cells]
    head = ["| Dimension, innermost first | Process groups | First group | Links |", "|---|---|---|---|"]
    with st.expander(f"Ranks: {', '.join(each.dimension for each in found)}", icon=":material/hub:"):
        st.markdown("\n".join([*head, *rows]))
