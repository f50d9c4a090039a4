"""The placers, behind one table and one front door."""

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
