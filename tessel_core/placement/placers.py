"""Every placer, in the order in which people are offered them, and the front door that keeps them honest."""

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
    """The objectives that it serves."""
    contiguous: tuple[bool, ...] = (True, False)
    """Whether it serves problems that ask for contiguous placements, those that take any, or both."""
    keeps_branches_apart: bool = False
    """Whether it serves problems that ask for it."""
    replicates: tuple[bool, ...] = (False,)
    """Whether it serves problems whose stages have one device, those that let a stage have several, or both."""
    several_stages: bool = False
    """Whether it makes layouts with several stages per device, and those only."""
    judges: bool = False
    """Whether it judges the problem's placement by hand instead of making one."""

    def why_not(self, problem: PlacementProblem) -> str:
        """Why the placer does not serve the problem; empty where it does."""
        if problem.objective not in self.objectives:
            return f"does not serve the objective {problem.objective}, it serves {' and '.join(self.objectives)}"
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
"""Every placer by name, those of other packages last; command line and tests follow this table."""

CANCELLED = "it was cancelled before the proof"
"""The reason in a report of a search that a person, not a limit, ended."""
_ASIDE_S = 2.0
"""Wall seconds for whether any placement fits, where a placer that proves nothing has none."""

find_placer = PLACERS.find


def default_placer(problem: PlacementProblem) -> str:
    """The first of the placers that serves the problem: the one that proves most.

    Raises InputError where none does.
    """
    found = next((placer.name for placer in PLACERS.values() if not placer.why_not(problem)), None)
    if found is None:
        kind = "contiguous" if problem.contiguous else "non-contiguous"
        raise InputError("placer", f"there is none for {kind} placements and the objective {problem.objective}")
    return found


def solve_placement(
    name: str, problem: PlacementProblem, config: object = None, control: Control | None = None
) -> PlacementReport:
    """A placement by the placer called `name`; the referee has passed what comes back.

    Raises InputError for an unknown placer, one that does not serve what the problem asks for, an option out of range,
    or an operator that no device supports; RefereeError where the placer broke a rule, which is our bug.
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
    """A report without a placement, with the finding of the placer that proves most: none can exist, or others do.

    So all placers report infeasibility alike, with the least memory and number of accelerators that would do.
    """
    most = PLACERS[default_placer(problem)]
    shared = {field.name for field in fields(most.config)} & {"subgraphs", "most_ideals"}
    options = {name: getattr(report.config, name) for name in shared if hasattr(report.config, name)}
    other = most.solve(problem, most.config(**options), control.quiet().part(_ASIDE_S))
    report = replace(report, wall_s=control.elapsed_s)
    if other.status is not Status.INFEASIBLE:
        beside = "; other placements keep all rules" if other.solution is not None else ""
        return replace(report, reason=report.reason + beside)
    return replace(
        report,
        status=Status.INFEASIBLE,
        bound=other.bound,
        reason=other.reason if report.relaxed_solution is None else f"{report.reason}; and none fits: {other.reason}",
        least_memory=other.least_memory,
        least_accelerators=other.least_accelerators,
    )


@dataclass(frozen=True, slots=True)
class PlacementQuestion:
    """One search, complete: equal questions have equal answers, whatever time the machine takes."""

    placer: str
    problem: PlacementProblem
    config: object

    @property
    def title(self) -> str:
        """The placer as people write it."""
        return find_placer(self.placer).title

    def solve(self, control: Control) -> PlacementReport:
        """The answer, as `solve_placement` gives it."""
        return solve_placement(self.placer, self.problem, self.config, control)
