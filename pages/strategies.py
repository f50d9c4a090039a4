"""Strategies page: evaluate a grid of parallel strategies, and explain the best of them."""

import streamlit as st

from pages.parts.strategies.cards import cards, fill
from pages.parts.strategies.closely import closely
from pages.parts.strategies.points import chosen, points, table
from pages.shared.session import session
from pages.shared.strategies import Asked, go_on, progress, question, swept
from pages.shared.strategy_state import StrategyState
from pages.shared.widgets import complain
from tessel_core.errors import InputError


def show(asked: Asked) -> None:
    """Show the results of a sweep: points, cards of the best, a table, and details of one configuration."""
    found = swept(asked)
    number = chosen(found)
    if not found.feasible.any() and found.unreached:
        st.info(f"{progress(found)}. None of these is feasible.", icon=":material/hourglass_top:")
    elif not found.feasible.any():
        st.warning("No configuration is feasible. The table lists the reasons.", icon=":material/block:")
    points(found, number)
    rooms = cards(found, number)
    table(found, number)
    if number is not None:
        closely(asked, found, number)
    fill(asked, rooms)
    if go_on(asked):
        st.rerun()


tab = session().of(StrategyState)
try:
    asked = question()
    if asked is not None:
        show(asked)
        tab.answered = asked
except InputError as error:
    complain(error)
    if tab.answered is not None:
        st.caption("The results below answer the previous question.")
        show(tab.answered)
