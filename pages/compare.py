"""Compare page: several schedules in one table, on one time axis, and as curves over a range."""

import streamlit as st

from pages.parts.compare.arrange import arrange
from pages.parts.compare.one_model import one_model
from pages.parts.compare.state import COUNTS, DIFFERENCE, IDLE, JITTER, MEMORY, TIMELINES, VIEWS, WHAT_IF, CompareState
from pages.parts.compare.views import against_memory, against_micro_batches, differ, idle, jitter, timelines
from pages.parts.compare.what_if import what_if
from pages.shared.comparing import actions, add_pairs, answers, keep_solving, offer_pairs, pairs_table
from pages.shared.keeping import keeping
from pages.shared.session import session, workspace
from pages.shared.widgets import heading_row, switch
from tessel_core.scheduling import Answer
from tessel_core.scheduling.comparison import default_reference


def show(found: tuple[Answer, ...]) -> None:
    """Show the table, and one view of the ticked pairs, or of all pairs if none is ticked."""
    # Containers keep the position of each element. Streamlit resets an element whose position changes.
    tab = session().of(CompareState)
    filled, missing = tab.missing
    with st.container():
        ticked = pairs_table(found, missing if filled == workspace().comparison.pairs else ())
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        tab.view = switch("View", list(dict.fromkeys(VIEWS.values())), "compare-view", tab.view)
        with st.container(horizontal=True, vertical_alignment="center", width="content"):
            arrange()
            actions(ticked)
    with st.container():
        keep_solving(found)
    shown = tuple(each if i in ticked or not ticked else Answer() for i, each in enumerate(found))
    if tab.view == TIMELINES:
        timelines(shown)
    elif tab.view == DIFFERENCE:
        differ(found, ticked)
    elif tab.view == IDLE:
        idle(shown)
    elif tab.view == JITTER:
        jitter(shown)
    elif tab.view == WHAT_IF:
        what_if(ticked, default_reference(workspace().comparison, found) or 0)
    elif tab.view == COUNTS:
        against_micro_batches()
    elif tab.view == MEMORY:
        against_memory()


with heading_row("compare"):
    one_model()
    room = st.container(horizontal=True, vertical_alignment="center", width="content")
add_pairs()
with room:
    keeping()
pairs = answers()
if pairs is None:
    offer_pairs()
else:
    show(pairs)
