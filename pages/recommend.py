"""Recommend: the fastest strategy for a model on a cluster, with its proof and its launch files."""

from functools import partial

import streamlit as st

from pages.parts.recommend.answer import show_answer, show_progress
from pages.parts.recommend.asked import asked_question
from pages.shared.run_panel import answer, start_search, watch
from pages.shared.widgets import complaining, literal

question = None
with complaining():
    question, name, pressed = asked_question()
    if pressed:
        start_search(question)
if question is not None:
    run = answer(question)
    above = st.empty()  # progress has a place of its own: in that of an old answer, it would move the answer's columns
    if run is None:
        st.caption("Press *Find the fastest* to search every configuration of the ranges.")
    elif run.running:
        with above.container():
            watch(run, partial(show_progress, run))
    elif run.result is None:
        st.error(literal(run.complaint), icon=":material/error:")
    else:
        show_answer(run.result, name)
