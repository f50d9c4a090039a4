"""Start: what a better order of work is worth, in one picture, and where to begin."""

import streamlit as st

from pages.shared.openers import SCHEDULE_PAGE, open_sample, start_from_shape, upload
from pages.shared.opening import MICRO_BATCHES, opening
from pages.shared.session import FIRST_SAMPLE, session
from tessel_core.charts import compared

found = opening()
known, searched = found.schedules

story, picture = st.columns([3, 9], gap="medium", vertical_alignment="center")
with story:
    st.markdown("#### Same model, same GPUs")
    st.markdown(f"# :blue[{found.times_faster}] faster")
    st.markdown(
        f"A GPT with a million-token vocabulary, {MICRO_BATCHES} micro-batches. **Above**, 1F1B as everyone runs it: "
        "one GPU is busy, the others wait. **Below**, the vocabulary is spread over all GPUs and Tessel has found the "
        "order of work."
    )
    if st.button("Open the searched schedule", type="primary", icon=":material/arrow_forward:", width="stretch"):
        session().open_sample(FIRST_SAMPLE)
        st.switch_page(SCHEDULE_PAGE)
with picture:
    st.plotly_chart(compared(known, searched, found.titles), key="opening", config={"displayModeBar": False})

for place, way in zip(st.columns(3), (open_sample, upload, start_from_shape), strict=True):
    with place.container(border=True, height="stretch"):
        way()
