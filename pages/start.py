"""Start: what a better order of work is worth, in one picture, and where to begin."""

import streamlit as st

from pages.shared.graph_openers import place_a_network
from pages.shared.openers import open_sample, start_from_shape, upload
from pages.shared.opening import opening

opening()
for place, way in zip(st.columns(4), (open_sample, place_a_network, start_from_shape, upload), strict=True):
    with place.container(border=True, height="stretch"):
        way()
