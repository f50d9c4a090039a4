"""The best configurations of a sweep as cards: what each is best in, how it is spread, and what holds it up."""

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
"""Pixels of the sentences, kept free so that nothing jumps when they come."""

Rooms = list[tuple[int, DeltaGenerator]]
"""Numbers of configurations, and where the sentences about them go."""


def cards(found: GridResult, shown: int | None) -> Rooms:
    """A card an objective, and the rooms in them for what takes longer to say."""
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
                    help="It is shown below." if number == shown else "Look at it closely, below.",
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
    """Fill in the bottleneck of each, after everything else is drawn; the slowest to simulate comes last."""
    for number, room in sorted(rooms, key=lambda each: operations(asked, each[0])):
        quick = quick_to_simulate(asked, number)
        room.caption(
            literal(bottleneck_of(asked, number)) if quick else "Show it to have its many operations simulated."
        )
