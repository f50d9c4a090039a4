"""The first question of most users, and a precomputed answer to it."""

from __future__ import annotations

import json
from typing import Any

import streamlit as st

from pages.shared.contents import go_to
from pages.shared.widgets import button, literal
from tessel_core.samples import WORKED_ANSWER
from tessel_core.units import show_memory, show_time

_HEIGHT = 84
"""Fixed height in pixels, two lines of text, so that nothing below it moves while the page loads."""


def first_question() -> None:
    """Show the precomputed answer for one model on one cluster, and a button to the user's own question."""
    known = _worked()
    asked, best = known["asked"], known["best"]
    with st.container(border=True, horizontal=True, vertical_alignment="center", height=_HEIGHT):
        with st.container(gap="xxsmall"):
            st.markdown("**How do I cut my model for my cluster?**")
            st.caption(literal(f"{_question(asked)} {_answer(best, known['configurations'])}"))
        if button("Find yours", type="primary", icon=":material/rocket_launch:"):
            go_to("recommend")


@st.cache_resource(show_spinner=False)
def _worked() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(WORKED_ANSWER.read_bytes())
    return found


def _question(asked: dict[str, Any]) -> str:
    return f"{asked['model']} on {asked['mesh']}, a batch of {asked['global_batch']:,} x {asked['sequence']:,} tokens:"


def _answer(best: dict[str, Any], configurations: int) -> str:
    names = ("data", "tensor", "context", "expert", "pipeline")
    cut = ", ".join(f"{name} {best[name]}" for name in names if best[name] > 1)
    zero = f", ZeRO-{best['zero']}" if best["zero"] else ""
    step, memory = show_time(best["latency_s"], "s"), show_memory(max(best["peak_memory"]), "B")
    return f"{cut}{zero} takes {step} per step and {memory} per GPU, the fastest of {configurations:,} options."
