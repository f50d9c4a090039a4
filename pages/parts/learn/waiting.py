"""Wait for the searches that a level needs, with a button to stop them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pages.shared.run_panel import Solvable, answer, start_search, watch
from pages.shared.widgets import complain
from tessel_core.workbench.jobs import Run

Result = TypeVar("Result")


def result_of(question: Solvable[Result], wait_s: float) -> tuple[Run[Result], Result | None]:
    """Start or join the search for a question. Return the run and its result, None if it is not ready."""
    run = answer(question) or start_search(question)
    run.wait(wait_s)
    return run, run.result


def waiting(run: Run[Result], line: Callable[[], object]) -> None:
    """Show the progress of a run without a result, or why it ended without one."""
    if run.running:
        watch(run, line)
    else:
        complain(run.complaint or "the search was stopped before it found anything. Reload the page to try again")
