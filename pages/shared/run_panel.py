"""Searches: asked, watched while they run, cancelled, and their answers found again by question."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from pages.shared.session import session, workspace
from pages.shared.widgets import button, literal, picture
from tessel_core.control import Control, Progress
from tessel_core.hosting import hosted
from tessel_core.model import ScheduleReport
from tessel_core.scheduling import Question
from tessel_core.scheduling.comparison import Pair
from tessel_core.units import show_gap, show_time
from tessel_core.workbench import jobs
from tessel_core.workbench.answers import recall, solve_and_keep
from tessel_core.workbench.jobs import Run
from tessel_core.workbench.store import find_store
from tessel_core.workbench.workspace import Workspace

Result_co = TypeVar("Result_co", covariant=True)
Asked = TypeVar("Asked", bound="Solvable[Any]")

_POLL_S = 0.4
_SHOWN_AT_ONCE_S, _SHOWN_IN_TURN_S = 0.6, 0.3
"""Searches that end within this, alone and as one of several, are shown without a panel in between: no flicker."""


@dataclass
class Looks:
    """The searches that were running when the page looked at them."""

    running: set[Run[Any]] = field(default_factory=set)
    begun: Run[Any] | None = None
    """The search that this tab began last."""


def begin_to_look() -> None:
    """At the beginning of a page: forget what it saw in earlier runs."""
    session().of(Looks).running.clear()


def ended_meanwhile() -> bool:
    """At the end of a page: whether it may show as running what has ended since, and what nothing watches."""
    return any(not run.running for run in session().of(Looks).running)


def search(question: Question) -> Run[ScheduleReport]:
    """The run of a search for the workspace: started, joined, or as it is known where nothing is left to find."""
    session().change(workspace().searching(question))
    run = answer(question)
    if run is None or run.result is None or not question.settled_by(run.result):
        run = start_search(question)
        run.wait(_SHOWN_AT_ONCE_S)
    return run


class Solvable(Protocol, Generic[Result_co]):
    """A question that is its own key: equal ones have equal answers."""

    def solve(self, control: Control) -> Result_co:
        """The answer."""

    def __hash__(self) -> int: ...


def start_search(question: Solvable[Result_co]) -> Run[Result_co]:
    """The run of this question, started or joined, that goes on while this browser tab is there.

    The result of a schedule search is kept.  Questions of one search share their run.
    """
    run = jobs.submit(_known_by(question), _keeping(question) if isinstance(question, Question) else question.solve)
    present, looks = _presence(_session_id()), session().of(Looks)
    if hosted() and looks.begun is not None and looks.begun is not run:
        looks.begun.leave(present)  # a visitor has one search at a time; others may watch the same one
    looks.begun = run
    run.watch(present)
    return run


def answer(question: Solvable[Result_co] | None) -> Run[Result_co] | None:
    """The run that answers this question, watched from now on, or its stored answer; None where neither is.

    The report of a schedule search may speak of another objective than the question: `report_of` puts that right.
    """
    if question is None:
        return None
    run = jobs.find(_known_by(question)) or (_recalled(question) if isinstance(question, Question) else None)
    if run is not None and run.running:
        run.watch(_presence(_session_id()))
        session().of(Looks).running.add(run)
    return run


def report_of(question: Pair, run: Run[ScheduleReport]) -> ScheduleReport | None:
    """The report of the run, for the objective of the question; None while there is none."""
    return None if run.result is None else question.answered_by(run.result)


def latest(work: Workspace) -> tuple[Question, Run[ScheduleReport]] | None:
    """The workspace's question with its run, else its last search with that one's; None where neither has a run."""
    for question in (work.question, work.asked):
        run = answer(question)
        if question is not None and run is not None:
            return question, run
    return None


def latest_report(work: Workspace) -> ScheduleReport | None:
    """The report on the Schedule page: the schedule that was opened, until something is searched, else the answer."""
    found = None if work.shown else latest(work)
    report = None if found is None else report_of(*found)
    return report or work.opened


def _known_by(question: Solvable[Any]) -> Solvable[Any]:
    return question.search if isinstance(question, Question) else question


def _keeping(question: Question) -> Callable[[Control], ScheduleReport]:
    answers = find_store().answers
    return lambda control: solve_and_keep(question, control, answers)


def _recalled(question: Question) -> Run[ScheduleReport] | None:
    report = recall(question, find_store().answers)
    if report is None:
        return None
    run = jobs.submit(question.search, lambda control: report)
    run.wait()
    return run


def watch(run: Run[Any], line: Callable[[], object], below: Callable[[], object] | None = None) -> None:
    """A `line` about a running search with the way to stop it, and what is `below`, twice a second until it ends."""
    st.fragment(_watched, run_every=_POLL_S)(run, line, below)


def _watched(run: Run[Any], line: Callable[[], object], below: Callable[[], object] | None) -> None:
    if not run.running:
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        with st.container():
            line()
        look: dict[str, Any] = {"icon": ":material/stop_circle:", "key": f"cancel-{id(run)}"}
        pressed = button("Cancel", disabled=run.control.cancelled, **look)
    if pressed:
        run.cancel()
        run.wait(1.0)
        st.rerun()
    if below is not None:
        below()


def watch_named(run: Run[Any], name: str) -> None:
    """As `watch`, with a line of its name, its time and its gap."""

    def line() -> None:
        news = run.progress
        gap = "" if news is None or news.gap is None else f", gap {show_gap(news.gap)}"
        st.markdown(f":material/hourglass_top: {literal(name)}: {run.elapsed_s:.1f} s{gap}")

    watch(run, line)


def run_panel(run: Run[Any], time_unit: str, found: Callable[[], object] | None = None) -> None:
    """The progress of a running search, and the way to stop it.

    `found` draws what has been delivered, in the place of the curve of the gap.
    """

    def numbers() -> None:
        for place, (label, value) in zip(st.columns([2, 2, 2, 1, 1]), _news(run, time_unit), strict=True):
            place.metric(label, value)

    def curve() -> None:
        from tessel_core.charts.progress import gap_curve  # late: no page but one that waits draws it

        picture(gap_curve(run.history, time_unit, run.elapsed_s), "gap")

    watch(run, numbers, found or curve)


def unanswered(questions: Iterable[Asked]) -> list[Asked]:
    """Those that are still to be searched, or are searched now."""
    return [each for each in questions if (run := answer(each)) is None or run.running]


def search_in_turn(
    shown_open: Collection[Asked], named: Callable[[Asked], str], soon: Callable[[Asked], bool] = lambda question: False
) -> None:
    """Search what the page shows as unanswered one after the other, so that none slows another down, and show how far.

    What runs already comes first, then what is answered `soon`.  The page runs again where one has ended since it
    looked.
    """
    waiting = [(each, answer(each)) for each in unanswered(shown_open)]
    until, ended = time.monotonic() + _SHOWN_IN_TURN_S, len(waiting) < len(shown_open)
    for question, begun in sorted(waiting, key=lambda each: (each[1] is None, not soon(each[0]))):
        at_work, name = begun or start_search(question), named(question)
        if not at_work.wait(max(0.0, until - time.monotonic())):
            break
        ended = True
    if ended:
        st.rerun()
    if not waiting:
        return

    watch_named(at_work, name)


def _news(run: Run[Any], time_unit: str) -> list[tuple[str, str]]:
    news = run.progress or Progress(0.0, "preparing", None, None)
    best, bound = (None if each is None else show_time(float(each), time_unit) for each in (news.objective, news.bound))
    return [
        ("Phase", news.phase),
        ("Best so far", best or "…"),
        ("Bound", bound or "…"),
        ("Gap", "…" if news.gap is None else show_gap(news.gap)),
        ("Elapsed", f"{run.elapsed_s:.1f} s"),
    ]


def _session_id() -> str:
    context = get_script_run_ctx()
    return context.session_id if context is not None else ""


@lru_cache(maxsize=256)
def _presence(session_id: str) -> Callable[[], bool]:
    """Whether that browser tab is still connected; a hidden tab is, though its timers sleep."""
    return lambda: runtime.exists() and runtime.get_instance().is_active_session(session_id)
