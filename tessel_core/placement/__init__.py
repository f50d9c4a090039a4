"""The placers, behind one table and one front door."""

from tessel_core.placement.placers import PLACERS, PlacementQuestion, default_placer, find_placer, solve_placement
from tessel_core.placement.problem import PlacementProblem

__all__ = [
    "PLACERS",
    "PlacementProblem",
    "PlacementQuestion",
    "default_placer",
    "find_placer",
    "solve_placement",
]
