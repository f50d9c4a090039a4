"""How long a distributed program takes, what its devices hold, and why."""

from tessel_core.simulation.attribution import (
    CACHE,
    GIVEN,
    STATE,
    MemoryShare,
    holdings,
    memory_shares,
    over_micro_batches,
    peak_time,
)
from tessel_core.simulation.costs import Costs, MeshCosts, formula
from tessel_core.simulation.distir_rules import DistIrCosts, with_host
from tessel_core.simulation.simulator import check_semantics, simulate
from tessel_core.simulation.trace import Listed, Trace, kind_of, listing, shortage, worker_peaks
from tessel_core.simulation.waiting import (
    Neighbour,
    came_after,
    device_times,
    longest_operation,
    runs_of,
    waited_for,
    why_waiting,
)

__all__ = [
    "CACHE",
    "GIVEN",
    "STATE",
    "Costs",
    "DistIrCosts",
    "Listed",
    "MemoryShare",
    "MeshCosts",
    "Neighbour",
    "Trace",
    "came_after",
    "check_semantics",
    "device_times",
    "formula",
    "holdings",
    "kind_of",
    "listing",
    "longest_operation",
    "memory_shares",
    "over_micro_batches",
    "peak_time",
    "runs_of",
    "shortage",
    "simulate",
    "waited_for",
    "why_waiting",
    "with_host",
    "worker_peaks",
]
