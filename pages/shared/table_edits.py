"""Tables that are edited in place: the widget, what was typed, and the base that the typing counts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pandas as pd
import streamlit as st

from pages.shared.session import session
from tessel_core.formats.tables import Row, TableEdits

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
