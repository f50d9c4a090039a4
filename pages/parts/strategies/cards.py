"""Show a card for each objective of a sweep: its best configuration, with its value and its bottleneck."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.shared.session import session
from pages.shared.strategies import Asked, bottleneck_of, operations, quick_to_simulate
from pages.shared.strategy_state import StrategyState
from pages.shared.widgets import literal
from tessel_core.strategies.grid import OBJECTIVES, GridResult
from tessel_core.units import counted, show_memory, show_time

_BEST = {
    "throughput": "Best throughput",
    "latency": "Shortest step",
    "peak_memory": "Least memory",
    "devices": "Fewest devices",
}
_SENTENCES = 128
"""Reserved height of the sentences in pixels, so that nothing moves when they are added."""

Rooms = list[tuple[int, DeltaGenerator]]
"""Numbers of configurations, and the containers for the sentences about them."""


def cards(found: GridResult, shown: int | None) -> Rooms:
    """Show one card per objective. Return the containers for the sentences that `fill` adds later."""
    best = {name: ranked[0] for name in OBJECTIVES if (ranked := found.ranked(name))}
    rooms: Rooms = []
    places = st.container(key="ways-strategies").columns(max(1, len(best)))
    for place, (name, number) in zip(places, best.items(), strict=False):
        with place.container(border=True, height="stretch", gap="small"):
            with st.container(horizontal=True, vertical_alignment="top"):
                st.metric(_BEST[name], _figure(found, name, number))
                st.button(
                    "Show",
                    key=f"strategies-show-{name}",
                    type="tertiary",
                    icon=":material/visibility:",
                    disabled=number == shown,
                    help="Shown below." if number == shown else "Show its details below.",
                    on_click=session().of(StrategyState).choose,
                    args=(found, number),
                )
            room = st.container(height=_SENTENCES, border=False, gap="xsmall")
            strategy = found.configurations[number].strategy
            devices = f" :gray[· {_count(strategy.devices)}]" if strategy.devices > 1 else ""
            spec = found.configurations[number].spec
            which = f" :gray[· {literal(found.family.describe(spec))}]" if found.several_networks else ""
            room.markdown(f"{literal(strategy.summary)}{devices}{which}")
            rooms.append((number, room))
    return rooms


def _figure(found: GridResult, name: str, number: int) -> str:
    column = found.columns[name][number]
    if name == "throughput":
        return f"{column:,.0f} samples/s"
    if name == "devices":
        return _count(int(column))
    return show_time(column, "s") if name == "latency" else show_memory(column, "B")


def _count(devices: int) -> str:
    return counted(devices, "device")


def fill(asked: Asked, rooms: Rooms) -> None:
    """Add the bottleneck of each configuration, the slowest to simulate last. Call this after all else is drawn."""
    for number, room in sorted(rooms, key=lambda each: operations(asked, each[0])):
        quick = quick_to_simulate(asked, number)
        room.caption(
            literal(bottleneck_of(asked, number)) if quick else "Press Show to simulate it and see its bottleneck."
        )
