"""One model, many schedules: fill the list with every schedule of one network, each on the placement it needs."""

from __future__ import annotations

import streamlit as st

from pages.parts.compare.state import CompareState
from pages.shared.comparing import change
from pages.shared.session import session, workspace
from pages.shared.widgets import button, choose, complaining, config_form
from tessel_core.networks.forms import NETWORKS, Terms
from tessel_core.scheduling import SCHEDULERS
from tessel_core.scheduling.forms import line_up

_HELP = (
    "Compare every published schedule on the placement it needs (V, split V, loop, ZB-V, X, sharded), and the search "
    "on every placement, for the same layers and devices, per sample. This replaces the list below."
)


def one_model() -> None:
    """Show the menu that fills the list."""
    key = f"one-model-{session().of(CompareState).filled}"
    with st.popover("One model, many schedules", icon=":material/stacks:", help=_HELP, key=key):
        name = choose("Network", {each: network.title for each, network in NETWORKS.items()}, key="compare-network")
        terms = config_form(Terms(), "compare-terms", columns=2, limited=False)
        st.caption(
            "In X placements, each half of the micro-batches has its own direction and its own copy of the weights."
        )
        if button("Compare all", type="primary", icon=":material/compare_arrows:", width="stretch"):
            _fill(name, terms)


def _fill(name: str, terms: Terms) -> None:
    work = workspace()
    count = work.comparison.micro_batches or work.micro_batches
    state = session().of(CompareState)
    with complaining():
        filled = line_up(
            name, terms, count, lambda scheduler: work.configs.get(scheduler) or SCHEDULERS[scheduler].config()
        )
        change(filled.comparison)
        state.filled, state.missing = state.filled + 1, (filled.comparison.pairs, filled.missing)
