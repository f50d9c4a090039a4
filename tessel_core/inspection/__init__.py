"""What a finished schedule answers: how much is idle and why, what holds a run up, what is critical."""

from tessel_core.inspection.causes import CAUSES, Cause, IdleCauses, idle_causes, steady_idle_causes
from tessel_core.inspection.idle import PARTS, IdleSplit
from tessel_core.inspection.obstacles import Link, Obstacle, Obstacles, Reason

__all__ = [
    "CAUSES",
    "PARTS",
    "Cause",
    "IdleCauses",
    "IdleSplit",
    "Link",
    "Obstacle",
    "Obstacles",
    "Reason",
    "idle_causes",
    "steady_idle_causes",
]
