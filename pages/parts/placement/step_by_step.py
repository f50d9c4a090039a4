"""Dynamic programming for a small graph, step by step: the table over its ideals, and the cost of contiguity."""

from __future__ import annotations

import streamlit as st

from pages.shared.keeping import explain
from pages.shared.run_panel import answer, run_panel, start_search
from pages.shared.session import session, workspace
from pages.shared.widgets import button, complain, component, literal
from tessel_core.errors import InputError
from tessel_core.learning.filling import contiguity, filling
from tessel_core.model import THROUGHPUT

_FILLING = component(__file__, "filling", '<div class="filling"></div>')


def step_by_step() -> None:
    """Show the table of the open graph for the user to fill.

    If the graph is too large, show the reason and offer the slides.
    """
    placing = workspace().placing.wanting(THROUGHPUT, contiguous=True)
    try:
        table = filling(placing.problem)
    except InputError as error:
        st.info(
            literal(f"{error}. The slides show the table of a graph with ten operators."), icon=":material/slideshow:"
        )
        if button("Open the slides", icon=":material/slideshow:"):
            explain(_SLIDES)
        return
    question = placing.wanting(THROUGHPUT, contiguous=False).question
    run = answer(question)
    beside = [] if run is None or run.result is None else contiguity(placing.problem, run.result)
    _FILLING(key=session().key(f"filling-{hash(placing.problem):x}"), data={**table, "beside": beside})
    if run is None:
        with st.container(horizontal=True, vertical_alignment="center"):
            if button("Break contiguity", icon=":material/shuffle:"):
                start_search(question).wait(_WAITED_S)
                st.rerun()
            st.caption(_ANY_SETS, width="stretch")
    elif run.running:
        run_panel(run, placing.problem.graph.time_unit)
    elif run.result is None:
        complain(run.complaint)


_SLIDES, _WAITED_S = "slides-ideals", 1.0
_ANY_SETS = "Allow any set of operators on a device. The largest load may fall, but tensors can flow backwards."
