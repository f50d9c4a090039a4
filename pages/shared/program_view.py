"""A program beside its trace: the lines of one rank, the lanes of all, and one operation closely."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import streamlit as st

from pages.shared.program_tab import Looked
from pages.shared.results import MODE_BAR
from pages.shared.session import session
from pages.shared.trace_file import trace_button
from pages.shared.words import literal
from tessel_core.charts import MOST_BARS, selected_operation, trace_chart
from tessel_core.ir import HOST, RankProgram, op_text, project, rank_text
from tessel_core.simulation import (
    Listed,
    MeshCosts,
    Neighbour,
    came_after,
    formula,
    listing,
    runs_of,
    waited_for,
)
from tessel_core.units import show_time

_LINES_A_PAGE = 200
_MOST_ROWS = 50
_HEIGHT = 370
_PER_CENT = 100


@lru_cache(maxsize=4)
def _ranks(looked: Looked) -> dict[int, RankProgram]:
    return project(looked.trace.program)


@lru_cache(maxsize=8)
def _lines(looked: Looked, rank: int) -> tuple[Listed, ...]:
    return listing(looked.trace, _ranks(looked)[rank])


@lru_cache(maxsize=8)
def _figure(looked: Looked, part: tuple[int, int], marked: int | None) -> Any:
    whole = max(looked.trace.latency, 1e-12)
    window = whole * part[0] / _PER_CENT, whole * part[1] / _PER_CENT
    return trace_chart(looked.trace, looked.priced, window, marked)


def program_view(looked: Looked) -> None:
    """The rank's text on the left, the trace on the right, the selected operation below."""
    tab = session().program
    tab.look_at(looked)
    chart = f"program-trace-{tab.turn}"
    state = st.session_state.get(chart)
    if state and tab.select(chart, selected_operation(state["selection"]["points"])):
        _follow(looked)
    left, right = st.columns([5, 7], gap="medium")
    with left:
        _text(looked)
    with right:
        _trace(looked, chart)
    if tab.selected is not None:
        _closely(looked, tab.selected)


def _follow(looked: Looked) -> None:
    """Have the text show the selected operation, on the rank that it shows or on another."""
    tab = session().program
    assert tab.selected is not None
    devices = [run.device for run in runs_of(looked.trace, tab.selected)]
    tab.rank = tab.rank if tab.rank in devices else devices[0]
    tab.generation += 1


def _text(looked: Looked) -> None:
    """Some lines of a rank, of which one can be selected."""
    tab, (rank, lines, page, place) = session().program, _where(looked)
    shown = lines[(page - 1) * _LINES_A_PAGE : page * _LINES_A_PAGE]
    rows = st.dataframe(
        {
            "Starts": [_when(each.start) for each in shown],
            "Lasts": [_when(each.seconds) for each in shown],
            "Operation": [each.text for each in shown],
        },
        column_config={"Starts": st.column_config.TextColumn(width=70), "Lasts": st.column_config.TextColumn(width=70)},
        hide_index=True,
        height=_HEIGHT,
        key=place,
        on_select="rerun",
        selection_mode="single-row",
    )["selection"]["rows"]
    tab.select(place, shown[rows[0]].op if rows and rows[0] < len(shown) else None)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.caption(f"{len(lines):,} lines")
        st.download_button(
            "Rank",
            lambda: rank_text(_ranks(looked)[rank]).encode(),
            f"{looked.trace.program.name}.rank{rank}.txt",
            "text/plain",
            icon=":material/download:",
            type="tertiary",
            on_click="ignore",
        )
        trace_button(looked)


def _where(looked: Looked) -> tuple[int, list[Listed], int, str]:
    """The rank, those of its lines that were searched for, the page of them, and the key of all that."""
    tab, ranks = session().program, list(_ranks(looked))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        first = ranks.index(tab.rank) if tab.rank in ranks else 0
        key = f"{tab.turn}-{tab.generation}"
        rank = tab.rank = st.selectbox("Rank", ranks, first, lambda each: _called(looked, each), key=f"rank-{key}")
        words = st.text_input("Search", key=f"search-{key}", placeholder="kind, value, micro-batch 3 …")
        lines = [each for each in _lines(looked, rank) if words.lower() in each.text.lower()]
        pages = max(1, -(-len(lines) // _LINES_A_PAGE))
        at = next((i for i, each in enumerate(lines) if each.op is not None and each.op == tab.selected), 0)
        key = f"{key}-{rank}-{words}"
        page = st.number_input(
            f"Page of {pages:,}", 1, pages, 1 + at // _LINES_A_PAGE, key=f"page-{key}", width=120, disabled=pages == 1
        )
    return rank, lines, page, f"lines-{key}-{page}"


def _called(looked: Looked, rank: int) -> str:
    if rank == HOST:
        return "0 · host"
    return f"{rank} · {looked.mesh.devices[rank - 1].name}" if looked.mesh else str(rank)


def _when(seconds: float | None) -> str:
    return "" if seconds is None else show_time(seconds, "s")


def _trace(looked: Looked, key: str) -> None:
    part = 0, _PER_CENT
    if looked.trace.events > MOST_BARS:
        told, key_of = f"Up to {MOST_BARS:,} bars can be told apart and clicked.", f"part-{session().program.turn}"
        part = st.slider("Part of the time (%)", 0, _PER_CENT, part, key=key_of, help=told)
        part = part if part[0] < part[1] else (0, _PER_CENT)
    with st.container(height=_HEIGHT + 110, border=False):
        st.plotly_chart(
            _figure(looked, part, session().program.selected),
            key=key,
            on_select="rerun",
            selection_mode="points",
            config=MODE_BAR,
        )


def _closely(looked: Looked, number: int) -> None:
    """When the operation ran and why it took so long, what it waited for, and what came after it."""
    trace = looked.trace
    op = trace.program.ops[number]
    st.markdown(f"**Operation {number:,}**")
    st.code(op_text(trace.program, op), language=None, wrap_lines=True)
    costs = None if looked.priced is None else MeshCosts(looked.priced)
    facts, before, after = st.columns(3, gap="medium")
    with facts:
        st.markdown("**When, and why so long**")
        _runs(looked, number)
        st.markdown(literal(formula(trace.program, op, costs)))
        if not looked.by_mesh:
            st.caption("Its time is counted as DistIR's code does.")
    with before:
        st.markdown("**What it waited for**", help="0 s between them: that one held it up.")
        _neighbours(looked, waited_for(trace, number), "It begins with what is there from the start.")
    with after:
        st.markdown("**What came after it**", help="0 s between them: it waited for this one.")
        _neighbours(looked, came_after(trace, number), "Nothing takes what it makes.")


def _runs(looked: Looked, number: int) -> None:
    rows = [
        {"Device": _called(looked, run.device), "Starts": _when(run.start), "Lasts": _when(run.seconds)}
        for run in runs_of(looked.trace, number)
    ]
    if rows:
        st.dataframe(rows[:_MOST_ROWS], hide_index=True)
    else:
        st.caption("It keeps no device busy.")


def _neighbours(looked: Looked, found: tuple[Neighbour, ...], none: str) -> None:
    if not found:
        st.caption(none)
        return
    program = looked.trace.program
    rows = [
        {"Between": _when(each.gap), "For": each.why, "Operation": op_text(program, program.ops[each.op])}
        for each in found[:_MOST_ROWS]
    ]
    st.dataframe(rows, hide_index=True)
    if len(found) > _MOST_ROWS:
        st.caption(f"and {len(found) - _MOST_ROWS:,} more")
