"""Puzzle level: the board, the coach, and the verdict on the player's schedule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import streamlit as st

from pages.parts.learn.board import board
from pages.parts.learn.levels import next_level, reach, result_of, waiting
from pages.shared.contents import go_to
from pages.shared.run_panel import answer, start_search
from pages.shared.session import session, unbroken, workspace
from pages.shared.timeline.component import timeline
from pages.shared.widgets import button, complaining, literal
from tessel_core.learning import Level, Puzzle
from tessel_core.learning.coach import Advice, Coaching, Placed, runs_kept
from tessel_core.learning.verdict import Judged, best_line, judge, schedule_of, target_of
from tessel_core.model import ScheduleReport, Status
from tessel_core.workbench.messages.schedule import verdict
from tessel_core.workbench.workspace import OWN

_WAITED_S = 0.6
_ASKS = "Place every run so that the last run ends as early as possible, within the memory of each device."


@dataclass
class CoachState:
    """State of the coach: the latest question to it."""

    asked: Coaching | None = None
    of_workspace: ClassVar[bool] = True


def play_puzzle(level: Level | None, puzzle: Puzzle) -> None:
    """Show the task, the board, and the verdict once all runs are placed."""
    name = OWN if level is None else level.name
    st.markdown(f"**{literal(_ASKS if level is None else level.asks)}**  \n:gray[{literal(puzzle.setting)}]")
    run, found = result_of(puzzle.question, _WAITED_S)
    best, play = None if found is None else puzzle.question.answered_by(found), workspace().play(name)
    if best is not None and best.status is Status.INFEASIBLE:
        st.error(literal(verdict(best, puzzle.plan)), icon=":material/block:")
        return
    advised, placed = _advice(puzzle), runs_kept(play.placed)
    board(
        name,
        puzzle,
        placed,
        target=None if best is None else target_of(puzzle, best),
        score="searching for the best …" if best is None else best_line(best),
        hints=() if level is None else level.hints,
        advice=advised,
        moved=moved,
        asked=partial(_ask, puzzle, 0 if best is None else best.makespan_bound),
    )
    if best is None:
        waiting(run, lambda: st.caption(f"Searching for the best schedule: {run.elapsed_s:.0f} s"))
        return
    with complaining():
        schedule = schedule_of(puzzle, placed)
        if schedule is not None:
            judged = judge(schedule, best, puzzle.order)
            reach(name, judged.reached)
            _verdict(level, puzzle, judged, best)


def _advice(puzzle: Puzzle) -> tuple[tuple[Placed, ...], Advice] | None:
    asked = session().of(CoachState).asked
    if asked is None or asked.plan != puzzle.plan or asked.micro_batches != puzzle.micro_batches:
        return None
    run = answer(asked)
    if run is None or run.result is None:
        return None
    return asked.placed, run.result


@unbroken
def moved(level: str, placed: tuple[Placed, ...], period: int | None) -> None:
    """Save the runs on a board."""
    session().change(workspace().playing(replace(workspace().play(level), placed=placed, chosen=period)))


def _ask(puzzle: Puzzle, least: int, level: str, placed: tuple[Placed, ...], period: int | None) -> None:
    """Ask the coach for a completion of the placed runs, and wait for it. This takes tenths of a second."""
    asked = Coaching(puzzle.plan, puzzle.micro_batches, placed, least)
    session().of(CoachState).asked = asked
    start_search(asked).wait(8.0)


def _verdict(level: Level | None, puzzle: Puzzle, judged: Judged, best: ScheduleReport) -> None:
    """Show how good the schedule is, and which published order it has.

    Draw it and the best schedule on one time axis.
    """
    say = st.success if judged.reached else st.info
    say(
        literal(f"{judged.sentence} {judged.recognised}"),
        icon=":material/verified:" if judged.reached else ":material/flag:",
    )
    if level is not None and judged.reached:
        st.markdown("  \n".join(map(literal, level.reasons())), help=level.source or None)
    schedule = judged.report.solution
    assert schedule is not None
    with st.container(horizontal=True):
        if level is not None:
            next_level(level)
        if button("Open in Schedule", icon=":material/view_timeline:"):
            where = "your plan" if level is None else f"level {level.number}"
            session().open_plan(puzzle.plan, f"placed by hand, {where}", opened=judged.report)
            go_to("schedule")
    shown = [("Yours", schedule)]
    if not judged.reached and best.solution is not None:
        shown.append(("Shortest found", best.solution))
    for question in puzzle.beside:
        _, found = result_of(question, _WAITED_S)
        if found is not None and found.drawable is not None:
            shown.append((question.title, found.drawable))
    timeline(tuple(shown), "learn-timeline")
