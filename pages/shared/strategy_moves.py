"""Buttons that take a configuration of a sweep to its program, a schedule, a comparison, or a file."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from pages.shared.comparing import add_to_compare
from pages.shared.contents import go_to
from pages.shared.program_state import STRATEGY, Looked, ProgramState
from pages.shared.session import session, workspace
from pages.shared.strategies import Asked, asked_before, quick_to_simulate, simulated, swept
from pages.shared.strategy_state import StrategyState
from pages.shared.widgets import button, download, literal
from tessel_core.errors import InputError
from tessel_core.ir.text import program_text
from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling import Question, find_scheduler
from tessel_core.strategies.pipeline_plan import pipeline_plan
from tessel_core.strategies.strategy import Semantics, Simulated


def strategy_moves(asked: Asked, number: int, known: Simulated) -> None:
    """Show the buttons beside a configuration. The tooltip of a disabled button says why."""
    strategy, tab = swept(asked).configurations[number].strategy, session()
    tab.of(ProgramState).strategy = looked_at(asked, number)
    plan = _plan(asked, number)
    if button("Program", icon=":material/code:", help="Show the operations of each rank and their simulated times."):
        tab.of(ProgramState).show(STRATEGY)
        go_to("program")
    objection = literal(f"Not possible: {plan}.") if isinstance(plan, str) else ""
    off, config = bool(objection), find_scheduler(strategy.schedule).config()
    open_it = button("Open in Schedule", icon=":material/view_timeline:", help=objection or _OPEN, disabled=off)
    if isinstance(plan, MicroBatchPlan):
        add_to_compare(Question(strategy.schedule, plan, strategy.micro_batches, config), _COMPARE)
    else:
        st.button("Add to Compare", icon=":material/compare_arrows:", help=objection, disabled=True)
    if isinstance(plan, MicroBatchPlan) and open_it:
        tab.open_plan(plan, "a strategy")
        tab.change(workspace().asking(strategy.schedule, strategy.micro_batches, config))
        go_to("schedule")
    download(
        "Text", lambda: program_text(known.program).encode(), f"{known.program.name}.txt", "text/plain", help=_TEXT
    )


_OPEN = "Open a plan with one block per stage, with simulated times and memory, to search other schedules."
_TEXT = "Download the program as text, one line per operation, for `tessel simulate` and the page Program."
_COMPARE = "Compare the plan of its stages with other schedules on one time axis."


@lru_cache(maxsize=8)
def looked_at(asked: Asked, number: int) -> Looked:
    """Return the configuration for the Program page."""
    known, each = simulated(asked, number), swept(asked).configurations[number]
    title, by_mesh = f"{known.program.name} D/H/P/K {each.strategy}", asked.semantics is Semantics.DEFAULT
    return Looked(title, known.trace, asked.devices, by_mesh, each.spec.batch, ranks=known.ranks)


def looked_before() -> Looked | None:
    """Return the configuration that Strategies shows, also after a reload. None if it has not simulated one."""
    tab, asked = session(), asked_before()
    number = None if asked is None else tab.of(StrategyState).look_at(swept(asked))
    if asked is None or number is None or not swept(asked).outcomes[number].peaks:
        return None
    if quick_to_simulate(asked, number):
        tab.of(ProgramState).strategy = looked_at(asked, number)
    return tab.of(ProgramState).strategy


@lru_cache(maxsize=32)
def _plan(asked: Asked, number: int) -> MicroBatchPlan | str:
    """Return the plan of the configuration's pipeline, or why there is none."""
    strategy = swept(asked).configurations[number].strategy
    try:
        return pipeline_plan(simulated(asked, number), strategy, asked.devices)
    except InputError as error:
        return str(error)
