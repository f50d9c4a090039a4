"""The referee: it checks whether schedules and placements are valid.

It uses no solver, and recomputes all times and memory.
"""

from tessel_core.rules.claims import check_claims, check_placement_claims
from tessel_core.rules.measured import check_run
from tessel_core.rules.placement_referee import check_allowances, check_layout, check_placement
from tessel_core.rules.referee import Violation, check_schedule, insist

__all__ = [
    "Violation",
    "check_allowances",
    "check_claims",
    "check_layout",
    "check_placement",
    "check_placement_claims",
    "check_run",
    "check_schedule",
    "insist",
]
