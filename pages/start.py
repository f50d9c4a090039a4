"""Start page: one picture of what a searched schedule gains, and the ways to begin."""

import streamlit as st

from pages.parts.start.opening import opening
from pages.parts.start.question import first_question
from pages.shared.contents import go_to
from pages.shared.gallery import choose_plan
from pages.shared.graph_openers import place_a_network
from pages.shared.session import FIRST_SAMPLE, session
from pages.shared.uploads import paste_config, take_file
from pages.shared.widgets import button, choose, config_form, describe, literal
from tessel_core.errors import InputError
from tessel_core.networks import SHAPES, ShapeParameters, build_shape


def open_sample() -> None:
    """Offer the sample plans."""
    st.markdown("**Open a sample**")
    name = choose_plan(FIRST_SAMPLE)
    if button("Open sample", width="stretch"):
        session().open_sample(name)
        go_to("schedule")


def upload() -> None:
    """Offer the upload of a file. An invalid file leaves the workspace unchanged."""
    kinds = (
        "A plan, a schedule (also a PyTorch CSV), an operator graph, the config.json of a Hugging Face model, a device "
        "mesh, a placement or a workspace."
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("**Upload a file**", help=kinds, width="stretch")
        paste_config("upload")
    take_file("upload")


def start_from_shape() -> None:
    """Offer plans built from published placement shapes."""
    st.markdown("**Start from a shape**")
    titles = {name: shape.title for name, shape in SHAPES.items()}
    name = choose("Shape", titles, label_visibility="collapsed")
    shape = SHAPES[name]
    describe(shape.description, shape.models)
    with st.container(horizontal=True):
        with st.popover("Devices, times …", width="stretch"):
            parameters: ShapeParameters = config_form(shape.defaults, f"shape-{name}", without=shape.unused, columns=2)
        begins = button("Open shape", width="stretch")
    if begins:
        try:
            session().open_plan(build_shape(name, parameters), f"{shape.title} shape")
        except InputError as error:
            st.error(literal(str(error)))
            return
        go_to("schedule")


first_question()
opening()
for column, way in zip(
    st.container(key="ways-on").columns(4), (open_sample, place_a_network, start_from_shape, upload), strict=True
):
    with column.container(border=True, height="stretch"):
        way()
