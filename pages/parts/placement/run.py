"""Searches for a placement: asked, watched, and their answers taken over when they come."""

from __future__ import annotations

from dataclasses import replace

from pages.parts.placement.state import PlacementState
from pages.shared.run_panel import answer, start_search
from pages.shared.session import session, workspace
from tessel_core.errors import InputError
from tessel_core.model import PlacementReport
from tessel_core.placement import PlacementQuestion
from tessel_core.workbench.jobs import Run

_SHOWN_AT_ONCE_S = 0.6


def search_placement() -> None:
    """Ask the present question; what it brings is taken over by `take_answer`."""
    question = workspace().placing.question
    session().of(PlacementState).awaited = question
    start_search(question).wait(_SHOWN_AT_ONCE_S)


def running() -> Run[PlacementReport] | None:
    """The run of the present question while it is under way, by whichever tab; None otherwise."""
    found = answer(workspace().placing.question)
    return found if found is not None and found.running else None


def take_answer() -> None:
    """Move the operators where the awaited answer has them, if it is there and still answers what is asked."""
    tab, question = session(), _question()
    if question is None:
        return
    run = answer(question)
    if run is not None and run.running:
        tab.of(PlacementState).awaited = question
    elif run is not None and tab.of(PlacementState).awaited == question:
        tab.of(PlacementState).awaited = None
        if run.result is None:
            tab.told, tab.again = f"{run.complaint[0].upper()}{run.complaint[1:]}.", True
            return
        placing = workspace().placing.answered(run.result)
        tab.change(replace(workspace(), placing=placing))
        tab.begin_again()


def _question() -> PlacementQuestion | None:
    try:
        return workspace().placing.question
    except InputError:
        return None
