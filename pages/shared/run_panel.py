"""Start, watch and cancel searches, and find their answers by question."""

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
from tessel_core.units import share, show_gap, show_time
from tessel_core.workbench import jobs
from tessel_core.workbench.answers import recall, solve_and_keep
from tessel_core.workbench.jobs import Run
from tessel_core.workbench.store import find_store
from tessel_core.workbench.workspace import Workspace

Result_co = TypeVar("Result_co", covariant=True)
Asked = TypeVar("Asked", bound="Solvable[Any]")

_POLL_S = 0.4
_SHOWN_AT_ONCE_S, _SHOWN_IN_TURN_S = 0.6, 0.3
"""Time to wait for a single search, and for one of several, before a progress panel appears. This avoids flicker."""


@dataclass
class Looks:
    """Searches of this tab."""

    running: set[Run[Any]] = field(default_factory=set)
    """Searches that were running when this run of the page checked them."""
    begun: Run[Any] | None = None
    """Search that this tab started last."""


def begin_to_look() -> None:
    """Forget the searches that earlier runs of the page checked. Call this at the beginning of a page."""
    session().of(Looks).running.clear()


def ended_meanwhile() -> bool:
    """Return, at the end of a page, whether a search has ended since the page checked it."""
    return any(not run.running for run in session().of(Looks).running)


def search(question: Question) -> Run[ScheduleReport]:
    """Search for the workspace. Return the run: a new one, a running one, or a finished one that cannot be improved."""
    session().change(workspace().searching(question))
    run = answer(question)
    if run is None or run.result is None or not question.settled_by(run.result):
        run = start_search(question)
        run.wait(_SHOWN_AT_ONCE_S)
    return run


class Solvable(Protocol, Generic[Result_co]):
    """A question that serves as its own key. Equal questions have equal answers."""

    def solve(self, control: Control) -> Result_co:
        """Return the answer."""

    def __hash__(self) -> int: ...


def start_search(question: Solvable[Result_co]) -> Run[Result_co]:
    """Start or join the run of a question. It continues as long as this browser tab is connected.

    The result of a schedule search is stored. Questions that differ only in their objective share a run.
    """
    run = jobs.submit(_known_by(question), _keeping(question) if isinstance(question, Question) else question.solve)
    present, looks = _presence(_session_id()), session().of(Looks)
    if hosted() and looks.begun is not None and looks.begun is not run:
        looks.begun.leave(present)  # a visitor gets one search at a time; other visitors may watch the same run
    looks.begun = run
    run.watch(present)
    return run


def answer(question: Solvable[Result_co] | None) -> Run[Result_co] | None:
    """Return the run for a question, and watch it, or a finished run with the stored answer. None if there is neither.

    The report of a schedule search may be for another objective than the question. `report_of` converts it.
    """
    if question is None:
        return None
    run = jobs.find(_known_by(question)) or (_recalled(question) if isinstance(question, Question) else None)
    if run is not None and run.running:
        run.watch(_presence(_session_id()))
        session().of(Looks).running.add(run)
    return run


def report_of(question: Pair, run: Run[ScheduleReport]) -> ScheduleReport | None:
    """Return the report of a run, for the objective of the question. None if there is none yet."""
    return None if run.result is None else question.answered_by(run.result)


def latest(work: Workspace) -> tuple[Question, Run[ScheduleReport]] | None:
    """Return the workspace's question, or else its last searched one, with its run. None if neither has a run."""
    for question in (work.question, work.asked):
        run = answer(question)
        if question is not None and run is not None:
            return question, run
    return None


def latest_report(work: Workspace) -> ScheduleReport | None:
    """Return the report that the Schedule page shows: the opened schedule, or else the latest answer."""
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
    """Call `line` beside a Cancel button, and `below` under it, every 0.4 s until the run ends. Then rerun the page."""
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


def watch_parts(run: Run[Any], count: int, what: str, draw: Callable[[tuple[Any, ...]], object]) -> None:
    """Draw the parts of a search so far under a bar of how many of `count` there are, and all of them at its end."""

    def bar() -> None:
        done = len(run.parts)
        st.progress(share(done, count), f"{done} of {count} {what}, {run.elapsed_s:.0f} s")

    if run.running:
        watch(run, bar, lambda: draw(run.parts))
    elif run.complaint:
        st.error(literal(run.complaint), icon=":material/error:")
    else:
        draw(run.parts)


def watch_named(run: Run[Any], name: str) -> None:
    """Watch a run with a line that shows its name, its elapsed time and its gap."""

    def line() -> None:
        news = run.progress
        gap = "" if news is None or news.gap is None else f", gap {show_gap(news.gap)}"
        st.markdown(f":material/hourglass_top: {literal(name)}: {run.elapsed_s:.1f} s{gap}")

    watch(run, line)


def run_panel(run: Run[Any], time_unit: str, found: Callable[[], object] | None = None) -> None:
    """Show the progress of a running search, with a button to cancel it.

    `found` draws the results so far, instead of the curve of the gap.
    """

    def numbers() -> None:
        for place, (label, value) in zip(st.columns([2, 2, 2, 1, 1]), _news(run, time_unit), strict=True):
            place.metric(label, value)

    def curve() -> None:
        from tessel_core.charts.progress import gap_curve  # late: drawn only while waiting

        picture(gap_curve(run.history, time_unit, run.elapsed_s), "gap")

    watch(run, numbers, found or curve)


def unanswered(questions: Iterable[Asked]) -> list[Asked]:
    """Return the questions that have no answer yet, including those being searched."""
    return [each for each in questions if (run := answer(each)) is None or run.running]


def search_in_turn(
    shown_open: Collection[Asked], named: Callable[[Asked], str], soon: Callable[[Asked], bool] = lambda question: False
) -> None:
    """Search the questions that the page shows without an answer, one at a time, and show the progress.

    Running searches come first, then those that are answered `soon`. If a search has ended since the page checked it,
    the page runs again.
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
    """Return a function that says whether a browser tab is still connected. A hidden tab is."""
    return lambda: runtime.exists() and runtime.get_instance().is_active_session(session_id)
