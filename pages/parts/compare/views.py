"""Views of the compared pairs. Curves over a range are drawn while their points are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import streamlit as st

from pages.parts.compare.state import CompareState
from pages.shared.address import keep_address
from pages.shared.comparing import looks
from pages.shared.run_panel import Solvable, answer, start_search, watch_parts
from pages.shared.session import session, workspace
from pages.shared.time_window import time_window
from pages.shared.timeline.component import timeline
from pages.shared.timeline.state import PICTURE, TIMELINE, TimelineState
from pages.shared.widgets import MODE_BAR, button, choose, config_form, literal, picture, switch
from tessel_core.charts.comparison import Shown, compared
from tessel_core.charts.curves import count_curves, memory_curve
from tessel_core.charts.device_bars import cause_chart, idle_chart, mean_cause_chart
from tessel_core.charts.gantt import EVERYTHING, Detail, TimeAxis, detail_of
from tessel_core.charts.jitter import jitter_chart
from tessel_core.charts.timeline import Titled
from tessel_core.control import Control
from tessel_core.inspection import IdleSplit, Jitter, difference, idle_causes, under_jitter
from tessel_core.inspection.jitter import DEVICE, RUN
from tessel_core.model import MicroBatchPlan, Schedule, ScheduleReport
from tessel_core.options import options_of
from tessel_core.scheduling import Answer, Question
from tessel_core.scheduling.comparison import opposed
from tessel_core.scheduling.curves import CapacityRange, CountSweep, MemorySweep, latest_points, lines_of
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.workbench.messages.comparison import CHANCE
from tessel_core.workbench.messages.difference import difference_columns, difference_sentences
from tessel_core.workbench.messages.idle import BY_CAUSE, meanings
from tessel_core.workbench.messages.jitter import jitter_sentences

_FIRST_POINTS_S = 0.5
"""Time that a button press waits for the first points, so that the first redraw already shows them."""
_MEMORY_CONFIG = TesselConfig(time_limit=5.0)
_POINTS = 12
_VARIES = {"Every run": RUN, "Every device": DEVICE}
_difference = lru_cache(maxsize=16)(difference)
_jittered = lru_cache(maxsize=16)(under_jitter)

Draw = Callable[[Sequence[Any]], None]


def timelines(found: Sequence[Answer]) -> None:
    """Show every schedule on one time axis."""
    shown = tuple((label, schedule) for label, _, schedule in _drawn(found))
    if shown:
        st.fragment(_timelines)(shown)


def _timelines(shown: tuple[Titled, ...]) -> None:
    """Show the timeline, or the picture if it is chosen or the browser cannot draw the timeline."""
    state, key = session().of(TimelineState), session().key("compare-drawing")
    before, state.drawing = state.drawing, st.session_state.get(key) or state.drawing
    memory = bool(st.session_state.get("compare-memory"))
    with st.container(gap=None):
        if state.drawing == PICTURE or not timeline(shown, "compare-timeline", memory=memory):
            picture_of(shown, memory=memory)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.toggle("Memory lanes", key="compare-memory")
        switch("Drawing", [TIMELINE, PICTURE], key, PICTURE if state.drawing == PICTURE else TIMELINE)
    if state.drawing != before:
        keep_address()


def picture_of(shown: tuple[Titled, ...], *, memory: bool) -> None:
    """Show every schedule on one time axis as a plotly figure."""
    axis = TimeAxis.of([schedule for _, schedule in shown])
    slider = detail_of([schedule for _, schedule in shown], axis.windows[EVERYTHING]) is Detail.SHARES
    window = time_window(axis, "compare", slider=slider)
    st.plotly_chart(_figure(shown, window, memory), key="compare-gantt", config=MODE_BAR)


@lru_cache(maxsize=16)
def _figure(shown: tuple[Titled, ...], window: tuple[int, int], memory: bool) -> object:
    return compared([Shown(*each) for each in shown], window=window, memory=memory)


def differ(found: Sequence[Answer], ticked: Sequence[int]) -> None:
    """Show the difference between two schedules: at first the reference and the best other of the ticked pairs."""
    comparison = workspace().comparison
    both, labels = opposed(comparison, found, ticked), comparison.labels()
    if both is None:
        st.info("Add a second schedule to see a difference.", icon=":material/difference:")
    else:
        first, second = both
        st.fragment(_differ)({label: schedule for label, _, schedule in _drawn(found)}, labels[first], labels[second])


def _differ(schedules: dict[str, Schedule], first: str, second: str) -> None:
    titles = {label: label for label in schedules}
    with st.container(horizontal=True):
        before = choose("From", titles, first, key=f"compare-from-{first}")
        after = choose("To", titles, second, key=f"compare-to-{second}")
    found = _difference(schedules[before], schedules[after])
    st.markdown("  \n".join(map(literal, difference_sentences(found, before, after))))
    columns = difference_columns(found)
    st.dataframe({each.heading: each.values for each in columns}, hide_index=True, column_config=looks(columns))
    _timelines(((before, schedules[before]), (after, schedules[after])))


def _drawn(found: Sequence[Answer]) -> list[tuple[str, ScheduleReport, Schedule]]:
    """Return label, report and schedule of each pair that has a schedule."""
    reports = zip(workspace().comparison.labels(), (each.report for each in found), strict=True)
    return [(label, each, each.drawable) for label, each in reports if each is not None and each.drawable is not None]


def idle(found: Sequence[Answer]) -> None:
    """Show idle time of every pair by remedy and by cause, then by cause for each device."""
    drawn = _drawn(found)
    if not drawn:
        return
    places = st.columns(2, gap="medium")
    with places[0]:
        st.markdown("**Idle time by remedy**", help=meanings())
        picture(
            idle_chart([(label, IdleSplit.of(each, of.makespan_bound)) for label, of, each in drawn]), "compare-idle"
        )
    with places[1]:
        st.markdown("**Idle time by cause**", help=BY_CAUSE)
        picture(mean_cause_chart([(label, idle_causes(each)) for label, _, each in drawn]), "compare-causes")
    for number, (label, _, each) in enumerate(drawn):
        with places[number % 2]:
            st.markdown(f"**{literal(label)}**")
            picture(cause_chart(idle_causes(each), each.plan), f"compare-causes-{number}")


def jitter(found: Sequence[Answer]) -> None:
    """Show the makespans when durations vary, and how often each schedule ends first."""
    shown = tuple((label, schedule) for label, _, schedule in _drawn(found))
    if shown:
        st.fragment(_jitter)(shown)


def _jitter(shown: tuple[Titled, ...]) -> None:
    state, schedules = session().of(CompareState), tuple(schedule for _, schedule in shown)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        look: dict[str, Any] = {"format": "percent", "width": 320, "help": options_of(Jitter)["spread"][0].help}
        before = state.jitter.spread
        spread = st.slider("Spread of durations", 0.0, 0.5, before, 0.01, key="compare-spread", **look)
        now = next(title for title, of in _VARIES.items() if of == state.jitter.of)
        of = _VARIES[switch("What varies", list(_VARIES), "compare-varies", now)]
    state.jitter = replace(state.jitter, spread=spread, of=of)
    affordable = state.jitter.affordable(schedules)
    jittered = _jittered(schedules, affordable)
    labelled = [(label, each) for (label, _), each in zip(shown, jittered, strict=True)]
    picture(jitter_chart(labelled, schedules[0].plan.time_unit), "compare-jitter")
    st.caption(literal(" ".join(jitter_sentences(schedules, affordable))), help=CHANCE)


def against_micro_batches() -> None:
    """Show idle share and time per micro-batch or sample of every pair, at 1 to 512 micro-batches."""
    comparison = workspace().comparison
    asked = {
        pair: label
        for pair, label in zip(comparison.pairs, comparison.labels(), strict=True)
        if isinstance(pair, Question)
    }
    if not asked:
        st.info(
            "Schedules changed by hand keep their number of micro-batches. Add a scheduler to see a curve.",
            icon=":material/show_chart:",
        )
        return
    # Sorted, so that reordering the rows of the list does not start a new sweep.
    sweep = CountSweep(tuple(sorted(asked, key=lambda pair: (pair.plan.name, pair.scheduler, str(pair.config)))))
    st.caption(
        "Each point is built or searched for its own number of micro-batches. Nothing is extrapolated. "
        "Hollow points do not fit in memory."
    )

    def draw(points: Sequence[Any]) -> None:
        lines = list(zip(asked.values(), lines_of(tuple(asked), points), strict=True))
        unit, per_sample = comparison.pairs[0].plan.time_unit, comparison.per_sample
        picture(count_curves(lines, unit, per_sample=per_sample), "compare-counts")

    st.fragment(_sweep)(sweep, sweep.points, draw)


def against_memory() -> None:
    """Show the least period of one plan at every memory capacity in a range."""
    comparison = workspace().comparison
    plans, per_sample = {pair.plan.name: pair.plan for pair in comparison.pairs}, comparison.per_sample
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox("Plan", list(plans), key="compare-memory-plan")
        plan = plans[name]
        reach = _reach(plan)
        label = f"Capacity of every device ({reach.unit})"
        key = f"compare-reach-{name}"
        chosen = st.slider(label, *reach.shown, reach.shown, key=key, format="%.4g", step=reach.step)
        points = st.number_input("Points", 2, 64, _POINTS, key="compare-points", width=110)
        with st.popover("Options", icon=":material/tune:"):
            config = config_form(_MEMORY_CONFIG, "compare-memory-option", without=("polish",))
    each = "sample" if per_sample else "micro-batch"
    st.caption(f"Least period per {each} that a search finds, largest memory first. Each point gets the time limit.")
    sweep = MemorySweep(plan, reach.spread(chosen, points), config)

    def draw(points: Sequence[Any]) -> None:
        picture(memory_curve(latest_points(points), plan, per_sample=per_sample), "compare-memory-curve")

    st.fragment(_sweep)(sweep, len(sweep.capacities), draw)


@lru_cache(maxsize=64)
def _reach(plan: MicroBatchPlan) -> CapacityRange:
    return CapacityRange.of(plan, Control())


def _sweep(sweep: Solvable[Any], points: int, draw: Draw) -> None:
    """Show the button that starts a sweep, then its points so far and a button to stop it, then all points.

    Empty axes are drawn at once, because the browser needs longer to load plotly than the first points take.
    """
    run, place = answer(sweep), st.empty()
    if (run is None or (not run.running and run.control.cancelled)) and button(
        "Compute the curve", place=place, type="primary", icon=":material/show_chart:"
    ):
        place.empty()
        run = start_search(sweep)
        run.wait_for_part(_FIRST_POINTS_S)
    if run is None or (not run.running and run.control.cancelled):
        draw(() if run is None else run.parts)
    else:
        watch_parts(run, points, "points", draw)
