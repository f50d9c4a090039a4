"""Move, pin and unpin selected operators. Loads, memory and bound are updated in the same run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from pages.parts.placement.state import PlacementState
from pages.shared.session import session, unbroken, workspace
from pages.shared.tables import edit_table, part_of
from pages.shared.widgets import complain, literal
from tessel_core.errors import InputError
from tessel_core.formats.graph_tables import row_pages
from tessel_core.formats.tables import Row
from tessel_core.model import OperatorGraph
from tessel_core.workbench.messages.placement import OPERATOR_COLUMNS, placed_rows, with_rows
from tessel_core.workbench.placing import Placing

_HEIGHT = 420


def move_bar(selected: tuple[str, ...], names: list[str]) -> None:
    """Show the selected operators, the target device, and the buttons *Move*, *Pin* and *Unpin*."""
    off = not selected
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(_summary(selected), width="stretch")
        device = st.selectbox("Device", names, key="move-to", label_visibility="collapsed", width=150, disabled=off)
        _button("Move", ":material/arrow_forward:", off, lambda placing: placing.moved(selected, device))
        _button("Pin", ":material/keep:", off, lambda placing: placing.pinned(selected, device))
        _button("Unpin", ":material/keep_off:", off, lambda placing: placing.unpinned(selected))
    complaint = session().of(PlacementState).complaint
    if complaint:
        complain(f"{complaint}. Nothing was moved", "block")


def _summary(selected: tuple[str, ...]) -> str:
    if not selected:
        return ":gray[Click an operator in the drawing, drag a box around several, or search for them.]"
    first = selected[0] if len(selected) == 1 else f"{selected[0]} … {selected[-1]}"
    return f"**{len(selected):,} selected** &ensp; :gray[{literal(first)}]"


def _button(label: str, icon: str, off: bool, change: Callable[[Placing], Placing]) -> None:
    st.button(label, icon=icon, disabled=off, on_click=_do, args=(change,), help=_HELP[label])


_HELP = {
    "Move": "Move to this device, together with operators that must share a device.",
    "Pin": "Move to this device and keep them there in every search.",
    "Unpin": "Let searches choose their device again.",
}


@unbroken
def _do(change: Callable[[Placing], Placing]) -> None:
    """Make a change. This callback runs before the page, so that all of the page shows the result."""
    state = session().of(PlacementState)
    state.complaint = ""
    try:
        session().change_placing(change(workspace().placing))
    except InputError as error:
        state.complaint = str(error)


def placed_table(graph: OperatorGraph, shown: tuple[int, ...], names: list[str]) -> None:
    """Show operators and their devices as a table to edit. `shown` has the positions of the operators."""
    pages = row_pages(shown)
    at = part_of("Rows", pages, "placed-page")
    part = pages[at]
    base, edits = edit_table(
        f"placed-{at}-{hash(part)}",
        workspace().placing,
        partial(_rows, part),
        {column: _column(column, names) for column in OPERATOR_COLUMNS},
        fixed=True,
        height=_HEIGHT,
    )
    if not edits:
        return
    try:
        placing = with_rows(base, graph, part, edits)
    except InputError as error:
        complain(f"{error}. Nothing was moved", "block")
        return
    if placing != workspace().placing:
        session().change_placing(placing)
        st.rerun()


def _rows(part: tuple[int, ...], placing: Placing) -> tuple[Row, ...]:
    placement = placing.placement
    assert placement is not None, "the table needs a placement"
    return placed_rows(placing, placement, part)


def _column(column: str, names: list[str]) -> object:
    if column == "device":
        return st.column_config.SelectboxColumn(
            "device", options=names, help="Choose another device to move the operator."
        )
    if column == "pinned":
        about = "Searches keep the operator on its device."
        return st.column_config.CheckboxColumn("pinned", width="small", help=about)
    return st.column_config.TextColumn(column, disabled=True)
