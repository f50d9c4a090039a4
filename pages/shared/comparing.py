"""The list of compared pairs of plan and scheduler: add, solve, select and remove pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from pages.shared.address import SCHEDULE
from pages.shared.contents import go_to
from pages.shared.run_panel import answer, report_of, search_in_turn
from pages.shared.session import session, workspace
from pages.shared.tables import at_rows
from pages.shared.to_learn import offers_slide, offers_to_play, play_open_plan
from pages.shared.widgets import button, choose, complaining, form, form_button, labelled, literal
from tessel_core.errors import InputError
from tessel_core.model import MicroBatchPlan
from tessel_core.samples import list_samples, load_sample
from tessel_core.scheduling import BASELINES, SCHEDULERS, Answer, Comparison, Question, compare
from tessel_core.scheduling.comparison import Made, Pair
from tessel_core.units import counted
from tessel_core.workbench.messages.comparison import (
    ROW_PIXELS,
    WHY_NOT,
    Column,
    comparison_columns,
    table_pixels,
    work_notes,
)

_MAX_MICRO_BATCHES = 99_999


def add_to_compare(pair: Pair, about: str, **look: Any) -> None:
    """Show the button that adds a pair to the list. Once the pair is on the list, the button opens the Compare page."""
    comparison = workspace().comparison
    if comparison.has(pair):
        most = comparison.micro_batches or 0
        listed = f"{counted(len(comparison.pairs), 'pair')} on the Compare page, at {counted(most, 'micro-batch')}."
        if button("On Compare", icon=":material/check:", help=f"{listed} Press to open it.", **look):
            go_to("compare")
        return
    objection = ""
    try:
        more = comparison.with_pair(pair)
    except InputError as error:
        objection = literal(f"Not possible: {error}.")
    if button(_ADD, icon=":material/compare_arrows:", help=objection or about, disabled=bool(objection), **look):
        change(more)
        st.rerun()


_ADD = "Add to Compare"


def add_what_is_asked() -> None:
    """Show the button that adds the current question, or the schedule changed by hand, to the list."""
    work = workspace()
    if work.complaint:
        return
    made = work.shown.solution if work.shown and session().view == SCHEDULE else None
    about = "Compare with other schedules on one time axis" + ("." if made is None else ". Adds it as it is now.")
    add_to_compare(work.question if made is None else Made.of(made), about, type="tertiary")


def change(comparison: Comparison) -> None:
    """Set the workspace's comparison."""
    session().change(replace(workspace(), comparison=comparison))


def add_pairs() -> None:
    """Show the form that adds pairs, and the number of micro-batches that all pairs share."""
    work = workspace()
    with form("pairs"):
        plan_place, scheduler_place, count_place, button_place = st.columns([4, 7, 2, 2], vertical_alignment="bottom")
        with labelled(plan_place):
            plan = _plan_choice()
        with scheduler_place:
            chosen = st.multiselect(
                "Schedulers",
                list(SCHEDULERS),
                [] if plan is None else _proposed(plan),
                format_func=lambda name: SCHEDULERS[name].title,
                key=f"compare-schedulers-{plan.name if plan else ''}",
                help="Most schedulers that apply to the plan are preselected. If you add one that does not apply, a "
                "note under the list says why.",
            )
        with count_place:
            count = work.comparison.micro_batches or work.micro_batches
            wanted = st.number_input("Micro-batches", 1, _MAX_MICRO_BATCHES, count, key=f"compare-count-{count}")
        if wanted != count and work.comparison.pairs:
            _change_count(wanted)
        if form_button("Add", "add", button_place, disabled=not chosen):
            assert plan is not None
            _add(plan, chosen, wanted)


