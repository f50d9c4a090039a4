"""Change a schedule by hand: drag and pin runs in the timeline, and let a search complete the rest."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import streamlit as st

from pages.parts.schedule.hand_mode import FINISH, FINISH_IN_ORDER, HandMode
from pages.shared.run_panel import answer, start_search, watch_named
from pages.shared.session import session, unbroken, workspace
from pages.shared.timeline.component import Change
from pages.shared.widgets import button
from tessel_core.charts.timeline import Look
from tessel_core.editing.asked import number_of
from tessel_core.editing.schedule import RunChange, pushed_left
from tessel_core.errors import InputError
from tessel_core.model import Schedule, ScheduleReport
from tessel_core.scheduling.finish import BY_HAND, Finish
from tessel_core.scheduling.reports import evaluate
from tessel_core.workbench.messages.by_hand import completed, effect, pinned
from tessel_core.workbench.workspace import ByHand, Pin

_MAX_RUNS = 50_000
"""Largest schedule, in runs of blocks, that can be changed by hand."""
_WAITED_S = 2.0
"""Seconds that the page waits for a completion before it shows a progress panel."""


@dataclass
class HandState:
    """Message about the latest change by hand, and the completion in progress."""

    verdict: str = ""
    refused: bool = False
    finishing: Finish | None = None
    of_workspace: ClassVar[bool] = True

    def says(self, verdict: str, *, refused: bool = False) -> None:
        """Set the message above the timeline."""
        self.verdict, self.refused = verdict, refused


def look_by_hand(report: ScheduleReport) -> tuple[Look | None, Change | None]:
    """Return settings and callback of the timeline while the schedule is changed by hand.

    Otherwise return None and None.
    """
    state, schedule = session().of(HandState), report.solution
    if not changes_by_hand() or schedule is None:
        return None, None
    pins = tuple((pin.block, pin.micro_batch) for pin in _by_hand().pins)
    return Look(changing=True, pins=pins, verdict=state.verdict, refused=state.refused), partial(_change, report)


def switch_by_hand(report: ScheduleReport) -> None:
    """Show the switch that turns changes by hand on and off."""
    schedule = report.solution
    about = "Drag runs in the timeline. Each drop is checked. Pin runs and let a search complete the rest."
    if schedule is None:
        about = "Only a schedule that fits in memory can be changed by hand."
    elif len(schedule.start) > _MAX_RUNS:
        about = f"Only a schedule with up to {_MAX_RUNS:,} runs can be changed by hand."
    key, off = session().key("by-hand"), not about.startswith("Drag")
    turn = partial(_turn, key)
    st.toggle("Change by hand", changes_by_hand() and not off, key=key, help=about, disabled=off, on_change=turn)


@unbroken
def _turn(key: str) -> None:
    mode = session().of(HandMode)
    mode.token, mode.switched = workspace().token if st.session_state[key] else "", True
    session().of(HandState).says("")


def by_hand_line() -> bool:
    """Show that the schedule was changed by hand, and a button back to the searched one. Return False if it was not.

    The progress of a completion is shown below, so that it does not move the timeline.
    """
    work = workspace()
    if work.by_hand is None:
        return False
    with st.container(horizontal=True, vertical_alignment="center"):
        pins = len(work.by_hand.pins)
        st.markdown(f":material/pan_tool: **Changed by hand** :gray[{f'· {pinned(pins)}' if pins else ''}]")
        if button("Back to the searched schedule", type="tertiary", icon=":material/arrow_back:"):
            session().change(replace(work, opened=None, by_hand=None))
            session().of(HandState).says("")
            st.rerun()
    run = answer(session().of(HandState).finishing)
    if run is not None and run.running:
        watch_named(run, "Completing the schedule")
    return True


def changes_by_hand() -> bool:
    """Return whether changes by hand are turned on."""
    return session().of(HandMode).on


def whole_if_switched() -> None:
    """Rerun the whole page, not only the timeline's fragment, after changes by hand were turned on or off."""
    mode = session().of(HandMode)
    if mode.switched:
        mode.switched = False
        st.rerun()


