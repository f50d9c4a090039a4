"""Every placer, in the order in which people are offered them, and the front door that keeps them honest."""

from __future__ import annotations

from dataclasses import fields, replace

from tessel_core.control import Control
from tessel_core.errors import InputError, RefereeError
from tessel_core.model import Placement, PlacementReport, Status
from tessel_core.options import check_options
from tessel_core.placement.problem import PlacementProblem, Placer
from tessel_core.registry import Registry
from tessel_core.rules import check_allowances, insist_placement

PLACERS = Registry[Placer](
    "placer",
    "tessel_core.placement",
    {
        "dp": "dp:DP",
        "cp-sat": "cp_sat:CP_SAT",
        "by-order": "baselines.simple:BY_ORDER",
        "pipedream": "baselines.simple:PIPEDREAM",
        "greedy": "baselines.simple:GREEDY",
        "balanced-layers": "baselines.simple:BALANCED_LAYERS",
        "one-device": "baselines.simple:ONE_DEVICE",
        "local-search": "baselines.local_search:LOCAL_SEARCH",
        "partitioner": "baselines.partitioner:PARTITIONER",
        "expert": "baselines.simple:BY_HAND",
        "latency-cp-sat": "latency.placers:LATENCY_CP_SAT",
        "latency-dp": "latency.placers:LATENCY_DP",
        "latency-greedy": "latency.placers:LATENCY_GREEDY",
    },
)
"""Every placer by name; command line and tests follow this table."""


CANCELLED = "it was cancelled before the proof"
"""What is said where a person, not a limit, ended the search."""
_ASIDE_S = 2.0
"""Wall seconds for whether any placement fits, where a placer that proves nothing has none."""


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
    elif report.solution is None and name != default_placer(problem):
        report = _told_by_others(report, problem, config, control)
    return replace(report, solver=name, config=config, wall_s=control.elapsed_s, history=tuple(control.history))


def _told_by_others(
    report: PlacementReport, problem: PlacementProblem, config: object, control: Control
) -> PlacementReport:
    """A report without a placement, with what the placer that proves most says: that none can exist, or that others do.

    So every placer says the same of a problem that has no placement, with the least that would do.
    """
    most = PLACERS[default_placer(problem)]
    shared = {field.name for field in fields(most.config)} & {"subgraphs", "most_ideals"}
    options = {name: getattr(config, name) for name in shared if hasattr(config, name)}
    other = most.solve(problem, most.config(**options), control.quiet().part(_ASIDE_S))
    if other.status is Status.INFEASIBLE:
        shown = report.relaxed_solution
        reason = other.reason if shown is None else f"{report.reason}; and none fits: {other.reason}"
        return replace(other, relaxed_solution=shown, reason=reason)
    beside = "; other placements keep all rules" if other.solution is not None else ""
    return replace(report, reason=report.reason + beside)


def find_placer(name: str) -> Placer:
    """The placer called `name`; InputError with the known names where there is none."""
    return PLACERS.find(name)


def _insist_allowed(placement: Placement, problem: PlacementProblem, placer: str) -> None:
    for violation in check_allowances(placement, problem.allowances):
        raise RefereeError(f"{placer} returned an invalid placement: {violation}")
