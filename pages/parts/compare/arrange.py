"""Order and names of the compared pairs: a list whose rows are dragged or moved by keys, and renamed in place."""

from __future__ import annotations

import streamlit as st

from pages.shared.comparing import change
from pages.shared.session import unbroken, workspace
from pages.shared.widgets import component, trigger_value
from tessel_core.scheduling.comparison import MAX_NAME_CHARACTERS

_KEY = "compare-rows"
_LIST = '<div class="pairs"><ol aria-label="Pairs in their order"></ol><span role="status"></span></div>'
_ROWS = component(__file__, "rows", _LIST)


def arrange() -> None:
    """Show the button that opens the list."""
    with st.popover("Arrange", icon=":material/swap_vert:", type="tertiary", help=_ABOUT):
        comparison = workspace().comparison
        usual = [comparison.named(i, "").labels()[i] for i in range(len(comparison.pairs))]
        names = zip(_ids(), comparison.labels(), usual, strict=True)
        rows = [{"id": id_, "name": name, "usual": otherwise} for id_, name, otherwise in names]
        _ROWS(
            key=_KEY,
            data={"rows": rows, "longest": MAX_NAME_CHARACTERS},
            on_moved_change=_moved,
            on_named_change=_named,
        )


_ABOUT = "Drag rows to reorder them, and rename them."


def _ids() -> list[str]:
    """Return an identifier for each pair, so that the browser can name a pair whatever its row."""
    return [str(hash(pair)) for pair in workspace().comparison.pairs]


@unbroken
def _moved() -> None:
    order, ids = trigger_value(_KEY, "moved"), _ids()
    if isinstance(order, list) and sorted(map(str, order)) == sorted(ids):
        change(workspace().comparison.only([ids.index(str(each)) for each in order]))


@unbroken
def _named() -> None:
    asked, comparison, ids = trigger_value(_KEY, "named"), workspace().comparison, _ids()
    if not isinstance(asked, dict) or asked.get("id") not in ids:
        return
    row, name = ids.index(asked["id"]), str(asked.get("name"))[:MAX_NAME_CHARACTERS].strip()
    usual = comparison.named(row, "").labels()[row]
    if name != comparison.labels()[row]:
        change(comparison.named(row, "" if name == usual else name))
