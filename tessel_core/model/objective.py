"""What a placement is judged by, under the names that reports carry."""

from __future__ import annotations

from tessel_core.model.latency import Latency
from tessel_core.model.loads import OBJECTIVES, PlacementLoads
from tessel_core.model.placement import Placement

LATENCY = "latency"
"""The objective: least time from a sample's start to its end, of a placement with subgraphs."""


def measure_placement(placement: Placement, objective: str) -> float | None:
    """What a placement that keeps its rules reaches; None for an unknown objective, or a latency without subgraphs."""
    if objective == LATENCY:
        return None if placement.subgraphs is None else Latency.of(placement).total
    measure = OBJECTIVES.get(objective)
    return None if measure is None else measure(PlacementLoads.of(placement))
