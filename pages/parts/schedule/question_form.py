"""Form of a schedule search: scheduler, number of micro-batches, and options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.shared.run_panel import search
from pages.shared.session import session, unbroken, workspace
from pages.shared.widgets import choose, config_form, form_button, labelled, literal
from tessel_core.editing.forms import remedies
from tessel_core.formats.tables import tables_of
from tessel_core.model import MicroBatchPlan
from tessel_core.options import options_of
from tessel_core.scheduling import BASELINES, SCHEDULERS, find_scheduler
from tessel_core.workbench.workspace import Workspace

_MAX_MICRO_BATCHES = 99_999


def question_room() -> list[DeltaGenerator]:
    """Reserve containers of full height for the fields, because the elements below are drawn first."""
    first, second, *others = st.columns([4, 2, 2, 2], vertical_alignment="bottom")
    return [labelled(first).empty(), labelled(second).empty(), *others]


def question_form(places: Sequence[DeltaGenerator], *, beside_tables: bool) -> bool:
    """Show the fields and the Search button. Return True in the run in which it was pressed.

    With `beside_tables`, errors in the tables are not repeated here.
    """
    with places[0]:
        titles = {name: each.title for name, each in SCHEDULERS.items()}
        about = "Method that orders the work: a search, or a published schedule."
        key = session().key("scheduler")
        scheduler = choose("Scheduler", titles, workspace().scheduler, key=key, help=about)
    with places[1]:
        now, key = workspace().micro_batches, session().key("micro-batches")
        micro_batches = st.number_input("Micro-batches", 1, _MAX_MICRO_BATCHES, now, key=key)
    with places[2].popover("Options", icon=":material/tune:", width="stretch"):
        work = replace(workspace(), scheduler=scheduler, micro_batches=micro_batches)
        config = _options(work)
    asked = workspace().asking(scheduler, micro_batches, config)
    session().change(_in_halves(asked))
    if workspace().plan is not asked.plan:
        session().begin_again()
        st.rerun()
    objection = why_not(workspace())
    icon = "construction" if scheduler in BASELINES else "search"
    key = session().key("begin")  # The label changes, so a key keeps it the same button for Streamlit.
    pressed = form_button(begins(scheduler), icon, places[3], disabled=bool(objection), key=key)
    if objection and not (beside_tables and workspace().complaint):
        st.warning(literal(objection), icon=":material/block:")
        _offer_forms()
    return pressed


def _in_halves(work: Workspace) -> Workspace:
    """Return the workspace with weight gradients of a placed graph as separate blocks, if the scheduler needs them."""
    from tessel_core.workbench.planning import (
        halves_source,
        split_for,
    )  # imported late: the page needs no placement code until here

    if work.scheduler == workspace().scheduler or work.complaint:
        return work
    plan = split_for(work.placing, work.plan, find_scheduler(work.scheduler), work.micro_batches)
    return work if plan is None else work.with_plan(plan, halves_source(work.placing))


def _offer_forms() -> None:
    """Offer to change the plan so that the scheduler applies, or else another scheduler that applies to the plan."""
    work = workspace()
    if work.complaint:
        return
    forms = _remedies(work.plan, work.scheduler, work.micro_batches)
    with st.container(horizontal=True):
        for name, plan in forms.items():
            icon, about = (
                ":material/build:",
                "Change the plan without changing its work. Undo restores the current plan.",
            )
            st.button(name, icon=icon, help=about, key=session().key(f"remedy-{name}"), on_click=_reform, args=(plan,))
        if not forms and (other := _applies(work)):
            title, key = find_scheduler(other).title, session().key("remedy-other")
            about = "This scheduler applies to the plan as it is."
            st.button(f"Use {title}", icon=":material/search:", help=about, key=key, on_click=_use, args=(other,))


@lru_cache(maxsize=64)
def _remedies(plan: MicroBatchPlan, scheduler: str, micro_batches: int) -> dict[str, MicroBatchPlan]:
    return remedies(plan, find_scheduler(scheduler), micro_batches)


@unbroken
def _reform(plan: MicroBatchPlan) -> None:
    session().change(workspace().edited(tables_of(plan)))
    _build()


def _applies(work: Workspace) -> str:
    """Return the first scheduler that applies to the plan. Empty if none does."""
    applying = (name for name, each in SCHEDULERS.items() if not each.why_not(work.plan, work.micro_batches))
    return next(applying, "")


@unbroken
def _use(scheduler: str) -> None:
    session().change(replace(workspace(), scheduler=scheduler))
    _build()


def _build() -> None:
    """Show the new form. Also show the schedule if it is a published one, because that needs no search."""
    if workspace().scheduler in BASELINES and not why_not(workspace()):
        search(workspace().question)
    session().begin_again()


def begins(scheduler: str) -> str:
    """Return the label of the button: a published order is built, not searched."""
    return "Build" if scheduler in BASELINES else "Search"


def why_not(work: Workspace) -> str:
    """Return why the search cannot start, in one sentence. Empty if it can."""
    if work.complaint:
        return f"The tables have an error. {work.complaint}"
    scheduler = find_scheduler(work.scheduler)
    objection = scheduler.why_not(work.plan, work.micro_batches)
    return f"{scheduler.title} does not apply: {objection}." if objection else ""


def _options(work: Workspace) -> object:
    st.caption(literal(find_scheduler(work.scheduler).source))
    if not options_of(work.config):
        st.caption("No options: this is a published order.")
    return config_form(work.config, session().key(f"option-{work.scheduler}"))
