"""Level with a slider. The player predicts the best value, then sees the result of each value."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import streamlit as st

from pages.parts.learn.levels import hints, reach, result_of, show_reasons, waiting
from pages.shared.run_panel import start_search
from pages.shared.session import session, workspace
from pages.shared.timeline.component import timeline, trace_timeline
from pages.shared.widgets import button, literal
from tessel_core.learning import Knob, KnobAnswers, Level, StopResult
from tessel_core.units import share

_WAITED_S = 1.0


def play_knob(level: Level, knob: Knob) -> None:
    """Show the question, the slider, and the result of the chosen value."""
    st.markdown(f"**{literal(level.asks)}**")
    play = workspace().play(level.name)
    now = knob.stops[play.chosen] if play.chosen is not None and play.chosen < len(knob.stops) else knob.stops[0]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        label, key = f"Your prediction: {knob.label.lower()}", session().key(f"knob-{level.name}")
        if knob.in_words:
            chosen = st.radio(label, knob.stops, knob.stops.index(now), key=key, width=460)
        else:
            chosen = st.select_slider(label, knob.stops, now, key=key, width=460)
        pressed = button("Show", type="primary", icon=":material/visibility:")
        hints(level)
    if pressed:
        play = replace(play, chosen=knob.stops.index(chosen))
        session().change(workspace().playing(play))
    if play.chosen is None or play.chosen >= len(knob.stops):
        st.caption("Predict first: choose a value, then press Show.")
        return
    run, outcomes = result_of(KnobAnswers(level.number), _WAITED_S)
    if outcomes is None:
        waiting(run, lambda: st.progress(share(len(run.parts), len(knob.stops)), "Solving every value …"))
    elif len(outcomes) < len(knob.stops):
        st.info("Cancelled before all values were solved. Press Show to continue.", icon=":material/stop_circle:")
        if pressed:
            start_search(KnobAnswers(level.number))
            st.rerun()
    else:
        _shown(level, knob, outcomes, play.chosen)


def _shown(level: Level, knob: Knob, outcomes: tuple[StopResult, ...], chosen: int) -> None:
    right, outcome = chosen in knob.answers(outcomes), outcomes[chosen]
    if right:
        reach(level.name, right)
        st.success(literal(f"Right. {outcome.says}"), icon=":material/verified:")
    else:
        st.info(literal(f"Not this one. {outcome.says}"), icon=":material/flag:")
    if workspace().play(level.name).reached:
        show_reasons(level)
        rows = {knob.label: list(knob.stops), knob.measure: [each.shown for each in outcomes]}
        st.dataframe(pd.DataFrame(rows), hide_index=True, width="content")
    if outcome.schedules:
        timeline(outcome.schedules, f"knob-timeline-{level.name}")
    if outcome.traced is not None:
        trace_timeline(*outcome.traced(), f"knob-trace-{level.name}")
