"""Running a CP-SAT model so that it can be cancelled, is bounded in time and is repeatable with one worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum

from ortools.sat.python import cp_model

from tessel_core.control import Control

_WATCH_S = 0.05
LARGEST_SUM = 2**28
"""Presolve of CP-SAT 9.15 adds up coefficients of Booleans in 32 bits, and drops conditions of rules where that
overflows: false optima (or-tools issue 5293; 1.5 % of small splits).  It adds rules up, too, hence the margin."""
_DETERMINISTIC_PER_SECOND = 0.4
"""CP-SAT's deterministic clock against the wall, on models like ours; only the sizes of slices depend on it."""


class Verdict(Enum):
    """The outcome of a question to the solver."""

    PROVED = cp_model.OPTIMAL
    """Found, and proved that nothing is better."""
    FOUND = cp_model.FEASIBLE
    IMPOSSIBLE = cp_model.INFEASIBLE
    """Proved that there is none."""
    UNKNOWN = cp_model.UNKNOWN
    """Neither found nor excluded in time."""

    @property
    def found(self) -> bool:
        return self in (Verdict.PROVED, Verdict.FOUND)


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to try: seconds (wall, or about as many of CP-SAT's deterministic clock), workers and seed."""

    seconds: float
    workers: int
    seed: int
    relaxation: bool = True
    """Whether to use linear relaxations."""
    repeatable: bool = False
    """Whether to measure seconds by the deterministic clock, so that the same seed gives the same answer."""

    team: tuple[str, ...] = ()
    """Names of the subsolvers to use, one a worker, in place of the usual team; one worker alone keeps its own."""

    def within(self, seconds: float) -> Effort:
        """The same with at most `seconds`."""
        return replace(self, seconds=min(self.seconds, seconds))


@dataclass(frozen=True)
class Answer:
    """A verdict, the solver that holds the values, and the best bound it proved on its objective."""

    verdict: Verdict
    solver: cp_model.CpSolver
    asked: bool = True
    """False where there was no time to ask."""

    def value(self, expression: cp_model.LinearExprT) -> int:
        return int(self.solver.value(expression))

    @property
    def bound(self) -> float:
        return self.solver.best_objective_bound if self.asked else float("-inf")


def ask(
    model: cp_model.CpModel,
    effort: Effort,
    control: Control,
    *,
    presolve: bool = True,
    on_solution: Callable[[int, float], None] | None = None,
) -> Answer:
    """Solve `model` within `effort` and what `control` leaves; `on_solution` hears (objective, bound) as they come.

    Without `presolve`, or where the numbers of the model are too large for it, the model is searched as it is.
    """
    solver = cp_model.CpSolver()
    if control.stopped:
        return Answer(Verdict.UNKNOWN, solver, asked=False)
    parameters = solver.parameters
    parameters.num_workers = effort.workers
    parameters.random_seed = effort.seed
    # Else CP-SAT takes Ctrl-C for itself: it would end this question only, and the search would go on to the next.
    parameters.catch_sigint_signal = False
    parameters.max_time_in_seconds = control.remaining_s
    if effort.repeatable:
        parameters.max_deterministic_time = effort.seconds * _DETERMINISTIC_PER_SECOND
    else:
        parameters.max_time_in_seconds = min(effort.seconds, control.remaining_s)
    parameters.subsolvers.extend(effort.team)
    if not effort.relaxation:
        parameters.linearization_level = 0
        if effort.workers > 1:  # most of the usual team insists on its own level
            parameters.subsolvers.extend(["no_lp", "quick_restart_no_lp"])
    if not presolve or largest_sum(model) > LARGEST_SUM:
        parameters.cp_model_presolve = False
        parameters.symmetry_level = 0
    with _watched(solver, control):
        status = solver.solve(model, _Listener(on_solution) if on_solution else None)
    if status == cp_model.MODEL_INVALID:
        raise AssertionError(f"CP-SAT refused the model: {model.validate()}")
    return Answer(Verdict(status), solver)


def largest_sum(model: cp_model.CpModel) -> int:
    """The most that the terms of a linear rule, or demands of a cumulative one, may sum to, whatever their signs."""
    magnitude = [max(map(abs, each.domain)) for each in model.proto.variables]
    found = 0
    for rule in model.proto.constraints:
        if rule.has_linear():
            terms = zip(rule.linear.vars, rule.linear.coeffs, strict=True)
            found = max(found, sum(abs(factor) * magnitude[variable] for variable, factor in terms))
        elif rule.has_cumulative():
            found = max(found, sum(each.offset for each in rule.cumulative.demands))
    return found


class _Listener(cp_model.CpSolverSolutionCallback):
    def __init__(self, on_solution: Callable[[int, float], None]) -> None:
        super().__init__()
        self._tell = on_solution

    def on_solution_callback(self) -> None:
        self._tell(int(self.objective_value), self.best_objective_bound)


@contextmanager
def _watched(solver: cp_model.CpSolver, control: Control) -> Iterator[None]:
    """Stops the solver once the control is cancelled.

    CP-SAT drops a stop sent before its search begins, so keep asking (or-tools issue 3621).
    """
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_WATCH_S):
            if control.cancelled:
                solver.stop_search()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
