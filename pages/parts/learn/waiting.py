"""What a page of the course waits for: solved before it is shown, with the way to stop it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pages.shared.run_panel import Solvable, answer, start_search, watch
from pages.shared.widgets import complain
from tessel_core.workbench.jobs import Run

Result = TypeVar("Result")


def result_of(question: Solvable[Result], wait_s: float) -> tuple[Run[Result], Result | None]:
    """The run that answers a question, begun where nobody has asked it yet, and its result, None until it is there."""
    run = answer(question) or start_search(question)
    run.wait(wait_s)
    return run, run.result


def waiting(run: Run[Result], line: Callable[[], object]) -> None:
    """In the place of a result that is not there: how far it is, or why there is none."""
    if run.running:
        watch(run, line)
    else:
        complain(run.complaint or "this was stopped before anything was found: reload to try again")
