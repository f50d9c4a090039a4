"""How a search closed in: its best and its bound over time, which play again as they were found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import streamlit as st

from pages.shared.session import session
from pages.shared.widgets import button, literal, picture
from tessel_core.charts.progress import at_moment, gap_curve, played, standing
from tessel_core.control import Progress
from tessel_core.model import MicroBatchPlan, ScheduleReport

_FRAME_S, _NEWS = 0.4, "search-news"


@dataclass
class SearchPlayed:
    """Which news of a search are shown, while it plays and after."""

    of_workspace: ClassVar[bool] = True
    of: tuple[Progress, ...] = ()
    """The news of the search that plays."""
    at: int = 0
    """At which of its halts it is, from 1; 0 before it was moved, when all of it is shown."""
    plays: bool = False


def search_history(report: ScheduleReport, plan: MicroBatchPlan) -> None:
    """The curves; nothing of a schedule that was not searched."""
    known = tuple(news for news in report.history if news.objective is not None or news.bound is not None)
    if not known:
        return
    st.markdown("**How the search closed in**", help="Best solution so far and proved bound over wall time.")
    state = session().of(SearchPlayed)
    if state.of != known:
        state.of, state.at, state.plays = known, 0, False
        st.session_state.pop(session().key(_NEWS), None)
    curve = gap_curve(known, plan.time_unit, report.wall_s)
    st.fragment(_played, run_every=_FRAME_S if state.plays else None)(curve, state, plan.time_unit)


def _played(curve: object, state: SearchPlayed, time_unit: str) -> None:
    """The curves at the news that are shown, and under them what plays and moves them."""
    halts, key = played(state.of), session().key(_NEWS)
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
    """The slider, one news on where the search plays."""
    if state.plays or key not in st.session_state:
        st.session_state[key] = min(last, state.at + 1) if state.plays else state.at or last
    at: int = st.slider("News of the search", 1, last, key=key, label_visibility="collapsed", width="stretch")
    return at
