"""From a point to its result, in whichever process: no state but a few placements that the next points share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from tessel_core.control import Control
from tessel_core.costs.costed import CostOptions, with_batch_size
from tessel_core.errors import InputError
from tessel_core.model import Communication, PlacementReport, Status
from tessel_core.placement import find_placer, solve_placement
from tessel_core.placement.problem import placement_problem
from tessel_core.planning import PlanOptions, plan_of
from tessel_core.scheduling import find_scheduler, solve_schedule
from tessel_core.sweeps.results import PointResult, PointStatus
from tessel_core.sweeps.sweep import SweepPoint

_PLACEMENTS_KEPT = 4


def solve_point(point: SweepPoint) -> PointResult:
    """Cost, place, plan and schedule; the same answer everywhere, unless a time limit struck, which it says.

    Raises
    ------
    RefereeError
        When a solver broke a rule: our bug.
    """
    began = time.monotonic()
    try:
        return _solved(point, began)
    except InputError as error:
        reason, wall_s = str(error), time.monotonic() - began
        return PointResult(status=PointStatus.DOES_NOT_APPLY, reason=reason, wall_s=wall_s)


def _solved(point: SweepPoint, began: float) -> PointResult:
    placed = _placed(_Asked(point.placement_key, point))
    if placed.solution is None:
        reason = f"no placement: {placed.reason or 'none was found'}"
        status = PointStatus.of(placed.status)
        return PointResult(status=status, reason=reason, wall_s=time.monotonic() - began)
    plan = plan_of(placed.solution, PlanOptions(point.in_flight, point.terms.split_weights))
    half = point.terms.time_limit / 2
    config = _config(find_scheduler(point.scheduler).config, time_limit=half, workers=1, seed=point.terms.seed)
    report = solve_schedule(point.scheduler, plan, point.micro_batches, config, Control(half))
    found = PointResult.of(report, point, time.monotonic() - began)
    if placed.status is Status.PROVED_OPTIMAL or not placed.reason:
        return found
    return replace(found, reason="; ".join(filter(None, (f"placement: {placed.reason}", found.reason))))


@dataclass(frozen=True)
class _Asked:
    """A point as far as its placement goes."""

    key: str
    point: SweepPoint = field(compare=False)


@lru_cache(maxsize=_PLACEMENTS_KEPT)
def _placed(asked: _Asked) -> PlacementReport:
    """Shared by points that differ in their schedules only, which follow each other."""
    point, terms = asked.point, asked.point.terms
    mesh = point.mesh.mesh if point.memory is None else point.mesh.mesh.with_capacity(point.memory)
    options = CostOptions(terms.dtype, terms.optimizer, point.in_flight)
    graph = with_batch_size(point.graph.graph, point.micro_batch_size)
    problem = placement_problem(graph, mesh, options, Communication(terms.communication))
    half = terms.time_limit / 2
    config = _config(find_placer(point.placer).config, time_limit=half, seed=terms.seed)
    return solve_placement(point.placer, problem, config, Control(half))


def _config(kind: type, **wanted: float) -> Any:
    """A config with as many of these options as it has; the others as they are."""
    known = {each.name for each in fields(kind)}
    return kind(**{name: value for name, value in wanted.items() if name in known})
