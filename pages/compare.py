"""Compare: schedules under each other on one time axis, in one table, and over a range."""

import streamlit as st

from pages.shared.address import BUBBLES, COMPARE_VIEWS, COUNTS, MEMORY, TIMELINES
from pages.shared.comparing import actions, add_pairs, answers, keep_solving, pairs_table
from pages.shared.comparison_charts import bubbles, timelines
from pages.shared.session import session
from pages.shared.sweeps import against_memory, against_micro_batches
from tessel_core.scheduling import Answer


def show(found: tuple[Answer, ...]) -> None:
    """The table, and one view of all pairs."""
    selected = pairs_table(found)
    tab = session()
    with st.container(horizontal=True, vertical_alignment="center"):
        view = st.segmented_control(
            "View",
            list(COMPARE_VIEWS.values()),
            default=tab.compare_view or TIMELINES,
            key="compare-view",
            required=True,
            label_visibility="collapsed",
            width="stretch",
        )
        actions(selected)
    tab.compare_view = view
    keep_solving()
    if view == TIMELINES:
        timelines(found)
    elif view == BUBBLES:
        bubbles(found)
    elif view == COUNTS:
        against_micro_batches()
    elif view == MEMORY:
        against_memory()


add_pairs()
pairs = answers()
if pairs is None:
    text = "Nothing to compare yet: add pairs of plan and scheduler above, or on the Schedule page."
    st.info(text, icon=":material/compare_arrows:")
else:
    show(pairs)
