"""From placements to micro-batch plans, and the search for the placement whose schedule is best."""

from tessel_core.planning.plan import PlanOptions, plan_of

__all__ = ["PlanOptions", "plan_of"]
