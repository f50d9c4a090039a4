"""Compare: schedules under each other on one time axis, in one table, and over a range."""

import streamlit as st

from pages.shared.comparing import actions, add_pairs, answers, keep_solving, pairs_table
from pages.shared.comparison_charts import bubbles, timelines
from pages.shared.sweeps import against_memory, against_micro_batches

VIEWS = TIMELINES, BUBBLES, COUNTS, MEMORY = "Timelines", "Bubbles", "Against micro-batches", "Against memory"

add_pairs()
found = answers()
if found is None:
    st.info(
        "Nothing to compare yet: add pairs of plan and scheduler above, or on the Schedule page.",
        icon=":material/compare_arrows:",
    )
    st.stop()
selected = pairs_table(found)
with st.container(horizontal=True, vertical_alignment="center"):
    view = st.segmented_control(
        "View",
        VIEWS,
        default=VIEWS[0],
        key="compare-view",
        required=True,
        label_visibility="collapsed",
        width="stretch",
    )
    actions(selected)
keep_solving()
if view == TIMELINES:
    timelines(found)
elif view == BUBBLES:
    bubbles(found)
elif view == COUNTS:
    against_micro_batches()
else:
    against_memory()
