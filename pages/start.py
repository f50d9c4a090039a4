"""Start: what a better order of work is worth, in one picture, and where to begin."""

import streamlit as st

from pages.parts.start.openers import open_sample, start_from_shape, upload
from pages.parts.start.opening import opening
from pages.shared.graph_openers import place_a_network

opening()
for place, way in zip(st.columns(4), (open_sample, place_a_network, start_from_shape, upload), strict=True):
    with place.container(border=True, height="stretch"):
        way()
