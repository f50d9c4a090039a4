"""The nouns: frozen, checked once, no solving and no input or output."""

from tessel_core.model.bubbles import BubbleBreakdown
from tessel_core.model.loads import PlacementLoads
from tessel_core.model.memory import MemoryProfile
from tessel_core.model.operator_graph import CPU, DeviceTime, Edge, Operator, OperatorGraph
from tessel_core.model.placement import DevicePool, Placement, PlacementDevice
from tessel_core.model.plan import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice
from tessel_core.model.repetend import Repetend
from tessel_core.model.report import PlacementReport, ScheduleReport, SolveReport, Status
from tessel_core.model.schedule import Phase, Schedule, SteadyState

__all__ = [
    "CPU",
    "Block",
    "BlockKind",
    "BubbleBreakdown",
    "Dependency",
    "DevicePool",
    "DeviceTime",
    "Edge",
    "MemoryProfile",
    "MicroBatchPlan",
    "Operator",
    "OperatorGraph",
    "Phase",
    "Placement",
    "PlacementDevice",
    "PlacementLoads",
    "PlacementReport",
    "PlanDevice",
    "Repetend",
    "Schedule",
    "ScheduleReport",
    "SolveReport",
    "Status",
    "SteadyState",
]
