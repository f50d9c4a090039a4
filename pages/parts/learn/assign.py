"""Level in which a player assigns parts of a network to devices and simulates the assignment."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle

import streamlit as st

from pages.parts.learn.levels import hints, result_of, show_verdict, waiting
from pages.shared.session import session, workspace
from pages.shared.timeline.component import trace_timeline
from pages.shared.widgets import button, literal
from tessel_core.learning import Assigning, Assignment, Level
from tessel_core.learning.assignment import Given
from tessel_core.workbench.workspace import Played

_WAITED_S = 1.0


def play_assignment(level: Level, task: Assignment) -> None:
    """Show the task, a choice of devices for each part, and the verdict on the latest simulation."""
    st.markdown(f"**{literal(level.asks)}**")
    play = workspace().play(level.name)
    kept = task.given_of(play.placed)
    _tools(level, play, task, _chosen(level, task, kept))
    if play.chosen is None:
        st.caption("Choose the devices of each part, then press Simulate.")
        return
    run, assigned = result_of(Assigning(level.number, kept), _WAITED_S)
    if assigned is None:
        waiting(run, lambda: st.caption("Simulating …"))
    else:
        show_verdict(level, assigned.sentence, reached=assigned.reached)
        trace_timeline(*assigned.traced, f"assign-trace-{level.name}")


def _chosen(level: Level, task: Assignment, kept: Given) -> Given:
    """Show a choice of devices for each part, set to `kept`. Return the chosen devices."""
    found = []
    for number, (column, part, here) in enumerate(zip(cycle(st.columns(2)), task.parts, kept, strict=False)):
        key = session().key(f"assign-{level.name}-{number}-{here}")
        with column:
            found.append(_choice(task, part, here, key))
    return tuple(found)


def _choice(task: Assignment, part: str, here: tuple[int, ...], key: str) -> tuple[int, ...]:
    """Show the choice of devices for a part. Several devices can be chosen if the task allows copies."""
    label, devices = literal(part), range(len(task.devices))
    if task.copies:
        named = task.devices.__getitem__
        return tuple(sorted(st.pills(label, devices, selection_mode="multi", default=here, format_func=named, key=key)))
    index = here[0] if here else None
    device = st.radio(label, devices, index, format_func=task.devices.__getitem__, key=key, horizontal=True)
    return () if device is None else (device,)


def _tools(level: Level, play: Played, task: Assignment, given: Given) -> None:
    """Show the buttons that simulate, give hints, take one step, and start over."""
    with st.container(horizontal=True):
        if button("Simulate", type="primary", icon=":material/play_arrow:"):
            _keep(replace(play, placed=given, chosen=1))
        hints(level)
        helped = task.helped(given)
        if button("Step", icon=":material/school:", disabled=helped == given, help="Let the coach move one part."):
            _keep(replace(play, placed=helped, chosen=None))
        if button("Start over", icon=":material/restart_alt:", disabled=given == task.start):
            _keep(Played(level.name, reached=play.reached))


def _keep(play: Played) -> None:
    session().change(workspace().playing(play))
    st.rerun()
