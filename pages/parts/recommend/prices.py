"""Show on request which changes would make the chosen strategy faster."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from pages.shared.run_panel import answer, start_search, watch
from pages.shared.widgets import button, literal
from tessel_core.strategies.price_tags import PriceQuestion
from tessel_core.strategies.recommendation import Candidate, Question
from tessel_core.workbench.jobs import Run
from tessel_core.workbench.messages.recommendation import price_sentences

_SHOWN_AT_ONCE_S = 0.6
"""Seconds to wait for an answer before the page shows the progress."""


def prices(question: Question, chosen: Candidate) -> None:
    """Offer to price the changes, then show one sentence for each change."""
    st.markdown("**What would make it faster?**", help=_ABOUT)
    asked = PriceQuestion(question, chosen)
    run = answer(asked)
    if run is None:
        if button("Work it out", icon=":material/sell:", key="recommend-prices", help=_ABOUT):
            start_search(asked).wait(_SHOWN_AT_ONCE_S)
            st.rerun()
    elif run.running:
        watch(run, partial(_progress, run))
    elif run.result is None:
        st.error(literal(run.complaint), icon=":material/error:")
    else:
        st.markdown("\n".join(f"- {literal(line)}" for line in price_sentences(chosen, run.result)))


def _progress(run: Run[Any]) -> None:
    """Show the number of priced changes, or the phase of the search with more memory."""
    phase = run.progress.phase if run.progress else "begins"
    st.markdown(f":material/hourglass_top: {literal(phase)}")


_ABOUT = (
    "Time the strategy after each of these changes: more memory on every GPU, slower and faster links, one layer moved "
    "to a neighbouring stage, and micro-batches twice as large. More memory takes another search of all ranges."
)
