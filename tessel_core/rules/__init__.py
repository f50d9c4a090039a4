"""The referee: what a valid schedule or placement is.  It knows no solver and recomputes everything itself."""

from tessel_core.rules.claims import check_claims, check_placement_claims
from tessel_core.rules.placement_referee import (
    LATENCY_RULES,
    PLACEMENT_RULES,
    check_allowances,
    check_placement,
    insist_placement,
)
from tessel_core.rules.referee import RULES, Violation, check_schedule, insist

__all__ = [
    "LATENCY_RULES",
    "PLACEMENT_RULES",
    "RULES",
    "Violation",
    "check_allowances",
    "check_claims",
    "check_placement",
    "check_placement_claims",
    "check_schedule",
    "insist",
    "insist_placement",
]
