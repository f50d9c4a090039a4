"""Strategies: every way of a grid to spread a network over a mesh, and the best of them explained."""

import streamlit as st

from pages.shared.strategies import Asked, question, swept
from pages.shared.strategy_cards import cards, fill
from pages.shared.strategy_closely import closely
from pages.shared.strategy_points import chosen, points, table
from pages.shared.words import literal
from tessel_core.errors import InputError


def show(asked: Asked) -> None:
    """The sweep's answer: the best, all as points and as a table, and one looked at closely."""
    found = swept(asked)
    number = chosen(found)
    if not found.feasible.any():
        st.warning("No configuration is feasible; the table says why.", icon=":material/block:")
    points(found, number)
    rooms = cards(found, number)
    table(found, number)
    if number is not None:
        closely(asked, found, number)
    fill(asked, rooms)


try:
    asked = question()
    if asked is not None:
        show(asked)
except InputError as error:
    st.error(literal(f"{error}."), icon=":material/error:")
