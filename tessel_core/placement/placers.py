"""The table of placers, which search for placements, and `solve_placement`, which runs one and checks its result."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import ClassVar

from tessel_core.control import Control
from tessel_core.errors import InputError, RefereeError
from tessel_core.model import FORWARD_BACKWARD, THROUGHPUT, PlacementReport, Status
from tessel_core.placement.problem import PlacementProblem
from tessel_core.registry import Registry, Solver


@dataclass(frozen=True, slots=True)
class Placer(Solver):
    """A solver whose problem is a `PlacementProblem`."""

    kind: ClassVar[str] = "placer"

    objectives: tuple[str, ...] = (THROUGHPUT, FORWARD_BACKWARD)
    """Objectives that the placer supports."""
    contiguous: tuple[bool, ...] = (True, False)
    """Supported values of `PlacementProblem.contiguous`."""
    keeps_branches_apart: bool = False
    """Whether the placer supports problems that keep branches apart."""
    replicates: tuple[bool, ...] = (False,)
    """Supported values of `PlacementProblem.replicates`."""
    several_stages: bool = False
    """Whether the placer supports only problems with several stages per device.

    If false, it supports only problems with one stage per device.
    """
    judges: bool = False
    """Whether the placer evaluates `PlacementProblem.by_hand` instead of searching for a placement."""

    def why_not(self, problem: PlacementProblem) -> str:
        """Return why the placer does not support the problem, or an empty string if it does."""
        if problem.objective not in self.objectives:
            return f"does not support the objective {problem.objective}, only {' and '.join(self.objectives)}"
        if problem.contiguous not in self.contiguous:
            return f"is for {'non-contiguous' if problem.contiguous else 'contiguous'} placements only"
        if problem.branches_apart and not self.keeps_branches_apart:
            return "cannot keep branches apart"
        if problem.replicates not in self.replicates:
            return "cannot replicate stages" if problem.replicates else "is for replicated stages only"
        if not self.judges and self.several_stages != (problem.layout is not None):
            return "needs a number of stages per device" if self.several_stages else "places one stage per device"
        return ""


PLACERS = Registry(
    Placer,
    "tessel_core.placement",
    {
        "dp": "dp:DP",
        "cp-sat": "cp_sat:CP_SAT",
        "by-order": "baselines.simple:BY_ORDER",
        "pipedream": "baselines.simple:PIPEDREAM",
        "greedy": "baselines.simple:GREEDY",
        "data-parallel": "baselines.simple:DATA_PARALLEL",
        "balanced-layers": "baselines.simple:BALANCED_LAYERS",
        "one-device": "baselines.simple:ONE_DEVICE",
        "local-search": "baselines.local_search:LOCAL_SEARCH",
        "partitioner": "baselines.partitioner:PARTITIONER",
        "layout": "layouts:LAYOUT",
        "expert": "baselines.simple:BY_HAND",
        "latency-cp-sat": "latency.placers:LATENCY_CP_SAT",
        "latency-dp": "latency.placers:LATENCY_DP",
        "latency-greedy": "latency.placers:LATENCY_GREEDY",
    },
    group="tessel.placers",
)
"""All placers by name, with the placers of other packages last. The command line lists them in this order."""

CANCELLED = "it was cancelled before the proof"
"""The `reason` in the report of a search that the user cancelled."""
_FEASIBILITY_S = 2.0
"""Time limit, in seconds, to decide whether any placement fits after a placer without proofs found none."""

find_placer = PLACERS.find


def default_placer(problem: PlacementProblem) -> str:
    """Return the name of the first placer in the table that supports the problem.

    It is the one that proves most. Raises InputError if no placer supports the problem.
    """
    name = next((placer.name for placer in PLACERS.values() if not placer.why_not(problem)), None)
    if name is None:
        kind = "contiguous" if problem.contiguous else "non-contiguous"
        raise InputError("placer", f"there is none for {kind} placements and the objective {problem.objective}")
    return name


def solve_placement(
    name: str, problem: PlacementProblem, config: object = None, control: Control | None = None
) -> PlacementReport:
    """Search for a placement with the placer called `name`, and check that the placement keeps the rules.

    Raises InputError if the placer is unknown or does not support the problem, if an option is out of range, or if no
    device supports an operator. Raises RefereeError if the placement breaks a rule, which is a bug of the placer.
    """
    placer = find_placer(name)
    objection = placer.why_not(problem)
    if objection:
        raise InputError(f"placer {name}", objection)
    control = Control() if control is None else control

    def referee(report: PlacementReport) -> None:
        for violation in problem.violations(report.solution) if report.solution is not None else ():
            raise RefereeError(f"{name} returned an invalid placement: {violation}")

    report = placer.ask((problem,), config, control, referee)
    if report.status is Status.CANCELLED:
        return replace(report, reason=CANCELLED)
    if report.solution is None and name != default_placer(problem):
        return _why_none(report, problem, control)
    return report


def _why_none(report: PlacementReport, problem: PlacementProblem, control: Control) -> PlacementReport:
    """Return the report of a placer that found no placement, with the reason why there is none, if that can be proved.

    The default placer decides whether any placement exists. So all placers give the same reason, and the same least
    memory and number of accelerators that would be enough.
    """
    most = PLACERS[default_placer(problem)]
    shared = {field.name for field in fields(most.config)} & {"subgraphs", "most_ideals"}
    options = {name: getattr(report.config, name) for name in shared if hasattr(report.config, name)}
    other = most.solve(problem, most.config(**options), control.quiet().part(_FEASIBILITY_S))
    report = replace(report, wall_s=control.elapsed_s)
    if other.status is not Status.INFEASIBLE:
        beside = "; other placements are valid" if other.solution is not None else ""
        return replace(report, reason=report.reason + beside)
    return replace(
        report,
        status=Status.INFEASIBLE,
        bound=other.bound,
        reason=other.reason
        if report.relaxed_solution is None
        else f"{report.reason}; and no placement fits: {other.reason}",
        least_memory=other.least_memory,
        least_accelerators=other.least_accelerators,
    )


@dataclass(frozen=True, slots=True)
class PlacementQuestion:
    """All inputs of `solve_placement`. Equal questions give equal reports, unless a time limit stops a search."""

    placer: str
    problem: PlacementProblem
    config: object

    @property
    def title(self) -> str:
        """Display title of the placer."""
        return find_placer(self.placer).title

    def solve(self, control: Control) -> PlacementReport:
        """Return the report of `solve_placement`."""
        return solve_placement(self.placer, self.problem, self.config, control)
