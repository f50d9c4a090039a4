"""Details of one configuration of a sweep: bottleneck, timeline, memory, and buttons to other pages."""

from __future__ import annotations

import streamlit as st

from pages.parts.strategies.points import identity
from pages.shared.rank_groups import rank_groups
from pages.shared.session import session
from pages.shared.strategies import MAX_UNASKED_OPERATIONS, Asked, operations, quick_to_simulate, simulated
from pages.shared.strategy_moves import strategy_moves
from pages.shared.strategy_state import StrategyState
from pages.shared.timeline.component import trace_timeline
from pages.shared.widgets import literal, picture
from tessel_core.charts.trace_bars import peak_chart
from tessel_core.model import DeviceMesh
from tessel_core.simulation import Trace
from tessel_core.simulation.attribution import peak_time
from tessel_core.simulation.trace import device_name
from tessel_core.strategies.grid import GridResult
from tessel_core.strategies.strategy import Semantics
from tessel_core.units import show_memory, show_time
from tessel_core.workbench.messages.program import pace
from tessel_core.workbench.messages.strategy import explain

_MAX_OPERATIONS = 1_000_000


def closely(asked: Asked, found: GridResult, number: int) -> None:
    """Show everything about the chosen configuration."""
    outcome = found.outcomes[number]
    st.divider()
    with st.container(horizontal=True, vertical_alignment="center"):
        _chooser(found, number)
        room = st.container(horizontal=True, vertical_alignment="center", width="content")
    st.markdown(_facts(found, number))
    if outcome.reason:
        st.warning(literal(f"Infeasible: {outcome.reason}."), icon=":material/block:")
    if outcome.peaks:
        rank_groups(found.configurations[number].strategy.ranks(asked.semantics), asked.devices)
    if not outcome.peaks or not _wanted(asked, found, number):
        return
    known, mesh = simulated(asked, number), asked.devices
    sentences = explain(known.trace, known.ranks, mesh)
    st.info(literal(" ".join(sentences)), icon=":material/troubleshoot:")
    left, right = st.columns([7, 5], gap="medium")
    with left:
        st.markdown("**Time and memory of each device**")
        by_mesh = asked.semantics is Semantics.DEFAULT
        trace_timeline(known.trace, mesh, "strategies-timeline", by_mesh=by_mesh)
    with right:
        _memory(known.trace, mesh)
    with room:
        strategy_moves(asked, number, known)


def _chooser(found: GridResult, number: int) -> None:
    """Show a select box of the Pareto-optimal configurations, for the keyboard."""
    tab, numbers = session().of(StrategyState), [i for i in found.ranked("throughput") if i in set(found.front)]
    numbers = numbers if number in numbers else [number, *numbers]
    key = session().key(f"strategies-chosen-{identity(found)}-{tab.generation}-{number}")
    picked = st.selectbox(
        "Configuration",
        numbers,
        numbers.index(number),
        lambda i: f"D/H/P/K {found.configurations[i].strategy} · {found.family.describe(found.configurations[i].spec)}",
        key=key,
        label_visibility="collapsed",
        width=440,
    )
    if picked != number:
        tab.choose(found, picked)
        st.rerun()


def _facts(found: GridResult, number: int) -> str:
    each, columns = found.configurations[number], found.columns
    facts = [found.family.describe(each.spec), f"{each.strategy.devices} of {len(found.mesh.devices)} devices"]
    if found.outcomes[number].peaks:
        facts.append(pace(columns["latency"][number], each.spec.batch))
        facts.append(f"{columns['throughput'][number]:,.0f} samples/s")
        facts.append(f"peak memory {show_memory(columns['peak_memory'][number], 'B')}")
    return f"**{literal(each.strategy.summary)}** &ensp; :gray[{literal(' · '.join(facts))}]"


def _wanted(asked: Asked, found: GridResult, number: int) -> bool:
    """Return whether to simulate the configuration: yes if that is quick, or if the user has pressed the button."""
    tab = session().of(StrategyState)
    if quick_to_simulate(asked, number) or tab.simulating == found.configurations[number]:
        return True
    count = operations(asked, number)
    if count > _MAX_OPERATIONS:
        st.info(f"It has at least {count:,} operations, too many for this page. Use `tessel simulate` in a terminal.")
        return False
    st.button(
        f"Simulate at least {count:,} operations",
        icon=":material/play_arrow:",
        help=f"Up to {MAX_UNASKED_OPERATIONS:,} operations are simulated automatically. More take several seconds.",
        on_click=setattr,
        args=(tab, "simulating", found.configurations[number]),
    )
    return False


def _memory(trace: Trace, mesh: DeviceMesh) -> None:
    """Show what fills the memory of a device at its peak. At first this is the fullest device."""
    peaks = dict(zip(trace.devices, trace.peak_memory, strict=True))
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("**Memory of**", width="content")
        device = st.selectbox(
            "Device",
            sorted(peaks, key=lambda each: -peaks[each]),
            format_func=lambda each: f"{device_name(each, mesh)}, {show_memory(peaks[each], 'B')}",
            key=session().key(f"strategies-device-{id(trace)}"),
            label_visibility="collapsed",
            width=190,
        )
        st.markdown(f"**at its peak, {show_time(peak_time(trace, device), 's')}**", width="content")
    picture(peak_chart(trace, device), session().key("strategies-memory"))