def finishing() -> bool:
    """Take the result of a completion that has ended. Return False while it runs, and if there is none."""
    state, mode, opened = session().of(HandState), session().of(HandMode), workspace().opened
    if mode.resumes and opened is not None:
        try:
            _finish(opened, by_order=mode.completes == FINISH_IN_ORDER)
        except InputError:  # The schedule has no pins any more.
            mode.completes = ""
    mode.resumes = False
    run = answer(state.finishing)
    if state.finishing is None or run is None or run.running:
        return False
    state.finishing, mode.completes, completion, was = None, "", run.result, opened
    if completion is None or was is None or was.solution is None:
        state.says(run.complaint or "the search found no schedule", refused=True)
        return True
    state.says(completed(was.solution, completion))
    session().change(workspace().changed_by_hand(completion.report))
    return True


def _by_hand() -> ByHand:
    return workspace().by_hand or ByHand()


def _change(report: ScheduleReport, asked: Mapping[str, object]) -> None:
    state, schedule = session().of(HandState), report.solution
    assert schedule is not None
    try:
        match asked.get("does"):
            case "place" | "swap":
                change = RunChange.of(asked)
                _made(report, change.made_to(schedule), change.runs)
            case "left":
                _made(report, pushed_left(schedule))
            case "pin":
                _pin(report, _runs(asked.get("runs")))
            case "finish":
                _finish(report, by_order=asked.get("by_order") is True)
    except InputError as error:
        state.says(str(error), refused=True)


def _made(report: ScheduleReport, schedule: Schedule, runs: Collection[tuple[int, int]] = ()) -> None:
    before = report.solution
    assert before is not None
    if (schedule.starts == before.starts).all():
        session().of(HandState).says("Nothing changed.")
        return
    found = evaluate(schedule, BY_HAND, bound=report.makespan_bound)
    pins = [(pin.block, pin.micro_batch) for pin in _by_hand().pins]
    session().of(HandState).says(effect(before, schedule, found.makespan_bound, runs, pins))
    session().change(workspace().changed_by_hand(found))


def _pin(report: ScheduleReport, runs: list[tuple[int, int]]) -> None:
    """Pin these runs, or unpin them if all of them are pinned."""
    there = report.solution
    assert there is not None
    blocks, micro_batches = len(there.plan.blocks), there.micro_batches
    known = set(_by_hand().pins)
    asked = {Pin(b, m) for b, m in runs if 0 <= b < blocks and 0 <= m < micro_batches}
    pins = known - asked if asked <= known else known | asked
    work = workspace()
    if work.by_hand is None:
        work = work.changed_by_hand(report)
    session().change(replace(work, by_hand=replace(_by_hand(), pins=tuple(sorted(pins)))))
    session().of(HandState).says(f"{len(pins):,} of {len(there.start):,} runs pinned")


def _finish(report: ScheduleReport, *, by_order: bool) -> None:
    schedule = report.solution
    assert schedule is not None
    state, mode = session().of(HandState), session().of(HandMode)
    pins = frozenset((pin.block, pin.micro_batch) for pin in _by_hand().pins)
    if not pins:
        raise InputError("pins", "no run is pinned. Pin the runs to keep, or press Search for a new schedule")
    state.finishing = Finish.of(schedule, pins, by_order=by_order, least=report.makespan_bound)
    mode.completes = FINISH_IN_ORDER if by_order else FINISH
    start_search(state.finishing).wait(_WAITED_S)


def _runs(asked: object) -> list[tuple[int, int]]:
    """Return the (block, micro-batch) pairs in a message from the browser."""
    found = asked if isinstance(asked, list) else []
    return [
        (number_of(b), number_of(m)) for b, m in (each for each in found if isinstance(each, list) and len(each) == 2)
    ]
