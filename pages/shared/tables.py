"""Tables: edited in place, as far as the edits make something valid; shown a part at a time; with rows to choose."""

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
    """A table of `present`; what it was when the widget began, and what was done to that since.

    `columns` are Streamlit's configs by title; `fixed` keeps the rows, so that only cells can be edited.
    """
    key, bases = session().key(name), session().bases
    # Streamlit forgets widgets that were off the screen, and with them the edits.
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
    # A new row has empty cells, and pandas' plain truth values cannot be empty.
    return frame.astype(dict.fromkeys(frame.select_dtypes("bool"), "boolean"))


def _edits(state: Mapping[str, Any]) -> TableEdits:
    changed = {int(row): _plain(cells) for row, cells in state["edited_rows"].items()}
    deleted = frozenset(map(int, state["deleted_rows"]))
    changed = {row: cells for row, cells in changed.items() if row not in deleted}
    return TableEdits(changed, tuple(map(_plain, state["added_rows"])), deleted)


def _plain(cells: Mapping[str, Any]) -> Row:
    """Without what Streamlit adds of its own."""
    return {column: value for column, value in cells.items() if not column.startswith("_")}


def number_column(title: str, help: str = "", *, step: float | None = None) -> Any:
    """Numbers of any size, with separators."""
    return st.column_config.NumberColumn(title, min_value=0, step=step, format="localized", help=help or None)


def take_over(edits: object, edited: Callable[[], Placing], what: str) -> None:
    """Make the placing with edits, if there are any, the workspace's; else say what is wrong and leave all as it is."""
    if not edits:
        return
    try:
        session().change(replace(workspace(), placing=edited()))
    except InputError as error:
        complain(f"{error}. The {what} is still as it was before this edit", "edit_off")


def part_of(label: str, pages: Sequence[Sequence[int]], key: str) -> int:
    """The choice of a page of a long table, offered only where there are several."""
    if len(pages) == 1:
        return 0
    titles = [f"{page[0]:,} … {page[-1]:,}" for page in pages]
    return st.selectbox(label, range(len(pages)), format_func=titles.__getitem__, key=key, width=220)


def row_table(rows: Any, key: str, **look: Any) -> int | None:
    """A table to look at; the number of the row that is selected in it."""
    event = st.dataframe(rows, key=key, hide_index=True, on_select="rerun", selection_mode="single-row", **look)
    chosen = event["selection"]["rows"]
    return chosen[0] if chosen else None


def at_rows(rows: Sequence[int]) -> Any:
    """A selection of rows, for a table to begin with."""
    return {"selection": {"rows": rows, "columns": [], "cells": []}}


def selected(key: str, kind: str) -> Sequence[Any]:
    """The selected "points" or "rows" of the widget of this key, before it is drawn again."""
    state = st.session_state.get(key)
    return state["selection"][kind] if state else ()
