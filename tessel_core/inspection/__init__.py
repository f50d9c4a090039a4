"""Analysis of a finished schedule.

Idle time and its causes, obstacles of each run, the critical path, search by name, jitter, and differences between two
schedules.
"""

from tessel_core.inspection.causes import CAUSES, Cause, IdleCauses, idle_causes, steady_idle_causes
from tessel_core.inspection.difference import Difference, Element, Path, Turned, difference
from tessel_core.inspection.find import Found, FoundHole, FoundPeak, FoundRun, find
from tessel_core.inspection.holes import Filler, Hole, Holes, Piece
from tessel_core.inspection.idle import BUSY, PARTS, IdleSplit
from tessel_core.inspection.jitter import Jitter, Jittered, under_jitter
from tessel_core.inspection.moments import repeated_part, steadiest
from tessel_core.inspection.obstacles import Link, Obstacle, Obstacles, Reason
from tessel_core.inspection.order import OrderGraph
from tessel_core.inspection.span import DeviceSpan, span_of

__all__ = [
    "BUSY",
    "CAUSES",
    "PARTS",
    "Cause",
    "DeviceSpan",
    "Difference",
    "Element",
    "Filler",
    "Found",
    "FoundHole",
    "FoundPeak",
    "FoundRun",
    "Hole",
    "Holes",
    "IdleCauses",
    "IdleSplit",
    "Jitter",
    "Jittered",
    "Link",
    "Obstacle",
    "Obstacles",
    "OrderGraph",
    "Path",
    "Piece",
    "Reason",
    "Turned",
    "difference",
    "find",
    "idle_causes",
    "repeated_part",
    "span_of",
    "steadiest",
    "steady_idle_causes",
    "under_jitter",
]
