"""The referee: what a valid schedule is.  It knows no solver and recomputes everything itself."""

from tessel_core.rules.claims import check_claims
from tessel_core.rules.referee import RULES, Rule, Violation, check_schedule, insist

__all__ = ["RULES", "Rule", "Violation", "check_claims", "check_schedule", "insist"]
