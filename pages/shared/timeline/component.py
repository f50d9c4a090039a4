"""The timeline that one can grab: a Streamlit component whose script and looks lie beside this file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from pages.shared.session import session, unbroken
from pages.shared.timeline.state import TimelineState
from pages.shared.widgets import literal
from tessel_core.charts.timeline import Look, Titled, timeline_data, timeline_frames, timeline_height
from tessel_core.charts.timeline_script import SMALLER, text_of, timeline_module
from tessel_core.editing.plan import stages
from tessel_core.model import DeviceMesh, MicroBatchPlan, Schedule
from tessel_core.workbench.messages.timeline import About, Finding, about, find_place

if TYPE_CHECKING:  # pages of schedules load no simulation
    from tessel_core.charts.run_timeline import Laid
    from tessel_core.simulation import Trace

WAITING = (
    '<div class="timeline" data-testid="timeline"><p class="waiting">'
    "The timeline could not be loaded in this browser. Choose Picture to see a schedule.</p></div>"
)
_PICTURE = ", so this is the picture"
_TRACE_INSTEAD = "; Trace on the page Program saves the same for ui.perfetto.dev"


STYLE = text_of("timeline.css")

_COMPONENT = st.components.v2.component(
    "tessel_timeline",
    html=WAITING,
    css=STYLE,
    js=timeline_module(),
)

_SMALL = st.components.v2.component(
    "tessel_timeline_small",
    html=WAITING,
    css=STYLE + SMALLER,
    js=timeline_module(),
)
"""The same without what stands over and under the lanes, but for the legend."""

_SAID = st.components.v2.component("tessel_timeline_said", js=text_of("said.mjs"))


Drawn = tuple[bytes, tuple[str, ...]]
"""What the browser gets, and the digest of each schedule."""
Answer = Callable[[TimelineState], tuple[About, Finding | None]]
"""What is known of the place that is selected, and where is what somebody looks for."""
Change = Callable[[Mapping[str, object]], None]
"""Takes what somebody asks for by hand, as the browser says it."""


@lru_cache(maxsize=16)
def _schedules(shown: tuple[Titled, ...], memory: bool, look: Look | None = None) -> Drawn:
    return _drawn(timeline_data(shown, memory=memory, look=look))


@lru_cache(maxsize=4)
def _simulation(trace: Trace, mesh: DeviceMesh | None) -> Drawn:
    from tessel_core.charts.trace_timeline import trace_data

    return _drawn(trace_data(trace, mesh))


@lru_cache(maxsize=4)
def _runs(shown: tuple[Laid, ...]) -> Drawn:
    from tessel_core.charts.run_timeline import run_data

    return _drawn(run_data(shown))


def _drawn(data: bytes) -> Drawn:
    return data, tuple(header["digest"] for header, _ in timeline_frames(data))


def timeline(
    shown: tuple[Titled, ...],
    key: str,
    *,
    memory: bool = True,
    look: Look | None = None,
    change: Change | None = None,
    instead: str = _PICTURE,
) -> bool:
    """Schedules under each other on one time axis, with what they answer about what is selected.

    What somebody changes by hand, where the `look` allows that, is handed to `change` before the page runs.

    False where this tab's browser cannot draw them, which a caption says then, and what there is `instead`.  The
    component stays as it is while key and schedules stay, and the browser already has what it was sent.  What is seen
    the browser writes into the address by itself, since from here it would come too late.
    """

    def answer(state: TimelineState) -> tuple[About, Finding | None]:
        if state.on >= len(shown):
            return About(), None
        schedule = shown[state.on][1]
        found = find_place(schedule, state.asked.partition(" ")[2]) if state.asked else None
        work = session().work
        written = None if work is None else work.written_as(schedule)
        return about(schedule, state.selected, () if written is None else written.waits), found

    return _timeline(_schedules(shown, memory, look), key, answer, change=change, instead=instead)


def small_timeline(shown: tuple[Titled, ...], key: str, *, memory: bool = False, past: Collection[int] = ()) -> bool:
    """As `timeline`, without tools, details and a place in the address; those of the `past` are pale."""
    return _timeline(_schedules(shown, memory, Look(quiet=True, past=frozenset(past))), key)


def plan_timeline(plan: MicroBatchPlan, alone: Schedule, key: str, change: Change | None) -> None:
    """As `timeline`, one micro-batch `alone`, whose blocks and capacities are dragged; a drop is a `change`."""
    by_stage = {b: number for number, stage in enumerate(stages(plan)) for b in stage}
    look = None if change is None else Look(stages=tuple(by_stage[b] for b in range(len(plan.blocks))))
    timeline((("", alone),), key, look=look, change=change, instead="")


def placement_timeline(data: bytes, key: str, change: Change) -> None:
    """A placement, as `small_timeline` shows a schedule; what is dropped on another device is a `change`."""
    _timeline(_drawn(data), key, change=change, instead="")


def trace_timeline(trace: Trace, mesh: DeviceMesh | None, key: str, *, by_mesh: bool = True, wanted: str = "") -> None:
    """A simulation, as `timeline` shows a schedule; `wanted` is a place to select, once each time that it changes.

    Not `by_mesh`: other costs than the mesh's made the times.  Of a program of the host alone, and where the browser
    cannot draw, a caption says why there is nothing.
    """
    if not trace.devices:
        st.caption("Everything runs on the host, so no device has a lane here.")
        return
    from tessel_core.workbench.messages.operation import about_operation

    def answer(state: TimelineState) -> tuple[About, Finding | None]:
        return about_operation(trace, state.selected, mesh if by_mesh else None), None

    _timeline(_simulation(trace, mesh), key, answer, wanted, instead=_TRACE_INSTEAD)


def run_timeline(shown: tuple[Laid, ...], key: str, tell: Callable[[int, str], About] | None) -> None:
    """Runs of a schedule under each other on one axis of real time, with what `tell` says of a place in one of them.

    Without that they are shown as `small_timeline` shows schedules.
    """

    def answer(state: TimelineState) -> tuple[About, Finding | None]:
        assert tell is not None
        return tell(state.on, state.selected), None

    _timeline(_runs(shown), key, None if tell is None else answer, instead="")


def selected_in(key: str) -> str:
    """The place that is selected in the timeline with this key, as it was told last; empty where none is."""
    look = (st.session_state.get(key) or {}).get("look") or {}
    return str(look.get("at") or "")


def _timeline(
    drawn: Drawn,
    key: str,
    answer: Answer | None = None,
    wanted: str = "",
    change: Change | None = None,
    instead: str = _PICTURE,
) -> bool:
    state, (data, digests) = session().of(TimelineState), drawn
    if answer is not None:
        state.about(digests)
    if not state.failed:
        shown, pixels = _SMALL if answer is None else _COMPONENT, timeline_height(data, tools=answer is not None)
        listened: dict[str, Any] = {f"on_{name}_change": _nothing for name in ("look", "failed")}
        if change is not None:
            listened["on_edit_change"] = partial(_edited, key, digests, change)
        reported = shown(key=key, data=data, height=pixels, **listened)
        state.failed = str(reported.get("failed") or "")
        if state.failed:
            st.rerun()  # without what could not be drawn
        if answer is not None:
            look = reported.get("look") or {}
            if look.get("of") in digests:  # Streamlit hands out what was told last, also of the schedule before
                state.seen(look)
            known, found = answer(state)
            _say(state, known, found, f"{digests[0]} {wanted}" if wanted else "")
    if state.failed:
        st.caption(literal(f"This browser cannot draw the timeline{instead}. {state.failed}"))
    return not state.failed


def _say(state: TimelineState, known: About, found: Finding | None, wanted: str) -> None:
    """Have the timeline show text about a place beside what it tells by itself.

    What the text is about is named in the timeline's own words; where something else is selected by the time that it
    arrives, it is not shown.
    """
    answer = {"asked": state.asked, "place": found.place, "complaint": found.complaint} if found else None
    about_it: dict[str, object] = {"of": state.of, "at": state.selected, "lines": known.lines}
    about_it |= {"chain": known.chain, "after": known.after}
    _SAID(key="timeline-said", data={**about_it, "found": answer, "wanted": wanted})


@unbroken
def _edited(key: str, digests: tuple[str, ...], change: Change) -> None:
    """Hand on a change before the page runs, so that it runs once."""
    asked = (st.session_state.get(key) or {}).get("edit") or {}
    if asked.get("of") in digests:
        change(asked)


def _nothing() -> None:
    """Streamlit hands on only what somebody listens to."""
