"""A program and its trace: the lines of one rank, the timeline of all devices, and details of one operation."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from pages.shared.program_state import Looked, ProgramState
from pages.shared.rank_groups import rank_groups
from pages.shared.session import session
from pages.shared.tables import at_rows, row_table, selected
from pages.shared.timeline.component import selected_in, trace_timeline
from pages.shared.widgets import download, file_name, labelled, literal, metrics, picture
from tessel_core.charts.trace_bars import trace_cause_chart
from tessel_core.exports.simulation_files import SIMULATION_EXPORTS
from tessel_core.ir.project import RankProgram, project, rank_text
from tessel_core.ir.text import op_text
from tessel_core.ir.types import HOST
from tessel_core.simulation.costs import costs_on, formula
from tessel_core.simulation.idle import ProgramIdle, idle_of
from tessel_core.simulation.trace import Listed, listing
from tessel_core.simulation.waiting import Neighbour, came_after, runs_of, waited_for
from tessel_core.units import show_time
from tessel_core.workbench.messages.idle import PROGRAM_BY_CAUSE
from tessel_core.workbench.messages.operation import operation_at, place_of
from tessel_core.workbench.messages.program import program_numbers

_LINES_PER_PAGE = 200
_LINES_BEFORE_SELECTED = 2
_MAX_ROWS = 50
_HEIGHT = 400
_CAUSES_HEIGHT = 512
_MAX_DEVICES_UNSCROLLED = 32
"""Largest number of devices whose idle times are shown without a scroll bar."""


@lru_cache(maxsize=4)
def _ranks(looked: Looked) -> dict[int, RankProgram]:
    return project(looked.trace.program)


@lru_cache(maxsize=8)
def _lines(looked: Looked, rank: int) -> tuple[Listed, ...]:
    return listing(looked.trace, _ranks(looked)[rank])


def program_view(looked: Looked) -> None:
    """Show the lines of a rank on the left, the trace on the right, and the selected operation below."""
    tab = session().of(ProgramState)
    tab.look_at(looked)
    drawn = f"program-timeline-{tab.turn}"
    before, place = tab.selected, selected_in(drawn)
    if place != tab.place:
        tab.place, tab.wanted = place, ""
        tab.select(drawn, operation_at(place))
        if tab.selected != before:
            tab.show_selected()
    before = tab.selected
    for key, found in _neighbour_tables(looked).items():
        rows = selected(key, "rows")
        if tab.select(key, found[rows[0]].op if rows and rows[0] < len(found) else None):
            tab.show_selected()
            break
    left, right = st.columns([5, 7], gap="medium")
    with left:
        _text(looked)
        _headline(looked)
    if tab.selected is not None and tab.selected != before:
        tab.wish(place_of(looked.trace, tab.selected))
    with right:
        trace_timeline(looked.trace, looked.mesh, drawn, by_mesh=looked.by_mesh, wanted=tab.wanted)
        if looked.ranks is not None and looked.mesh is not None:
            rank_groups(looked.ranks, looked.mesh)
        _idle_causes(looked)
    if tab.selected is not None:
        _closely(looked, tab.selected)


def _neighbour_tables(looked: Looked) -> dict[str, tuple[Neighbour, ...]]:
    """Return, by table key, the operations that the selected one waited for and those that came after it."""
    tab = session().of(ProgramState)
    if tab.selected is None:
        return {}
    before, after = _neighbours_of(looked, tab.selected)
    key = f"{tab.turn}-{tab.selected}"
    return {f"before-{key}": before, f"after-{key}": after}


@lru_cache(maxsize=4)
def _neighbours_of(looked: Looked, number: int) -> tuple[tuple[Neighbour, ...], tuple[Neighbour, ...]]:
    return waited_for(looked.trace, number), came_after(looked.trace, number)


def _text(looked: Looked) -> None:
    """Show a page of a rank's lines as a table in which one line can be selected."""
    tab, (rank, lines, first, place) = session().of(ProgramState), _where(looked)
    shown = lines[first - 1 : first - 1 + _LINES_PER_PAGE]
    marked = [i for i, each in enumerate(shown) if each.op is not None and each.op == tab.selected]
    columns = {
        "Starts": [_when(each.start) for each in shown],
        "Lasts": [_when(each.seconds) for each in shown],
        "Operation": [each.text for each in shown],
    }
    narrow = {name: st.column_config.TextColumn(width=70) for name in ("Starts", "Lasts")}
    row = row_table(columns, place, column_config=narrow, height=_HEIGHT, selection_default=at_rows(marked))
    tab.select(place, shown[row].op if row is not None and row < len(shown) else None)
    _below(looked, rank, len(lines))


