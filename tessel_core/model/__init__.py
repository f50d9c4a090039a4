"""Plans, operator graphs, meshes, placements, schedules and reports.

These are frozen dataclasses that check themselves. They contain no solvers and read no files. Other docstrings call
them nouns.
"""

from tessel_core.model.groups import DeviceGroups
from tessel_core.model.in_flight import InFlight
from tessel_core.model.latency import LATENCY, Latency, measure_placement
from tessel_core.model.layout import LayoutShape, StageLayout
from tessel_core.model.loads import (
    FORWARD_BACKWARD,
    OBJECTIVES,
    THROUGHPUT,
    Crossing,
    PlacementLoads,
    crossings,
    exposed_reductions,
)
from tessel_core.model.measured import Expected, MeasuredRun
from tessel_core.model.memory import MemoryProfile
from tessel_core.model.mesh import Connection, Device, DeviceMesh, Link, PeakRate, PlacementDevice
from tessel_core.model.operator_graph import CPU, DeviceTime, Edge, Operator, OperatorGraph
from tessel_core.model.placement import Allowance, DevicePool, Placement
from tessel_core.model.plan import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice
from tessel_core.model.repetend import PeriodInfimum, Repetend
from tessel_core.model.replicas import Reductions, Replication, gradient_bytes
from tessel_core.model.report import MAKESPAN, PERIOD, STOPPED, PlacementReport, ScheduleReport, SolveReport, Status
from tessel_core.model.schedule import Phase, Schedule, SteadyState
from tessel_core.model.transfers import Communication, Transfers

__all__ = [
    "CPU",
    "FORWARD_BACKWARD",
    "LATENCY",
    "MAKESPAN",
    "OBJECTIVES",
    "PERIOD",
    "STOPPED",
    "THROUGHPUT",
    "Allowance",
    "Block",
    "BlockKind",
    "Communication",
    "Connection",
    "Crossing",
    "Dependency",
    "Device",
    "DeviceGroups",
    "DeviceMesh",
    "DevicePool",
    "DeviceTime",
    "Edge",
    "Expected",
    "InFlight",
    "Latency",
    "LayoutShape",
    "Link",
    "MeasuredRun",
    "MemoryProfile",
    "MicroBatchPlan",
    "Operator",
    "OperatorGraph",
    "PeakRate",
    "PeriodInfimum",
    "Phase",
    "Placement",
    "PlacementDevice",
    "PlacementLoads",
    "PlacementReport",
    "PlanDevice",
    "Reductions",
    "Repetend",
    "Replication",
    "Schedule",
    "ScheduleReport",
    "SolveReport",
    "StageLayout",
    "Status",
    "SteadyState",
    "Transfers",
    "crossings",
    "exposed_reductions",
    "gradient_bytes",
    "measure_placement",
]
