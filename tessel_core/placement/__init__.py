"""Placement searches and baselines. `PLACERS` lists them, and `solve_placement` runs them."""

from tessel_core.placement.placers import (
    PLACERS,
    PlacementQuestion,
    Placer,
    default_placer,
    find_placer,
    solve_placement,
)
from tessel_core.placement.problem import PlacementProblem

__all__ = [
    "PLACERS",
    "PlacementProblem",
    "PlacementQuestion",
    "Placer",
    "default_placer",
    "find_placer",
    "solve_placement",
]
