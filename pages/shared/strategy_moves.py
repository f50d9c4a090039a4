"""Ways on from a configuration of a sweep: to its program, to a schedule, to a comparison, to a file."""

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
    """The buttons beside a configuration; one that cannot be pressed says why."""
    strategy, tab = swept(asked).configurations[number].strategy, session()
    tab.of(ProgramState).strategy = looked_at(asked, number)
    plan = _plan(asked, number)
    if button("Program", icon=":material/code:", help="Its operations, rank by rank, beside when they run."):
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


_OPEN = "Its stages as blocks, with the times and the memory that were simulated, to be scheduled in any order."
_TEXT = "Its program as text, a line an operation; `tessel simulate` and the page Program read it."
_COMPARE = "Its stages as blocks, on one axis with other schedules on the page Compare."


@lru_cache(maxsize=8)
def looked_at(asked: Asked, number: int) -> Looked:
    """The configuration as the Program page shows it."""
    known, each = simulated(asked, number), swept(asked).configurations[number]
    title, by_mesh = f"{known.program.name} D/H/P/K {each.strategy}", asked.semantics is Semantics.DEFAULT
    return Looked(title, known.trace, asked.devices, by_mesh, each.spec.batch, ranks=known.ranks)


def looked_before() -> Looked | None:
    """The configuration that Strategies shows, also after a reload; None where it shows none at once."""
    tab, asked = session(), asked_before()
    number = None if asked is None else tab.of(StrategyState).look_at(swept(asked))
    if asked is None or number is None or not swept(asked).outcomes[number].peaks:
        return None
    if quick_to_simulate(asked, number):
        tab.of(ProgramState).strategy = looked_at(asked, number)
    return tab.of(ProgramState).strategy


@lru_cache(maxsize=32)
def _plan(asked: Asked, number: int) -> MicroBatchPlan | str:
    """The plan of its pipeline, or why there is none."""
    strategy = swept(asked).configurations[number].strategy
    try:
        return pipeline_plan(simulated(asked, number), strategy, asked.devices)
    except InputError as error:
        return str(error)
