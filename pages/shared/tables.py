"""Tables to edit in place, tables shown page by page, and tables with selectable rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pandas as pd
import streamlit as st

from pages.shared.session import session, workspace
from pages.shared.widgets import complain
from tessel_core.errors import InputError
from tessel_core.formats.tables import Row, TableEdits
from tessel_core.workbench.placing import Placing

Base = TypeVar("Base")

_HEIGHT = 430


def edit_table(
    name: str,
    present: Base,
    rows: Callable[[Base], Sequence[Row]],
    columns: Mapping[str, Any],
    *,
    fixed: bool = False,
    height: int = _HEIGHT,
) -> tuple[Base, TableEdits]:
    """Show `present` as a table to edit. Return the value that the table started with, and the edits since then.

    `columns` has Streamlit's column configs by title. With `fixed`, only cells can be edited.
    """
    key, bases = session().key(name), session().bases
    # Streamlit forgets a widget, and its edits, while it is not shown.
    if key not in st.session_state or key not in bases:
        bases[key] = present
    base: Base = bases[key]  # type: ignore[assignment]
    st.data_editor(
        _frame(rows(base), list(columns)),
        key=key,
        num_rows="fixed" if fixed else "dynamic",
        column_config=dict(columns),
        hide_index=True if fixed else None,
        height=height,
        placeholder="",
    )
    return base, _edits(st.session_state[key])


def _frame(rows: Sequence[Row], columns: list[str]) -> pd.DataFrame:
    frame = pd.DataFrame([dict(row) for row in rows], columns=columns)
    # A new row has empty cells, which pandas' plain bool dtype cannot hold.
    return frame.astype(dict.fromkeys(frame.select_dtypes("bool"), "boolean"))


def _edits(state: Mapping[str, Any]) -> TableEdits:
    changed = {int(row): _plain(cells) for row, cells in state["edited_rows"].items()}
    deleted = frozenset(map(int, state["deleted_rows"]))
    changed = {row: cells for row, cells in changed.items() if row not in deleted}
    return TableEdits(changed, tuple(map(_plain, state["added_rows"])), deleted)


def _plain(cells: Mapping[str, Any]) -> Row:
    """Return the cells that the user filled in, without the columns that Streamlit adds."""
    return {column: value for column, value in cells.items() if not column.startswith("_")}


def number_column(title: str, help: str = "", *, step: float | None = None) -> Any:
    """Return the config of a column of non-negative numbers."""
    return st.column_config.NumberColumn(title, min_value=0, step=step, format="localized", help=help or None)


def take_over(edits: object, edited: Callable[[], Placing], what: str) -> None:
    """Apply edits, if there are any, to the workspace. If they are invalid, show why and change nothing."""
    if not edits:
        return
    try:
        session().change(replace(workspace(), placing=edited()))
    except InputError as error:
        complain(f"{error}. The {what} was not changed", "edit_off")


def part_of(label: str, pages: Sequence[Sequence[int]], key: str) -> int:
    """Show the choice of a page of a long table, if there are several. Return the number of the page."""
    if len(pages) == 1:
        return 0
    titles = [f"{page[0]:,} … {page[-1]:,}" for page in pages]
    return st.selectbox(label, range(len(pages)), format_func=titles.__getitem__, key=key, width=220)


def row_table(rows: Any, key: str, **look: Any) -> int | None:
    """Show a read-only table. Return the number of its selected row, or None."""
    event = st.dataframe(rows, key=key, hide_index=True, on_select="rerun", selection_mode="single-row", **look)
    chosen = event["selection"]["rows"]
    return chosen[0] if chosen else None


def at_rows(rows: Sequence[int]) -> Any:
    """Return Streamlit's form of a selection of rows."""
    return {"selection": {"rows": rows, "columns": [], "cells": []}}


def selected(key: str, kind: str) -> Sequence[Any]:
    """Return the selected "points" or "rows" of a widget, before it is drawn again."""
    state = st.session_state.get(key)
    return state["selection"][kind] if state else ()
