"""All configurations of a sweep: as points over two objectives, twice, and as a table."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from pages.shared.results import MODE_BAR
from pages.shared.session import session
from pages.shared.strategy_state import StrategyState
from tessel_core.charts.pareto import pareto_chart
from tessel_core.exports.sweep_table import shown_rows, sweep_csv
from tessel_core.strategies import OBJECTIVES, GridResult

FRONT, FEASIBLE, INFEASIBLE = "Pareto-optimal", "Feasible", "Infeasible"
ALL = ""
_HEIGHT = 248


def chosen(found: GridResult) -> int | None:
    """The number of the configuration that is looked at, once clicks have been followed; None where there is none."""
    tab = session().of(StrategyState)
    for picture in range(len(tab.axes)):
        key = _plot_key(found, picture)
        state = st.session_state.get(key)
        points = state["selection"]["points"] if state else ()
        number = int(points[0]["customdata"][0]) if points else None
        if tab.news(key, number) and number is not None:
            tab.choose(found, number, again=True)
    key, numbers = _table_key(found), _listed(found)
    state = st.session_state.get(key)
    rows = state["selection"]["rows"] if state else ()
    number = numbers[rows[0]] if rows and rows[0] < len(numbers) else None
    if tab.news(key, number) and number is not None:
        tab.choose(found, number, again=False)
    return tab.look_at(found)


def points(found: GridResult, shown: int | None) -> None:
    """Two pictures, whose axes can be chosen."""
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
            st.plotly_chart(
                pareto_chart(found, x, y, shown),
                key=_plot_key(found, picture),
                on_select="rerun",
                selection_mode="points",
                config=MODE_BAR,
            )
    tab.axes = tuple(axes)


def _axis(which: str, now: str, picture: int) -> str:
    names = list(OBJECTIVES)
    return st.selectbox(
        f"{which}, picture {picture}",
        names,
        names.index(now),
        lambda name: OBJECTIVES[name].title,
        key=session().key(f"strategies-{which}-{picture}"),
        label_visibility="collapsed",
        width=170,
    )


def table(found: GridResult, shown: int | None) -> None:
    """Every configuration, or the Pareto-optimal ones, or the infeasible ones and why; a row shows one."""
    tab = session().of(StrategyState)
    with st.container(horizontal=True, vertical_alignment="center"):
        _which(found)
        if tab.view == INFEASIBLE:
            _why(found)
        st.space("stretch")
        st.download_button(
            "All as CSV",
            lambda: sweep_csv(found).encode(),
            "strategies.csv",
            "text/csv",
            icon=":material/download:",
            type="tertiary",
            on_click="ignore",
        )
    numbers = _listed(found)
    at = [numbers.index(shown)] if shown in numbers else []
    st.dataframe(
        shown_rows(found, numbers),
        hide_index=True,
        column_config=_COLUMNS,
        height=_HEIGHT,
        key=_table_key(found),
        on_select="rerun",
        selection_mode="single-row",
        selection_default={"selection": {"rows": at, "columns": [], "cells": []}},
        placeholder="",
    )


_COLUMNS = {
    **{name: st.column_config.NumberColumn(width=44, help=told) for name, told in (
        ("D", "Replicas"), ("H", "Devices that share tensors"), ("P", "Stages"), ("K", "Micro-batches")
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
    tab.view = st.segmented_control(
        "Configurations",
        list(counts),
        default=tab.view or FRONT,
        format_func=lambda view: f"{view} {counts[view]:,}",
        key=session().key("strategies-view"),
        required=True,
        label_visibility="collapsed",
        help="Nothing beats a configuration that no other one equals in throughput, time per step, peak memory and "
        "devices and betters in one of them.",
    )


def _why(found: GridResult) -> None:
    """Which of the reasons."""
    tab, kinds = session().of(StrategyState), found.reason_kinds
    options = [ALL, *kinds]
    tab.why = st.selectbox(
        "Why not",
        options,
        options.index(tab.why) if tab.why in options else 0,
        lambda kind: "for any reason" if kind == ALL else f"{kind} ({len(kinds[kind]):,})",
        key=session().key("strategies-why"),
        label_visibility="collapsed",
        width=420,
    )


def _listed(found: GridResult) -> Sequence[int]:
    """Numbers of the configurations in the table's rows."""
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
    """Different for each sweep, in which numbers mean other configurations."""
    return hash((found.configurations, found.mesh.name, found.semantics))
