"""The recommended strategy of an operator graph as a placement file."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from tessel_core.model import PlacementReport, Status
from tessel_core.strategies.graphs.timing import PlacedCandidate
from tessel_core.workbench.placement_files import answer_text
from tessel_core.workbench.placing import Placing


def strategy_placing(placing: Placing, candidate: PlacedCandidate) -> Placing:
    """Return the placement of one replica of a strategy on the mesh of `placing`."""
    pipeline, devices = candidate.pipeline, candidate.placed.devices[0]
    placement = pipeline.placement
    return replace(
        placing,
        costs=pipeline.costs,
        replicas=pipeline.replicas if placement.replicated else None,
        layout=candidate.placed.configuration.layout,
        assignment=tuple(tuple(devices[i] for i in on) for on in placement.assignment),
        stages=placement.stages,
    )


def strategy_placement_text(placing: Placing, candidate: PlacedCandidate) -> str:
    """Return the placement of one replica of a strategy as a tessel-placement file.

    The file claims an optimal load only if the placement has all devices of the mesh, because the search had no others.
    """
    placed, pipeline = strategy_placing(placing, candidate), candidate.pipeline
    solution = placed.placement
    assert solution is not None, "a candidate has a placement"
    whole = len(candidate.placed.devices[0]) == len(solution.devices)
    load = Fraction(placed.problem.measure(solution))
    proved = whole and pipeline.proved
    report = PlacementReport(
        status=Status.PROVED_OPTIMAL if proved else Status.FEASIBLE,
        solution=solution,
        objective_name=placed.objective,
        objective=load,
        bound=load if proved else None,
        solver="dp" if candidate.placed.configuration.layout is None else "layout",
    )
    return answer_text(placed, report)