def offer_pairs() -> None:
    """Explain the empty list, and show a button that fills it with the schedules of the open plan."""
    work = workspace()
    text = "Nothing to compare yet. Add the search and every published schedule that applies to the open plan."
    st.info(text, icon=":material/compare_arrows:")
    many = counted(work.micro_batches, "micro-batch")
    about = f"Adds all searches and published schedules that apply to {literal(work.plan.name)}, {many}."
    if button("Compare the schedules of this plan", icon=":material/add:", help=about):
        _add(work.plan, _proposed(work.plan), work.micro_batches)
        st.rerun()


def _proposed(plan: MicroBatchPlan) -> list[str]:
    """Return the schedulers that apply to the plan, except those of `_NOT_PROPOSED`."""
    return [name for name, each in SCHEDULERS.items() if name not in _NOT_PROPOSED and not each.objection(plan)]


def _change_count(wanted: int) -> None:
    with complaining():
        change(workspace().comparison.with_micro_batches(wanted))
        st.rerun()


_NOT_PROPOSED = ("time-optimal", "sequential")
_OPEN_PLAN = ""


def _plan_choice() -> MicroBatchPlan | None:
    titles = {_OPEN_PLAN: f"Open plan: {workspace().plan.name}"}
    titles |= {sample.name: sample.title for sample in list_samples()}
    name = choose("Plan", titles, key="compare-plan")
    if name == _OPEN_PLAN:
        return workspace().plan
    try:
        return load_sample(name)
    except InputError as error:
        st.error(literal(str(error)))
        return None


def _add(plan: MicroBatchPlan, schedulers: Sequence[str], micro_batches: int) -> None:
    """Add pairs, and show the reasons why others cannot be added.

    If a scheduler needs separate weight gradients, the plan of a placed graph gets them.
    """
    from tessel_core.workbench.planning import split_for  # imported here, because placement is not needed before

    work = workspace()
    comparison, refused = work.comparison, dict[str, list[str]]()
    for name in schedulers:
        config = work.configs.get(name) or SCHEDULERS[name].config()
        try:
            halves = split_for(work.placing, plan, SCHEDULERS[name], micro_batches)
            comparison = comparison.with_pair(Question(name, halves or plan, micro_batches, config))
        except InputError as error:
            refused.setdefault(str(error), []).append(SCHEDULERS[name].title)
    change(comparison)
    for complaint, titles in refused.items():
        st.warning(literal(f"Not added: {', '.join(titles)}. {complaint}."), icon=":material/block:")


def answers() -> tuple[Answer, ...] | None:
    """Return the answer to each pair so far. None if there are no pairs."""
    pairs = workspace().comparison.pairs
    return tuple(map(known_answer, pairs)) if pairs else None


def known_answer(pair: Pair) -> Answer:
    """Return the answer to a pair so far."""
    run = answer(pair)
    if run is None or run.running:
        return Answer()
    return Answer(report_of(pair, run), run.complaint)


def keep_solving(found: Sequence[Answer]) -> None:
    """Solve the pairs whose answer in `found` is still empty."""
    pairs = workspace().comparison.pairs
    solve([pair for pair, each in zip(pairs, found, strict=True) if each == Answer()])


def solve(shown_open: Sequence[Pair]) -> None:
    """Solve the pairs that the page shows without an answer: first those that need no search, then the others."""
    search_in_turn(
        shown_open,
        lambda pair: f"{pair.title}, {pair.plan.name}",
        lambda pair: pair.scheduler in (Made.scheduler, *BASELINES),
    )


@dataclass
class Ticked:
    """Pairs that are ticked in this tab, whatever their rows."""

    pairs: tuple[Pair, ...] = ()


