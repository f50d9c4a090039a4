"""Strategies: every way of a grid to spread a network over a mesh, and the best of them explained."""

import streamlit as st

from pages.shared.strategies import Asked, question, swept
from pages.shared.strategy_results import cards, explained, infeasible, points, table
from pages.shared.words import literal
from tessel_core.errors import InputError


def show(asked: Asked) -> None:
    """The sweep's answer: the best, all as points, one looked at closely, and all as a table."""
    found = swept(asked)
    chosen = cards(found)
    chosen = points(found, chosen)
    if chosen is None:
        st.warning("No configuration is feasible; the reasons stand below.", icon=":material/block:")
    else:
        explained(asked, found, chosen)
    table(found)
    infeasible(found)


try:
    asked = question()
    if asked is not None:
        show(asked)
except InputError as error:
    st.error(literal(f"{error}."), icon=":material/error:")
