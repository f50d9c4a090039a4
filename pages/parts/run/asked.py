"""Form of a run, the run in progress, and the run that is shown."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar

import streamlit as st

from pages.shared.run_panel import answer, start_search
from pages.shared.session import session, workspace
from pages.shared.widgets import choose, config_form, form, form_button, labelled, literal
from tessel_core.errors import InputError
from tessel_core.execution.schedule_run import BLOCKS, TOY, RunConfig, check_runnable
from tessel_core.hosting import hosted
from tessel_core.model import Schedule, ScheduleReport
from tessel_core.torch_extra import why_no_torch
from tessel_core.workbench.jobs import Run
from tessel_core.workbench.running import MAX_KEPT, RunQuestion, RunReport

_MAX_BLOCK_RUNS = 20_000
"""Largest schedule, in runs of blocks, that this page executes."""
_MAX_REMEMBERED = 200
"""Number of workspaces whose latest run is remembered, so that a reloaded tab finds it."""
_from_kept = lru_cache(maxsize=4)(RunReport.of)


@dataclass
class RunState:
    """Options and latest run of this tab for the open workspace."""

    question: RunQuestion | None = None
    number: int = 0
    """Number of runs so far. It makes each question new, so that the same schedule can run again."""
    report: RunReport | None = None
    """Result of the latest run that ended."""
    complaint: str = ""
    """Reason why the latest run failed. Empty if it did not fail."""
    config: RunConfig = field(default_factory=RunConfig)
    measure: bool = True
    adopted: bool = False
    """Whether this tab has already looked for a run that was in progress before a reload."""
    of_workspace: ClassVar[bool] = True


def run_form(report: ScheduleReport, schedule: Schedule) -> None:
    """Show the options of a run and the button that starts it."""
    state = session().of(RunState)
    with form("run"):
        places = st.columns([4, 3, 2, 2], vertical_alignment="bottom")
        with labelled(places[0]):
            kinds = {name: f"{words[0].upper()}{words[1:]}" for name, words in BLOCKS.items()}
            blocks = choose("Blocks", kinds, state.config.blocks, key=session().key("run-blocks"), help=_BLOCKS)
        with places[1]:
            key = session().key("run-measure")
            state.measure = st.toggle("Predict from a first run", state.measure, key=key, help=_MEASURE)
        with places[2].popover("Options", icon=":material/tune:", width="stretch"):
            left_out = ("blocks", "scale") if blocks == TOY else ("blocks", "width", "samples", "dtype", "tolerance")
            config = replace(state.config, blocks=blocks)
            state.config = config_form(config, session().key(f"run-options-{blocks == TOY}"), without=left_out)
        hang = workspace().hang_of(report)
        objection = why_not(schedule, state.config) or (hang.sentence if hang else "")
        pressed = form_button("Run", "play_arrow", places[3], disabled=bool(objection), key=session().key("run"))
        if objection:
            st.warning(literal(f"{objection}."), icon=":material/block:")
    if pressed and not objection:  # a browser can send the press of a disabled button
        state.number, state.complaint = state.number + 1, ""
        state.question = RunQuestion(schedule, state.config, state.measure, state.number)
        start_search(state.question)
        _remember(state.question)
        st.rerun()


@lru_cache(maxsize=1)
def _begun() -> dict[str, RunQuestion]:
    """Return the latest question for each workspace or unchanged sample, until its answer is taken."""
    return {}


def _remember(question: RunQuestion) -> None:
    begun, place = _begun(), _place()
    begun.pop(place, None)
    begun[place] = question
    for each in list(begun)[:-_MAX_REMEMBERED]:
        begun.pop(each, None)


def _place() -> str:
    work = workspace()
    return work.sample if session().kept is None and work.sample else work.token


_BLOCKS = (
    "A toy network computes real losses and gradients, which are compared with those of a single process. Stand-ins "
    "sleep or compute for the planned time and hold the planned memory. They test order and waiting for any plan."
)
_MEASURE = (
    "The schedule runs three times: once to warm up, once to measure blocks and links for the prediction, and once "
    "to compare with the prediction."
)


def why_not(schedule: Schedule, config: RunConfig) -> str:
    """Return why the schedule cannot run here, as a sentence without a full stop. Empty if it can."""
    if hosted():
        return "A hosted app starts no processes. You can still open recorded runs"
    if why := why_no_torch():
        return f"Running {why}. You can still open recorded runs"
    if len(schedule.start) > _MAX_BLOCK_RUNS:
        return (
            f"The schedule has {len(schedule.start):,} runs of blocks, and this page executes at most "
            f"{_MAX_BLOCK_RUNS:,}. Use tessel run in a terminal"
        )
    return _objection(schedule, config)


@lru_cache(maxsize=16)
def _objection(schedule: Schedule, config: RunConfig) -> str:
    try:
        check_runnable(schedule, config)
    except InputError as error:
        return str(error)
    return ""


def running() -> Run[RunReport] | None:
    """Return the run in progress, or None."""
    run = answer(session().of(RunState).question)
    return run if run is not None and run.running else None


def take_answer() -> None:
    """Take the result of a run that has ended, and save it with the workspace."""
    state = session().of(RunState)
    if not state.adopted:
        state.adopted, state.question = True, state.question or _begun().get(_place())
    run = answer(state.question)
    if run is None or run.running:
        return
    _begun().pop(_place(), None)
    state.question, state.complaint = None, "" if run.control.cancelled else run.complaint
    if run.result is not None:
        state.report, measured = run.result, run.result.run
        if len(measured.schedule.start) <= MAX_KEPT:
            session().change(replace(workspace(), ran=measured))


def shown() -> RunReport | None:
    """Return the run to show. This is the latest run of this tab, or else the run saved with the workspace."""
    kept = workspace().ran
    return session().of(RunState).report or (None if kept is None else _from_kept(kept))
