"""The interactive timeline as a Streamlit component. Its script and style are files in this folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from pages.shared.session import session, unbroken
from pages.shared.timeline.state import TimelineState
from pages.shared.widgets import literal, trigger_value
from tessel_core.charts.timeline import Look, Titled, timeline_data, timeline_frames, timeline_height
from tessel_core.charts.timeline_script import SMALLER, text_of, timeline_module
from tessel_core.editing.plan import stages
from tessel_core.model import DeviceMesh, MicroBatchPlan, Schedule
from tessel_core.workbench.messages.timeline import About, Finding, about, find_place

if TYPE_CHECKING:  # pages that show only schedules load no simulation
    from tessel_core.charts.run_timeline import Laid
    from tessel_core.simulation import Trace

WAITING = (
    '<div class="timeline" data-testid="timeline"><p class="waiting">'
    "The timeline could not be loaded in this browser. Choose Picture to see a schedule.</p></div>"
)
_PICTURE = ", so a picture is shown"
_TRACE_INSTEAD = ". The button Trace on the page Program saves it for ui.perfetto.dev"


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
"""The timeline without tools and details. It keeps its legend."""

_SAID = st.components.v2.component("tessel_timeline_said", js=text_of("said.mjs"))


Drawn = tuple[bytes, tuple[str, ...]]
"""Data for the browser, and the digest of each schedule."""
Answer = Callable[[TimelineState], tuple[About, Finding | None]]
"""Returns the text about the selected place, and the result of the user's search."""
Change = Callable[[Mapping[str, object]], None]
"""Callback for a change by hand, in the form that the browser sends."""


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
    """Show schedules below each other on one time axis, with details of the selected place.

    Changes by hand, if `look` allows them, are passed to `change` before the page runs.

    Return False if this browser cannot draw the timeline. A caption then says so, followed by `instead`. With the same
    key and schedules the component is not sent again. The browser itself writes zoom and selection into the address,
    because the server would do that too late.
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
    """Show schedules without tools and details, and outside the address. Those with numbers in `past` are pale."""
    return _timeline(_schedules(shown, memory, Look(quiet=True, past=frozenset(past))), key)


def plan_timeline(plan: MicroBatchPlan, alone: Schedule, key: str, change: Change | None) -> None:
    """Show one micro-batch `alone`. Its blocks and capacities can be dragged, and `change` is called after a drop."""
    by_stage = {b: number for number, stage in enumerate(stages(plan)) for b in stage}
    look = None if change is None else Look(stages=tuple(by_stage[b] for b in range(len(plan.blocks))))
    timeline((("", alone),), key, look=look, change=change, instead="")


def placement_timeline(data: bytes, key: str, change: Change) -> None:
    """Show a placement as lanes. `change` is called when something is dropped on another device."""
    _timeline(_drawn(data), key, change=change, instead="")


def trace_timeline(trace: Trace, mesh: DeviceMesh | None, key: str, *, by_mesh: bool = True, wanted: str = "") -> None:
    """Show a simulation as a timeline. `wanted` is a place to select each time that it changes.

    Pass `by_mesh=False` if the times do not come from the cost model of the mesh. If only the host runs operations, or
    the browser cannot draw, a caption is shown instead.
    """
    if not trace.devices:
        st.caption("All operations run on the host, so there are no device lanes.")
        return
    from tessel_core.workbench.messages.operation import about_operation

    def answer(state: TimelineState) -> tuple[About, Finding | None]:
        return about_operation(trace, state.selected, mesh if by_mesh else None), None

    _timeline(_simulation(trace, mesh), key, answer, wanted, instead=_TRACE_INSTEAD)


def run_timeline(shown: tuple[Laid, ...], key: str, tell: Callable[[int, str], About] | None) -> None:
    """Show runs of a schedule below each other on one axis of real time.

    `tell` returns the text about a place in one of them. Without it, tools and details are left out.
    """

    def answer(state: TimelineState) -> tuple[About, Finding | None]:
        assert tell is not None
        return tell(state.on, state.selected), None

    _timeline(_runs(shown), key, None if tell is None else answer, instead="")


def selected_in(key: str) -> str:
    """Return the place that is selected in the timeline with this key. Empty if none is."""
    return str(trigger_value(key, "look").get("at") or "")


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
            st.rerun()  # to draw the page without the timeline
        if answer is not None:
            look = reported.get("look") or {}
            if look.get("of") in digests:  # Streamlit may still return a message about the previous schedule
                state.seen(look)
            known, found = answer(state)
            _say(state, known, found, f"{digests[0]} {wanted}" if wanted else "")
    if state.failed:
        st.caption(literal(f"This browser cannot draw the timeline{instead}. {state.failed}"))
    return not state.failed


def _say(state: TimelineState, known: About, found: Finding | None, wanted: str) -> None:
    """Send the text about the selected place to the timeline.

    The message names its place. If the user has selected another place before it arrives, the timeline ignores it.
    """
    answer = {"asked": state.asked, "place": found.place, "complaint": found.complaint} if found else None
    about_it: dict[str, object] = {"of": state.of, "at": state.selected, "lines": known.lines}
    about_it |= {"chain": known.chain, "after": known.after}
    _SAID(key="timeline-said", data={**about_it, "found": answer, "wanted": wanted})


@unbroken
def _edited(key: str, digests: tuple[str, ...], change: Change) -> None:
    """Pass a change on. This is a callback, so it runs before the page, and the page needs to run only once."""
    asked = trigger_value(key, "edit")
    if asked.get("of") in digests:
        change(asked)


def _nothing() -> None:
    """Do nothing. Streamlit reports only values that have a callback."""