def _below(looked: Looked, rank: int, lines: int) -> None:
    """Show the number of lines, and the buttons that download them and the trace."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.caption(f"{lines:,} lines")
        name = f"{looked.trace.program.name}.rank{rank}.txt"
        download("Rank", lambda: rank_text(_ranks(looked)[rank]).encode(), name, "text/plain", type="tertiary")
        _trace_button(looked)


def _trace_button(looked: Looked) -> None:
    """Show the button that downloads the Chrome trace. If there can be no trace, its tooltip says why."""
    export = SIMULATION_EXPORTS["chrome-trace"]
    objection = export.objection(looked.trace)
    download(
        "Trace",
        lambda: export.made(looked.trace, looked.mesh, looked.by_mesh),
        f"{file_name(looked.trace.program.name)}{export.suffix}",
        export.media_type,
        help=f"Not available: {objection}." if objection else _TRACE,
        disabled=bool(objection),
        type="tertiary",
    )


_TRACE = "All devices with their streams, memory and transfers, for ui.perfetto.dev and chrome://tracing."


def _where(looked: Looked) -> tuple[int, list[Listed], int, str]:
    """Show rank, search and first line. Return rank, matching lines, first line, and a key for the table."""
    tab, ranks = session().of(ProgramState), list(_ranks(looked))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        first = ranks.index(tab.rank) if tab.rank in ranks else 0
        key = f"{tab.turn}-{tab.generation}"
        with labelled():
            rank = tab.rank = st.selectbox("Rank", ranks, first, lambda each: _called(looked, each), key=f"rank-{key}")
        text = st.text_input("Search", key=f"search-{key}", placeholder="kind, value …")
        lines = [each for each in _lines(looked, rank) if text.lower() in each.text.lower()]
        at = next((i for i, each in enumerate(lines) if each.op is not None and each.op == tab.selected), 0)
        key = f"{key}-{rank}-{text}"
        # Set only once, not as the widget's value: otherwise a click on a row would scroll the lines.
        st.session_state.setdefault(f"first-{key}", 1 if text else max(1, at - _LINES_BEFORE_SELECTED))
        first = st.number_input(
            "From line",
            1,
            max(1, len(lines)),
            step=_LINES_PER_PAGE,
            key=f"first-{key}",
            width=124,
            help=f"{_LINES_PER_PAGE} lines are shown at once. They begin just before the selected operation.",
        )
    return rank, lines, first, f"lines-{key}-{first}"


def _called(looked: Looked, rank: int) -> str:
    if rank == HOST:
        return "0 · host"
    return f"{rank} · {looked.mesh.devices[rank - 1].name}" if looked.mesh else str(rank)


def _when(seconds: float | None) -> str:
    return "" if seconds is None else show_time(seconds, "s")


@lru_cache(maxsize=4)
def _idle(looked: Looked) -> ProgramIdle | None:
    return idle_of(looked.trace)


def _headline(looked: Looked) -> None:
    """Show the key numbers. A program that runs only on the host has none."""
    if idle := _idle(looked):
        metrics(program_numbers(looked.trace.latency, idle, looked.samples))


def _idle_causes(looked: Looked) -> None:
    """Show idle time by cause for each device."""
    if idle := _idle(looked):
        st.markdown("**Idle time by cause, per device**", help=PROGRAM_BY_CAUSE)
        many = len(looked.trace.devices) > _MAX_DEVICES_UNSCROLLED
        with st.container(height=_CAUSES_HEIGHT if many else "content", border=False):
            picture(trace_cause_chart(looked.trace, idle, looked.mesh), session().key("program-causes"))


def _closely(looked: Looked, number: int) -> None:
    """Show when an operation ran, the formula of its time, the operations it waited for, and those after it."""
    trace = looked.trace
    op = trace.program.ops[number]
    st.markdown(f"**Operation {number:,}**")
    st.code(op_text(trace.program, op), language=None, wrap_lines=True)
    costs = None if looked.priced is None else costs_on(looked.priced, trace.program)
    (key_before, found_before), (key_after, found_after) = _neighbour_tables(looked).items()
    facts, before, after = st.columns(3, gap="medium")
    with facts:
        st.markdown("**Time and its formula**")
        _runs(looked, number)
        st.markdown(literal(formula(trace.program, op, costs)))
        if not looked.by_mesh:
            st.caption(looked.costs_note)
    with before:
        st.markdown("**What it waited for**", help=f"If 0 s lie between, that operation delayed this one. {_CLICK}")
        _neighbours(looked, key_before, found_before, "It needs only inputs that exist from the start.")
    with after:
        st.markdown("**What came after it**", help=f"If 0 s lie between, that operation waited for this one. {_CLICK}")
        _neighbours(looked, key_after, found_after, "No operation uses its result.")


_CLICK = "Select a row to go to that operation."


def _runs(looked: Looked, number: int) -> None:
    rows = [
        {"Device": _called(looked, run.device), "Starts": _when(run.start), "Lasts": _when(run.seconds)}
        for run in runs_of(looked.trace, number)
    ]
    if rows:
        st.dataframe(rows[:_MAX_ROWS], hide_index=True)
    else:
        st.caption("This operation takes no time on any device.")


def _neighbours(looked: Looked, key: str, found: tuple[Neighbour, ...], none: str) -> None:
    if not found:
        st.caption(none)
        return
    program = looked.trace.program
    rows = [
        {"Between": _when(each.gap), "For": each.why, "Operation": op_text(program, program.ops[each.op])}
        for each in found[:_MAX_ROWS]
    ]
    row_table(rows, key)
    if len(found) > _MAX_ROWS:
        st.caption(f"and {len(found) - _MAX_ROWS:,} more")
