"""A sweep on the screen: cards of the best, points, one configuration looked at closely, the table."""

from __future__ import annotations

import streamlit as st

from pages.shared.results import MODE_BAR
from pages.shared.session import session
from pages.shared.strategies import Asked, mesh_named, simulated
from pages.shared.strategy_moves import strategy_moves
from pages.shared.words import literal
from tessel_core.charts import memory_chart, pareto_chart, trace_chart
from tessel_core.exports.sweep_table import shown_rows, sweep_csv
from tessel_core.strategies import OBJECTIVES, Sweep, explain
from tessel_core.units import show_memory, show_time

_CARDS = ("throughput", "latency", "peak_memory")
_PLOTS = (("peak_memory", "throughput"), ("devices", "latency"))
_MOST_OPERATIONS = 60_000
"""Of a program whose trace is drawn while one waits."""
_MOST_REASONS = 200


def cards(found: Sweep) -> int | None:
    """The best of each objective, and which of them is looked at: its number; None where nothing is feasible."""
    best = {name: ranked[0] for name in _CARDS if (ranked := found.ranked(name))}
    if not best:
        return None
    for place, (name, i) in zip(st.columns(len(best)), best.items(), strict=True):
        strategy, columns = found.configurations[i].strategy, found.columns
        step, peak = show_time(columns["latency"][i] * 1e9, "ns"), show_memory(columns["peak_memory"][i], "B")
        value = {"throughput": f"{columns['throughput'][i]:,.0f} samples/s", "latency": step, "peak_memory": peak}[name]
        told = f"D/H/P/K {strategy}, {_count(strategy.devices)}"
        place.metric(f"Best {OBJECTIVES[name].title.lower()}", value, told, delta_color="off", delta_arrow="off")
    chosen = st.segmented_control(
        "Look at",
        list(best),
        default=_CARDS[0],
        format_func=lambda name: f"Best {OBJECTIVES[name].title.lower()}",
        key=session().key("strategies-best"),
        required=True,
        help="Or click a point below.",
    )
    return best[chosen]


def _count(devices: int) -> str:
    return "1 device" if devices == 1 else f"{devices} devices"


def points(found: Sweep, chosen: int | None) -> int | None:
    """Two pictures of all configurations; the number of the one that was clicked, else `chosen`."""
    clicked = _clicked(found)
    chosen = chosen if clicked is None else clicked
    for place, (x, y) in zip(st.columns(2, gap="medium"), _PLOTS, strict=True):
        place.markdown(f"**{OBJECTIVES[y].title} against {OBJECTIVES[x].title.lower()}**")
        place.plotly_chart(
            pareto_chart(found, x, y, chosen),
            key=_plot_key(found, x),
            on_select="rerun",
            selection_mode="points",
            config=MODE_BAR,
        )
    return chosen


def _plot_key(found: Sweep, x: str) -> str:
    """A new one for each sweep, in which numbers mean other configurations."""
    return session().key(f"strategies-{x}-{hash((found.configurations, found.mesh.name, found.semantics))}")


def _clicked(found: Sweep) -> int | None:
    for x, _ in _PLOTS:
        state = st.session_state.get(_plot_key(found, x))
        for point in state["selection"]["points"] if state else ():
            return int(point["customdata"][0])
    return None


def explained(asked: Asked, found: Sweep, number: int) -> None:
    """What holds one configuration up, its lanes and its memory, and its program to take away."""
    each, mesh = found.configurations[number], mesh_named(asked.mesh)
    strategy = each.strategy
    st.markdown(
        f"**D/H/P/K {literal(str(strategy))}** &ensp; :gray[{literal(found.family.words(each.spec))} · "
        f"{_count(strategy.devices)}]"
    )
    known = simulated(asked, number)
    if known.shortage:
        st.warning(literal(f"Does not fit: {known.shortage}."), icon=":material/error:")
    st.info(literal(" ".join(explain(known.trace, strategy, mesh))), icon=":material/troubleshoot:")
    if len(known.program.ops) > _MOST_OPERATIONS:
        st.caption(f"Its {len(known.program.ops):,} operations are too many to draw here.")
    else:
        st.plotly_chart(trace_chart(known.trace, mesh), key=session().key("strategies-trace"), config=MODE_BAR)
        fullest = max(zip(known.trace.peak_memory, known.trace.devices, strict=True), key=lambda pair: pair[0])[1]
        st.markdown("**Memory of the fullest device, and what holds it at the peak**")
        memory = memory_chart(known.trace, fullest, mesh)
        st.plotly_chart(memory, key=session().key("strategies-memory"), config={"displayModeBar": False})
    strategy_moves(asked, number, known)


def table(found: Sweep) -> None:
    """The front, or everything that is feasible."""
    st.markdown("**What nothing beats**", help="No other configuration is as good in all of throughput, time per step, "
                "peak memory and devices, and better in one.")  # fmt: skip
    everything = st.toggle("All feasible configurations", key=session().key("strategies-all"))
    numbers = found.ranked("throughput")
    numbers = numbers if everything else [i for i in numbers if i in set(found.front)]
    columns = {
        "Step (ms)": st.column_config.NumberColumn(format="%.4g"),
        "Samples/s": st.column_config.NumberColumn(format="localized"),
        "Peak memory (GB)": st.column_config.NumberColumn(format="%.4g"),
        "Why not": None,
    }
    st.dataframe(shown_rows(found, numbers), hide_index=True, column_config=columns, height=320)
    st.download_button(
        "All as CSV",
        lambda: sweep_csv(found).encode(),
        "strategies.csv",
        "text/csv",
        icon=":material/download:",
        on_click="ignore",
    )


def infeasible(found: Sweep) -> None:
    """Those that cannot be, with their reasons."""
    if not found.reasons:
        return
    count = sum(found.reasons.values())
    with st.expander(f"{count:,} configurations are not feasible", icon=":material/block:"):
        rows = [{"How many": many, "Why not": reason} for reason, many in found.reasons.items()]
        st.dataframe(rows[:_MOST_REASONS], hide_index=True)
