"""Choice of a time window: everything, a phase, or the range of a slider."""

from __future__ import annotations

from typing import Any

import streamlit as st

from pages.shared.session import unbroken
from tessel_core.charts.gantt import EVERYTHING, TimeAxis


def time_window(axis: TimeAxis, key: str, *, slider: bool) -> tuple[int, int]:
    """Show buttons for the phases and, with `slider`, a range slider. Return the chosen window in ticks.

    A small picture needs no slider, because dragging over it zooms. Without a repeating part there are no buttons.
    """
    if len(axis.windows) == 1 and not slider:
        return axis.windows[EVERYTHING]
    key = f"{key}-{axis.longest}"
    whole = axis.shown(axis.windows[EVERYTHING])
    phase, span = f"phase-{key}", f"span-{key}"
    st.session_state.setdefault(phase, EVERYTHING)
    st.session_state.setdefault(span, whole)
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.segmented_control(
            "Time window",
            list(axis.windows),
            key=phase,
            label_visibility="collapsed",
            help=_HELP,
            on_change=_follow_phase,
            args=(axis, phase, span),
        )
        if slider:
            label, how = f"Time window ({axis.unit})", dict[str, Any](label_visibility="collapsed", format="%.4g")
            st.slider(label, *whole, key=span, step=axis.step, on_change=_leave_phase, args=(phase,), **how)
    chosen = st.session_state[phase]
    return axis.windows[chosen] if chosen else axis.window(st.session_state[span])


_HELP = "Show this part of the time. Drag over the picture to zoom in. Double-click to zoom out."


@unbroken
def _follow_phase(axis: TimeAxis, phase: str, span: str) -> None:
    chosen = st.session_state[phase] or EVERYTHING
    st.session_state[phase] = chosen
    st.session_state[span] = axis.shown(axis.windows[chosen])


@unbroken
def _leave_phase(phase: str) -> None:
    st.session_state[phase] = None
