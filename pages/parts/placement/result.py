"""Where the operators are: what was proved, what each device bears, and the graph in the colours of its devices."""

from __future__ import annotations

import streamlit as st

from pages.parts.placement.state import PlacementState
from pages.shared.markdown import literal
from pages.shared.session import session, workspace
from tessel_core.charts.device_bars import load_bars, memory_bars
from tessel_core.model import Placement, PlacementLoads
from tessel_core.workbench.messages.placement import (
    Tone,
    Verdict,
    known_bound,
    outcome_verdict,
    placement_numbers,
    placement_verdict,
)
from tessel_core.workbench.messages.plan import period_number
from tessel_core.workbench.placing import Placing


def verdicts(placing: Placing, placement: Placement, loads: PlacementLoads) -> None:
    """The state of the placement; before it, why the latest search brought none."""
    failed = None if placing.outcome is None else outcome_verdict(placing.outcome)
    if failed is not None:
        say(failed)
        st.caption("Below is the placement from before.")
    say(placement_verdict(placing, placement, loads))


def say(verdict: Verdict) -> None:
    """In the colour of the news."""
    if verdict.tone is Tone.PROVED:
        st.success(literal(verdict.text), icon=":material/verified:")
    elif verdict.tone is Tone.FOUND:
        st.info(literal(verdict.text), icon=":material/check:")
    else:
        st.warning(literal(verdict.text), icon=":material/error:")


def numbers(placing: Placing, placement: Placement, loads: PlacementLoads) -> None:
    """The numbers that people compare placements by."""
    largest, *others = placement_numbers(placing, placement, loads)
    period = period_number(placing, placement, split_weights=session().of(PlacementState).split_weights)
    found = (largest, period, *others)
    for place, number in zip(st.columns(len(found)), found, strict=True):
        place.metric(number.label, number.value, number.beside, delta_color="off", delta_arrow="off", help=number.help)


def bars(placement: Placement, loads: PlacementLoads) -> None:
    """Load and memory per device, against the bound and the capacities."""
    bound, unit = known_bound(workspace().placing), placement.graph.time_unit
    quiet = {"displayModeBar": False}
    st.plotly_chart(load_bars(loads, placement.devices, unit, bound), key="placement-loads", config=quiet)
    st.plotly_chart(memory_bars(loads, placement.devices), key="placement-memory", config=quiet)