def pairs_table(found: Sequence[Answer], missing: Sequence[str]) -> tuple[int, ...]:
    """Show the table of all pairs, and notes on `missing` schedules. Return the numbers of the ticked rows."""
    comparison, state = workspace().comparison, session().of(Ticked)
    rows = compare(comparison, found)
    columns = [each for each in comparison_columns(rows, comparison.pairs[0].plan.time_unit) if each.heading != WHY_NOT]
    # A new key once all pairs are answered, because Streamlit fits column widths only to a table's first content.
    key = f"compare-table-{'-'.join(comparison.labels())}-{Answer() in found}"
    known = [i for i, pair in enumerate(comparison.pairs) if pair in state.pairs]
    table = st.dataframe(
        {column.heading: list(column.values) for column in columns},
        key=session().key(key),
        hide_index=True,
        on_select="rerun",
        selection_mode="multi-row",
        selection_default=at_rows(known),
        column_config=looks(columns),
        placeholder="–",
        row_height=ROW_PIXELS,
        height=table_pixels(len(rows)),
    )
    ticked = tuple(sorted(table["selection"]["rows"]))
    state.pairs = tuple(comparison.pairs[i] for i in ticked)
    notes = [*missing, *work_notes(rows), *(f"{row.label}: {row.why_none}." for row in rows if row.why_none)]
    if notes:
        st.caption("  \n".join(map(literal, notes)))
    return ticked


def looks(columns: Sequence[Column]) -> dict[str, Any]:
    """Return Streamlit's column settings, by heading."""
    return {
        column.heading: st.column_config.NumberColumn(help=column.help, format=column.printf)
        if column.printf
        else st.column_config.TextColumn(help=column.help)
        for column in columns
    }


def actions(ticked: Sequence[int]) -> None:
    """Show the buttons for the ticked pairs and for the whole list."""
    comparison, one = workspace().comparison, ticked[0] if len(ticked) == 1 else None
    look: dict[str, Any] = {"type": "tertiary", "disabled": one is None}
    if button("Set as reference", icon=":material/flag:", help=_TICK_ONE, **look):
        change(replace(comparison, reference=one))
        st.rerun()
    if button("Open", icon=":material/view_timeline:", help=_TICK_ONE, **look):
        _open(comparison.pairs[one or 0])
    pair = None if one is None else comparison.pairs[one]
    plan, micro_batches = (None, 0) if pair is None else (pair.plan, pair.micro_batches)
    if offers_to_play(plan, micro_batches, _TICK_ONE) and pair is not None:
        session().open_plan(pair.plan, "the Compare page")
        session().change(replace(workspace(), micro_batches=pair.micro_batches))
        play_open_plan()
    _offer_slide(ticked)
    off = not ticked
    if button(
        "Remove",
        icon=":material/delete:",
        type="tertiary",
        help="First tick one or more rows in the table.",
        disabled=off,
    ):
        for i in reversed(ticked):
            comparison = comparison.without(i)
        change(comparison)
        st.rerun()
    about = "Remove all pairs from the list. Undo restores them."
    if button("Clear", icon=":material/clear_all:", type="tertiary", help=about):
        change(Comparison())
        st.rerun()


def _offer_slide(ticked: Sequence[int]) -> None:
    """Show the button that makes a slide of the ticked schedules, or of all."""
    comparison = workspace().comparison
    rows = zip(comparison.labels(), map(known_answer, comparison.pairs), strict=True)
    chosen = [(name, each.report) for i, (name, each) in enumerate(rows) if i in ticked or not ticked]
    shown = [(name, report.solution) for name, report in chosen if report is not None and report.solution is not None]
    offers_slide("Schedules side by side", shown)


_TICK_ONE = "Tick one row of the table first."


def _open(pair: Pair) -> None:
    if isinstance(pair, Made):
        report = known_answer(pair).report
        if report is not None:
            session().open_plan(pair.plan, "the Compare page")
            session().change(replace(workspace(), micro_batches=pair.micro_batches).changed_by_hand(report))
            go_to("schedule")
        return
    session().open_plan(pair.plan, "the Compare page")
    configs = {**workspace().configs, pair.scheduler: pair.config}
    asked = replace(workspace(), scheduler=pair.scheduler, micro_batches=pair.micro_batches, configs=configs)
    session().change(replace(asked, asked=pair))
    go_to("schedule")
