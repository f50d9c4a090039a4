"""The placers, behind one table and one front door."""

from tessel_core.model import FORWARD_BACKWARD, THROUGHPUT, Allowance
from tessel_core.placement.problem import PlacementProblem, Placer
from tessel_core.placement.question import PlacementQuestion
from tessel_core.placement.table import PLACERS, default_placer, find_placer, solve_placement

__all__ = [
    "FORWARD_BACKWARD",
    "PLACERS",
    "THROUGHPUT",
    "Allowance",
    "PlacementProblem",
    "PlacementQuestion",
    "Placer",
    "default_placer",
    "find_placer",
    "solve_placement",
]
