"""The few things about looks that Streamlit's theme cannot say."""

import streamlit as st

_STYLE = """
<style>
/* Streamlit greys the text of plotly figures on light ground; on a projector it must be as dark as the rest. */
.js-plotly-plot :is(.xtick, .ytick, .x2tick, .y2tick) text,
.js-plotly-plot :is(.xtitle, .x2title, .ytitle, .y2title, .legendtext, .annotation-text) {
  fill: currentColor !important;
}
/* The mode bar's ground hides what is under it. */
.js-plotly-plot .modebar-group { background: transparent !important; }
</style>
"""


def look() -> None:
    """Once a page."""
    st.html(_STYLE)
