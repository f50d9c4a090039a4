"""The problem that a person's decisions pose, and what is kept of a placer's answer to it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tessel_core.costs.costed import CostOptions, costed
from tessel_core.formats import MeshFile
from tessel_core.formats.placing_file import KeptOutcome
from tessel_core.model import Allowance, Communication, DevicePool, OperatorGraph, PlacementReport
from tessel_core.placement import PlacementProblem
from tessel_core.units import show_memory


@lru_cache(maxsize=16)
def mesh_problem(
    graph: OperatorGraph,
    mesh: MeshFile,
    costs: CostOptions,
    communication: Communication,
    pins: tuple[Allowance, ...],
    objective: str,
    contiguous: bool,
) -> PlacementProblem:
    """On a mesh; InputError where costs cannot be told."""
    problem = PlacementProblem.on_mesh(_costed(graph, mesh, costs), mesh.mesh, communication, pins)
    return replace(problem, objective=objective, contiguous=contiguous)


@lru_cache(maxsize=8)
def _costed(graph: OperatorGraph, mesh: MeshFile, costs: CostOptions) -> OperatorGraph:
    """The very same graph for every change beside it, so that comparing two is comparing where they lie."""
    return costed(graph, mesh.mesh, costs)


@lru_cache(maxsize=16)
def pool_problem(
    graph: OperatorGraph, pool: DevicePool, pins: tuple[Allowance, ...], objective: str, contiguous: bool
) -> PlacementProblem:
    """On so many equal accelerators and hosts; InputError where the graph has times for several kinds."""
    return replace(PlacementProblem.on_pool(graph, pool, pins), objective=objective, contiguous=contiguous)


def outcome_of(report: PlacementReport) -> KeptOutcome:
    """All of it but the placement."""
    return KeptOutcome(
        report.solver,
        report.status,
        report.objective_name,
        None if report.objective is None else float(report.objective),
        None if report.bound is None else float(report.bound),
        report.wall_s,
        ". ".join(filter(None, (report.reason, _advice(report)))),
    )


def _advice(report: PlacementReport) -> str:
    """What would do instead, where that was found; empty where it was not."""
    found = []
    if report.least_accelerators is not None:
        found.append(f"{report.least_accelerators} accelerators of the same memory")
    if report.least_memory is not None:
        found.append(f"{show_memory(report.least_memory, 'B')} on each accelerator")
    would = " or ".join(found)
    return f"{would[0].upper()}{would[1:]} would do" if would else ""
