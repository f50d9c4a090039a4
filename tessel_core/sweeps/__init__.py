"""Sweeps that need solving: placement × schedule search × meshes × memories, on this machine or on a cluster.

Results are kept one by one in a file of their own, so a sweep that ends early goes on where it stopped.
"""

from tessel_core.sweeps.pools import open_pool
from tessel_core.sweeps.running import SweepCounts, run_sweep
from tessel_core.sweeps.solving import PointResult, PointStatus, solve_point
from tessel_core.sweeps.store import SweepRow, SweepStore
from tessel_core.sweeps.sweep import MOST_POINTS, SolverSweep, SweepPoint, SweepTerms

__all__ = [
    "MOST_POINTS",
    "PointResult",
    "PointStatus",
    "SolverSweep",
    "SweepCounts",
    "SweepPoint",
    "SweepRow",
    "SweepStore",
    "SweepTerms",
    "open_pool",
    "run_sweep",
    "solve_point",
]
