"""Level in which a player reorders the actions of each device until they cannot hang."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import streamlit as st

from pages.parts.learn.levels import hints, show_verdict
from pages.shared.session import session, workspace
from pages.shared.widgets import button, complain, literal
from tessel_core.deadlock import HangCertificate
from tessel_core.errors import InputError
from tessel_core.learning import Level, Ordering
from tessel_core.learning.ordering import Order, Step
from tessel_core.workbench.workspace import Played


@dataclass
class OrderState:
    """State of the level: why the latest move was refused."""

    of_workspace: ClassVar[bool] = True
    complaint: str = ""


def play_ordering(level: Level, task: Ordering) -> None:
    """Show the task, one list of actions per device, and the result of the hang check."""
    st.markdown(f"**{literal(level.asks)}**")
    play = workspace().play(level.name)
    order = task.order_of(play.placed)
    found = None if play.chosen is None else task.check(order)
    for rank, column in enumerate(st.columns(len(task.names), gap="large")):
        with column:
            _list(play, task, order, rank, found)
    _tools(level, play, task, order)
    if session().of(OrderState).complaint:
        complain(session().of(OrderState).complaint)
    if found is None:
        st.caption("Press Run to check whether the lists can hang.")
    else:
        show_verdict(level, task.says(order, found), reached=found.proceeds)


def _list(play: Played, task: Ordering, order: Order, rank: int, found: HangCertificate | None) -> None:
    """Show the actions of one device with buttons to move them up or down.

    Mark the action at which the device stops.
    """
    st.markdown(f"**{literal(task.names[rank])}**")
    stops = {} if found is None else task.stops(found)
    crossed = {} if found is None else task.crossed(order, found)
    for at, which in enumerate(order[rank]):
        text = task.lists[rank][which].text
        with st.container(horizontal=True, vertical_alignment="center"):
            stop = stops.get(rank, len(order[rank]))
            st.markdown(_row(at, text, found, stop, wrong=(rank, at) in crossed), width="stretch")
            for label, icon, of in (("Up", "upward", at - 1), ("Down", "downward", at)):
                off = not 0 <= of < len(order[rank]) - 1
                about: dict[str, Any] = {"icon": f":material/arrow_{icon}:", "disabled": off}
                if button(label, key=f"{label}-{rank}-{at}", help=f"Move {text} {label.lower()}", **about):
                    _move(play, task, order, (rank, of))


def _row(at: int, text: str, found: HangCertificate | None, stop: int, *, wrong: bool) -> str:
    """Return an action as text, with its number and an icon for its result."""
    numbered = literal(f"{at + 1}. {text}")
    if found is None:
        return numbered
    if wrong:
        return f":material/close: {numbered}"
    if at < stop:
        return f":material/check: {numbered}"
    return f":material/hourglass: {numbered}" if at == stop else f":gray[{numbered}]"


def _tools(level: Level, play: Played, task: Ordering, order: Order) -> None:
    """Show the buttons that run the lists, give hints, take one step, and start over."""
    with st.container(horizontal=True):
        if button("Run", type="primary", icon=":material/play_arrow:"):
            _keep(replace(play, chosen=1))
        hints(level)
        way = task.way_out(order)
        if button("Step", icon=":material/school:", disabled=not way, help="Let the coach move one action."):
            _move(play, task, order, way[0])
        if button("Start over", icon=":material/restart_alt:", disabled=order == task.start):
            _keep(Played(level.name, reached=play.reached))


def _move(play: Played, task: Ordering, order: Order, step: Step) -> None:
    """Swap two neighbouring actions, or record why this is not possible, and rerun the page."""
    try:
        _keep(replace(play, placed=task.moved(order, step), chosen=None))
    except InputError as error:
        session().of(OrderState).complaint = str(error)
        st.rerun()


def _keep(play: Played) -> None:
    session().of(OrderState).complaint = ""
    session().change(workspace().playing(play))
    st.rerun()
