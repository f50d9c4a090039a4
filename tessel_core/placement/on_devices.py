"""From an operator graph and devices to the problem of placing it: the one way for pages, command line and sweeps.

From there, `solve_placement` answers the problem, `plan_of` makes a micro-batch plan of the placement, and
`solve_schedule` schedules the plan.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tessel_core.costs.costed import CostOptions, costed
from tessel_core.model import THROUGHPUT, Allowance, Communication, DeviceMesh, DevicePool, OperatorGraph
from tessel_core.placement.problem import PlacementProblem


@lru_cache(maxsize=16)
def placement_problem(
    graph: OperatorGraph,
    devices: DeviceMesh | DevicePool,
    costs: CostOptions | None = None,
    communication: Communication = Communication.OVERLAPPED,
    allowances: tuple[Allowance, ...] = (),
    objective: str = THROUGHPUT,
    contiguous: bool = True,
) -> PlacementProblem:
    """The problem on a mesh, with costs derived there, or on equal accelerators and hosts, with the graph's own.

    Raises
    ------
    InputError
        Where costs cannot be derived, or on a pool, where the graph has times for several kinds of accelerators.
    """
    if isinstance(devices, DevicePool):
        problem = PlacementProblem.on_pool(graph, devices, allowances)
    else:
        priced = costed_on(graph, devices, costs or CostOptions())
        problem = PlacementProblem.on_mesh(priced, devices, communication, allowances)
    return replace(problem, objective=objective, contiguous=contiguous)


@lru_cache(maxsize=8)
def costed_on(graph: OperatorGraph, mesh: DeviceMesh, costs: CostOptions) -> OperatorGraph:
    """The very same graph for every change beside it, so that comparing two is comparing where they lie."""
    return costed(graph, mesh, costs)
