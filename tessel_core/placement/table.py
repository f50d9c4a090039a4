"""Every placer, in the order in which people are offered them, and the front door that keeps them honest."""

from __future__ import annotations

from dataclasses import replace

from tessel_core.control import Control
from tessel_core.errors import InputError, RefereeError
from tessel_core.model import Placement, PlacementReport, Status
from tessel_core.options import check_options
from tessel_core.placement.baselines import BASELINES
from tessel_core.placement.cp_sat import CP_SAT
from tessel_core.placement.dp import DP
from tessel_core.placement.latency.placers import LATENCY_PLACERS
from tessel_core.placement.problem import PlacementProblem, Placer
from tessel_core.rules import check_allowances, insist_placement

PLACERS: dict[str, Placer] = {placer.name: placer for placer in (DP, CP_SAT, *BASELINES, *LATENCY_PLACERS)}
"""Every placer by name; command line and tests follow this table."""


CANCELLED = "it was cancelled before the proof"
"""What is said where a person, not a limit, ended the search."""


def default_placer(problem: PlacementProblem) -> str:
    """The first of the placers that serves the problem: the one that proves most.

    Raises
    ------
    InputError
        Where none does.
    """
    found = next((placer.name for placer in PLACERS.values() if placer.serves(problem)), None)
    if found is None:
        kind = "contiguous" if problem.contiguous else "non-contiguous"
        raise InputError("placer", f"there is none for {kind} placements and the objective {problem.objective}")
    return found


def solve_placement(
    name: str, problem: PlacementProblem, config: object = None, control: Control | None = None
) -> PlacementReport:
    """A placement by the placer called `name`; the referee has passed what comes back.

    Raises
    ------
    InputError
        For an unknown placer, one that does not serve what the problem asks for, an option out of range, or an
        operator that no device supports.
    RefereeError
        When the placer broke a rule: our bug.
    """
    placer = find_placer(name)
    config = placer.config() if config is None else config
    if not isinstance(config, placer.config):
        raise InputError(f"placer {name}", f"takes a {placer.config.__name__}, got {type(config).__name__}")
    placer.check_serves(problem)
    check_options(config)
    control = Control() if control is None else control
    report = placer.solve(problem, config, control)
    if report.solution is not None:
        insist_placement(report.solution, name, without=problem.waived_rules)
        _insist_allowed(report.solution, problem, name)
    if report.status is Status.CANCELLED:
        report = replace(report, reason=CANCELLED)
    return replace(report, solver=name, config=config, wall_s=control.elapsed_s, history=tuple(control.history))


def find_placer(name: str) -> Placer:
    """The placer called `name`; InputError with the known names where there is none."""
    if name not in PLACERS:
        raise InputError("placer", f"{name!r} is not known, known are {', '.join(PLACERS)}")
    return PLACERS[name]


def _insist_allowed(placement: Placement, problem: PlacementProblem, placer: str) -> None:
    for violation in check_allowances(placement, problem.allowances):
        raise RefereeError(f"{placer} returned an invalid placement: {violation}")
