"""Where a configuration of a sweep goes from the page: to its program, to a schedule, to a comparison, to a file."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from pages.shared.comparing import add_pair
from pages.shared.program_tab import STRATEGY, Looked
from pages.shared.session import session, workspace
from pages.shared.strategies import Asked, mesh_named, simulated, swept
from pages.shared.uploads import SCHEDULE_PAGE
from pages.shared.words import literal
from tessel_core.errors import InputError
from tessel_core.ir import program_text
from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling import Question, find_scheduler
from tessel_core.strategies import Semantics, Simulated, pipeline_plan

_PROGRAM_PAGE = "pages/program.py"


def strategy_moves(asked: Asked, number: int, known: Simulated) -> None:
    """The row of buttons below a configuration; what cannot be says why."""
    strategy, tab = swept(asked).configurations[number].strategy, session()
    tab.program.strategy = _looked(asked, number)
    plan = _plan(asked, number)
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Look at its program", icon=":material/code:"):
            tab.program.show(STRATEGY)
            st.switch_page(_PROGRAM_PAGE)
        if isinstance(plan, MicroBatchPlan):
            _as_plan(Question(strategy.schedule, plan, strategy.micro_batches, _config(strategy.schedule)))
        st.download_button(
            "Program",
            lambda: program_text(known.program).encode(),
            f"{known.program.name}.txt",
            "text/plain",
            icon=":material/download:",
            help="Every operation of every device, a line each; `tessel simulate` reads it.",
            on_click="ignore",
        )
    if isinstance(plan, str):
        st.caption(literal(f"No plan for Schedule and Compare: {plan}."))


def _as_plan(asked: Question) -> None:
    """Its pipeline is a plan: it can be scheduled in other orders, and compared with other plans."""
    if st.button("Open on Schedule", icon=":material/view_timeline:", help=_OPEN):
        tab = session()
        tab.open_plan(asked.plan, "a strategy")
        tab.change(workspace().asking(asked.scheduler, asked.micro_batches, asked.config))
        st.switch_page(SCHEDULE_PAGE)
    if st.button("Add to Compare", icon=":material/compare_arrows:"):
        shared = workspace().comparison.micro_batches or asked.micro_batches
        complaint = add_pair(asked)
        told = f"Added. {len(workspace().comparison.pairs)} on the Compare page"
        st.toast(
            literal(f"Not added: {complaint}." if complaint else f"{told}, all with {shared:,} micro-batches."),
        )


_OPEN = "Its stages as blocks, with the times and the memory that were simulated, to be scheduled in any order."


@lru_cache(maxsize=8)
def _looked(asked: Asked, number: int) -> Looked:
    known, strategy = simulated(asked, number), swept(asked).configurations[number].strategy
    title = f"{known.program.name} D/H/P/K {strategy}"
    return Looked(title, known.trace, mesh_named(asked.mesh), by_mesh=asked.semantics is Semantics.DEFAULT)


@lru_cache(maxsize=32)
def _plan(asked: Asked, number: int) -> MicroBatchPlan | str:
    """The plan of its pipeline, or why there is none."""
    strategy = swept(asked).configurations[number].strategy
    try:
        return pipeline_plan(simulated(asked, number), strategy, mesh_named(asked.mesh))
    except InputError as error:
        return str(error)


def _config(scheduler: str) -> object:
    return find_scheduler(scheduler).config()
