"""Open a recommended strategy on other pages: Placement, Schedule, Program and Compare."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from pages.shared.contents import go_to
from pages.shared.program_state import STRATEGY, ProgramState
from pages.shared.session import session, workspace
from pages.shared.widgets import button, complaining, literal
from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling import DEFAULT_SCHEDULER, find_scheduler
from tessel_core.strategies.recommendation import Question
from tessel_core.strategies.strategy import Strategy
from tessel_core.workbench.recommended import (
    placement_note,
    stage_comparison,
    strategy_placing,
    strategy_program,
    why_not_placed,
)


def open_in(question: Question, strategy: Strategy, plan: MicroBatchPlan | None, name: str) -> None:
    """Draw a button for each page.  A disabled button shows the reason."""
    st.markdown("**Open this strategy on**")
    unplaced, one_stage = why_not_placed(strategy), _ONE_STAGE if plan is None else ""
    with st.container(horizontal=True):
        place = _opener("Placement", "grid_view", _PLACEMENT, unplaced)
        schedule = _opener("Schedule", "view_timeline", _SCHEDULE, one_stage)
        program = _opener("Program", "code", _PROGRAM)
        compare = _opener("Compare", "compare_arrows", _COMPARE, one_stage)
    if unplaced or placement_note(strategy):
        st.caption(literal(unplaced or placement_note(strategy)))
    with complaining():
        if place:
            _open_placement(question, strategy, name)
        elif program:
            _open_program(question, strategy)
    if plan is not None and schedule:
        _open_schedule(plan, strategy)
    elif plan is not None and compare:
        session().change(replace(workspace(), comparison=stage_comparison(plan, strategy)))
        go_to("compare")


def _opener(label: str, icon: str, about: str, objection: str = "") -> bool:
    """Draw the button of a page; True if it was pressed."""
    icon, about = f":material/{icon}:", literal(objection) or about
    return button(label, key=f"recommend-open-{label}", icon=icon, help=about, disabled=bool(objection))


_ONE_STAGE = "The strategy has one stage, so it has no pipeline to schedule."
_PLACEMENT = "Place the layers of the network on the GPUs of one replica."
_SCHEDULE = "Schedule the stages of the pipeline. Tessel's search may find a shorter order or prove that there is none."
_PROGRAM = "Show the operations of every GPU, and when they run."
_COMPARE = (
    "Compare the strategy's order of the stages with 1F1B, GPipe and Tessel's search. This replaces the pairs that are "
    "compared now; Undo brings them back."
)


def _open_placement(question: Question, strategy: Strategy, name: str) -> None:
    placing = strategy_placing(question, strategy, name)
    assert placing.graph is not None
    tab = session()
    tab.open_graph(placing.graph, placing.graph_source, name)
    tab.change_placing(placing)
    go_to("placement")


def _open_schedule(plan: MicroBatchPlan, strategy: Strategy) -> None:
    tab, config = session(), find_scheduler(DEFAULT_SCHEDULER).config()
    tab.open_plan(plan, "a recommendation")
    tab.change(workspace().asking(DEFAULT_SCHEDULER, strategy.micro_batches, config))
    go_to("schedule")


def _open_program(question: Question, strategy: Strategy) -> None:
    tab = session().of(ProgramState)
    tab.strategy = strategy_program(question, strategy)
    tab.show(STRATEGY)
    go_to("program")
