"""Progress of a finished search: its best solution and its bound over time, which can be replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import streamlit as st

from pages.shared.session import session
from pages.shared.widgets import button, literal, picture
from tessel_core.charts.progress import at_moment, gap_curve, played, standing
from tessel_core.control import Progress
from tessel_core.model import MicroBatchPlan, ScheduleReport

_FRAME_S, _SLIDER_KEY = 0.4, "search-news"


@dataclass
class SearchPlayed:
    """State of the replay of a search."""

    of_workspace: ClassVar[bool] = True
    of: tuple[Progress, ...] = ()
    """Progress reports of the search."""
    at: int = 0
    """Number of the shown moment, from 1. 0: the user has not moved the slider, and the end is shown."""
    plays: bool = False


def search_history(report: ScheduleReport, plan: MicroBatchPlan) -> None:
    """Show the curves of best solution and bound. Show nothing for a schedule that was not searched."""
    known = tuple(news for news in report.history if news.objective is not None or news.bound is not None)
    if not known:
        return
    st.markdown("**Search progress**", help="Best solution so far and proved bound over wall time.")
    state = session().of(SearchPlayed)
    if state.of != known:
        state.of, state.at, state.plays = known, 0, False
        st.session_state.pop(session().key(_SLIDER_KEY), None)
    curve = gap_curve(known, plan.time_unit, report.wall_s)
    st.fragment(_played, run_every=_FRAME_S if state.plays else None)(curve, state, plan.time_unit)


def _played(curve: object, state: SearchPlayed, time_unit: str) -> None:
    """Show the curves up to the shown moment, and below them the button and the slider of the replay."""
    halts, key = played(state.of), session().key(_SLIDER_KEY)
    room = st.container(gap=None)
    if len(halts) > 1:
        with st.container(horizontal=True, vertical_alignment="center"):
            label, icon = ("Pause the search", "pause") if state.plays else ("Play the search", "play_arrow")
            if button(label, key="play-search", icon=f":material/{icon}:"):
                state.plays, state.at = not state.plays, 0 if state.at == len(halts) else state.at
                st.rerun()
            state.at = _moved(state, key, len(halts))
    at = len(halts) if not state.at else state.at
    with room:
        picture(at_moment(curve) if at == len(halts) else at_moment(curve, halts[at - 1].wall_s), "history")
        st.caption(literal(standing(halts[at - 1], time_unit)))
    if state.plays and state.at == len(halts):
        state.plays = False
        st.rerun()


def _moved(state: SearchPlayed, key: str, last: int) -> int:
    """Show the slider, one moment further if the replay runs. Return its value."""
    if state.plays or key not in st.session_state:
        st.session_state[key] = min(last, state.at + 1) if state.plays else state.at or last
    at: int = st.slider("Moment of the search", 1, last, key=key, label_visibility="collapsed", width="stretch")
    return at
