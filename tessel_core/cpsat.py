"""Solve CP-SAT models with a time limit and a cancel switch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum

from ortools.sat.python import cp_model

from tessel_core.control import Control

_CANCEL_POLL_SECONDS = 0.05
LARGEST_SUM = 2**28
"""Largest sum of coefficients in one constraint for which presolve is safe.

Presolve of CP-SAT 9.15 adds coefficients of Booleans in 32 bits.  On overflow it drops conditions of constraints and
reports false optima (or-tools issue 5293; 1.5 % of small splits).  It also adds constraints, hence the margin below
2**31."""
_DETERMINISTIC_PER_SECOND = 0.4
"""Measured number of units of CP-SAT's deterministic clock per wall second.

It only affects how long a repeatable search runs.
"""


class Verdict(Enum):
    """Outcome of one CP-SAT solve."""

    PROVED = cp_model.OPTIMAL
    """A solution that is proved optimal."""
    FOUND = cp_model.FEASIBLE
    """A solution without a proof of optimality."""
    IMPOSSIBLE = cp_model.INFEASIBLE
    """A proof that no solution exists."""
    UNKNOWN = cp_model.UNKNOWN
    """Neither a solution nor a proof within the time limit."""

    @property
    def found(self) -> bool:
        """Whether there is a solution."""
        return self in (Verdict.PROVED, Verdict.FOUND)


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits and settings of one CP-SAT solve."""

    seconds: float
    """Time limit in wall seconds, or in about as many seconds of the deterministic clock if `repeatable`."""
    workers: int
    seed: int
    relaxation: bool = True
    """Whether to use linear relaxations."""
    repeatable: bool = False
    """Whether to use the deterministic clock, so that the same seed gives the same answer."""

    team: tuple[str, ...] = ()
    """Names of the subsolvers, one per worker, instead of CP-SAT's default ones.  A single worker ignores them."""
    interleaved: bool = False
    """Whether the workers take turns with all default subsolvers, which include large neighbourhood search.

    Otherwise a single worker only uses one subsolver that branches."""

    def within(self, seconds: float) -> Effort:
        """Return this effort with a time limit of at most `seconds`."""
        return replace(self, seconds=min(self.seconds, seconds))


@dataclass(frozen=True)
class Answer:
    """Outcome of a solve, with the solver object that holds the values of variables and the bound."""

    verdict: Verdict
    solver: cp_model.CpSolver
    asked: bool = True
    """Whether the solver was called; False if no time was left."""

    def value(self, expression: cp_model.LinearExprT) -> int:
        """Return the value of an expression in the solution."""
        return int(self.solver.value(expression))

    @property
    def counted_seconds(self) -> float:
        """Time that the solve took, as repeatable solves count it."""
        return self.solver.deterministic_time / _DETERMINISTIC_PER_SECOND if self.asked else 0.0

    @property
    def bound(self) -> float:
        """Best proved bound on the objective; minus infinity if the solver was not called."""
        return self.solver.best_objective_bound if self.asked else float("-inf")


def ask(
    model: cp_model.CpModel,
    effort: Effort,
    control: Control,
    *,
    presolve: bool = True,
    on_solution: Callable[[int, float], None] | None = None,
) -> Answer:
    """Solve `model` within `effort` and the remaining time of `control`.

    `on_solution` is called with (objective, bound) for each new solution.  Presolve is skipped if `presolve` is False
    or `largest_sum(model)` exceeds `LARGEST_SUM`.
    """
    solver = cp_model.CpSolver()
    if control.stopped:
        return Answer(Verdict.UNKNOWN, solver, asked=False)
    parameters = solver.parameters
    parameters.num_workers = effort.workers
    parameters.random_seed = effort.seed
    # By default CP-SAT catches Ctrl-C and ends only this solve; the search would continue with the next one.
    parameters.catch_sigint_signal = False
    parameters.max_time_in_seconds = control.remaining_s
    if effort.repeatable:
        parameters.max_deterministic_time = effort.seconds * _DETERMINISTIC_PER_SECOND
    else:
        parameters.max_time_in_seconds = min(effort.seconds, control.remaining_s)
    parameters.subsolvers.extend(effort.team)
    parameters.interleave_search = effort.interleaved
    if not effort.relaxation:
        parameters.linearization_level = 0
        if effort.workers > 1:  # most default subsolvers override linearization_level
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
    """Return the largest sum of absolute terms of a linear constraint, or of demands of a cumulative constraint."""
    magnitude = [max(map(abs, variable.domain)) for variable in model.proto.variables]
    largest = 0
    for constraint in model.proto.constraints:
        if constraint.has_linear():
            terms = zip(constraint.linear.vars, constraint.linear.coeffs, strict=True)
            largest = max(largest, sum(abs(factor) * magnitude[variable] for variable, factor in terms))
        elif constraint.has_cumulative():
            largest = max(largest, sum(demand.offset for demand in constraint.cumulative.demands))
    return largest


class _Listener(cp_model.CpSolverSolutionCallback):
    def __init__(self, on_solution: Callable[[int, float], None]) -> None:
        super().__init__()
        self._on_solution = on_solution

    def on_solution_callback(self) -> None:
        self._on_solution(int(self.objective_value), self.best_objective_bound)


@contextmanager
def _watched(solver: cp_model.CpSolver, control: Control) -> Iterator[None]:
    """Stop the solver soon after the control is cancelled.

    CP-SAT ignores a stop request that arrives before its search begins, so the request is repeated (or-tools issue
    3621).
    """
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_CANCEL_POLL_SECONDS):
            if control.cancelled:
                solver.stop_search()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
