"""All configurations of a sweep: two scatter plots over two objectives each, and a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from pages.shared.session import session
from pages.shared.strategy_state import StrategyState
from pages.shared.tables import at_rows, row_table, selected
from pages.shared.widgets import MODE_BAR, choose, download, switch
from tessel_core.charts.pareto import pareto_chart
from tessel_core.exports.sweep_table import shown_rows, sweep_csv
from tessel_core.strategies.grid import OBJECTIVES, GridResult

FRONT, FEASIBLE, INFEASIBLE = "Pareto-optimal", "Feasible", "Infeasible"
ALL = ""
_HEIGHT = 248


def chosen(found: GridResult) -> int | None:
    """Apply clicks in plots and table. Return the number of the chosen configuration, None if nothing was simulated."""
    tab = session().of(StrategyState)
    for picture in range(len(tab.axes)):
        key = _plot_key(found, picture)
        points = selected(key, "points")
        number = int(points[0]["customdata"][0]) if points else None
        if tab.news(key, number) and number is not None:
            tab.choose(found, number, again=True)
    key, numbers = _table_key(found), _listed(found)
    rows = selected(key, "rows")
    number = numbers[rows[0]] if rows and rows[0] < len(numbers) else None
    if tab.news(key, number) and number is not None:
        tab.choose(found, number, again=False)
    return tab.look_at(found)


def points(found: GridResult, shown: int | None) -> None:
    """Show two scatter plots with a choice of axes."""
    tab = session().of(StrategyState)
    axes = []
    for picture, place in enumerate(st.columns(2, gap="medium")):
        with place:
            x, y = tab.axes[picture]
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                y = _axis("Up", y, picture)
                st.markdown("against", width="content")
                x = _axis("Across", x, picture)
            axes.append((x, y))
            look: dict[str, Any] = {"on_select": "rerun", "selection_mode": "points", "config": MODE_BAR}
            st.plotly_chart(pareto_chart(found, x, y, shown), key=_plot_key(found, picture), **look)
    tab.axes = tuple(axes)


def _axis(which: str, now: str, picture: int) -> str:
    titles = {name: objective.title for name, objective in OBJECTIVES.items()}
    key = session().key(f"strategies-{which}-{picture}")
    return choose(f"{which}, picture {picture}", titles, now, key=key, label_visibility="collapsed", width=170)


def table(found: GridResult, shown: int | None) -> None:
    """Show a table of the Pareto-optimal, the feasible or the infeasible configurations. Selecting a row shows it."""
    tab = session().of(StrategyState)
    with st.container(horizontal=True, vertical_alignment="center"):
        _which(found)
        if tab.view == INFEASIBLE:
            _why(found)
        st.space("stretch")
        download("All as CSV", lambda: sweep_csv(found).encode(), "strategies.csv", "text/csv", type="tertiary")
    numbers = _listed(found)
    at = [numbers.index(shown)] if shown in numbers else []
    look = {"column_config": _COLUMNS, "height": _HEIGHT, "selection_default": at_rows(at), "placeholder": ""}
    row_table(shown_rows(found, numbers), _table_key(found), **look)


_COLUMNS = {
    **{name: st.column_config.NumberColumn(width=44, help=about) for name, about in (
        ("D", "Replicas"), ("H", "Devices that share tensors"), ("P", "Stages"), ("K", "Micro-batches"),
        ("C", "Devices that share sequences"), ("E", "Devices that share experts"), ("ZeRO", "The stage of ZeRO"),
    )},
    "Step (ms)": st.column_config.NumberColumn(format="%.4g"),
    "Samples/s": st.column_config.NumberColumn(format="%,.0f"),
    "Peak memory (GB)": st.column_config.NumberColumn(format="%.4g"),
    "Why not": st.column_config.TextColumn(width="large"),
}  # fmt: skip


def _which(found: GridResult) -> None:
    tab = session().of(StrategyState)
    counts = {FRONT: len(found.front), FEASIBLE: int(found.feasible.sum())}
    counts[INFEASIBLE] = len(found) - counts[FEASIBLE]
    labelled = lambda view: f"{view} {counts[view]:,}"  # noqa: E731
    key = session().key("strategies-view")
    tab.view = switch("Configurations", list(counts), key, tab.view, format_func=labelled, help=_PARETO)


_PARETO = (
    "A configuration is Pareto-optimal if no other one is at least as good in throughput, step time, peak memory and "
    "devices, and better in one of them. Each plot marks the front of its own two objectives."
)


def _why(found: GridResult) -> None:
    """Show the choice of a reason. Only the configurations that are infeasible for that reason are listed."""
    tab, kinds = session().of(StrategyState), found.reason_kinds
    titles = {ALL: "for any reason", **{kind: f"{kind} ({len(numbers):,})" for kind, numbers in kinds.items()}}
    key = session().key("strategies-why")
    tab.why = choose("Why not", titles, tab.why, key=key, label_visibility="collapsed", width=420)


def _listed(found: GridResult) -> Sequence[int]:
    """Return the numbers of the configurations in the rows of the table."""
    tab = session().of(StrategyState)
    if tab.view == INFEASIBLE:
        kinds = found.reason_kinds
        return kinds[tab.why] if tab.why in kinds else [i for i, fits in enumerate(found.feasible) if not fits]
    ranked, front = found.ranked("throughput"), set(found.front)
    return ranked if tab.view == FEASIBLE else [i for i in ranked if i in front]


def _table_key(found: GridResult) -> str:
    tab = session().of(StrategyState)
    return session().key(f"strategies-table-{identity(found)}-{tab.view}-{tab.why}-{tab.generation}")


def _plot_key(found: GridResult, picture: int) -> str:
    return session().key(f"strategies-plot-{picture}-{identity(found)}")


def identity(found: GridResult) -> int:
    """Return a hash that differs between sweeps, because their numbers mean different configurations."""
    return hash((found.configurations, found.mesh.name, found.semantics))
