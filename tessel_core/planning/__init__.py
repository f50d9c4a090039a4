"""Micro-batch plans and distributed programs of placements, and the joint search for a placement and its schedule."""

from tessel_core.planning.blocks import kind_of
from tessel_core.planning.joint import JointConfig, JointEntry, JointQuestion, JointReport, ranked, search_jointly
from tessel_core.planning.plan import plan_of

__all__ = [
    "JointConfig",
    "JointEntry",
    "JointQuestion",
    "JointReport",
    "kind_of",
    "plan_of",
    "ranked",
    "search_jointly",
]
