"""Control of a running solver: its clock, cancel switch, threads and progress reports."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any


def gap(objective: Fraction | None, bound: Fraction | None) -> float | None:
    """Return (objective - bound) / objective as a fraction, or None while either is missing."""
    if objective is None or bound is None:
        return None
    return float((objective - bound) / objective) if objective else 0.0


class Abandonable(threading.Thread):
    """A daemon thread. It may still run C++ code when its caller no longer waits for it, or when the process exits."""

    def __init__(self, target: Callable[[], object]) -> None:
        super().__init__(target=target, daemon=True)


@dataclass(frozen=True, slots=True)
class Progress:
    """One progress report of a running solver."""

    wall_s: float
    phase: str
    """Name of the current phase of the search.  All reports of one phase have the same kind of objective."""
    objective: Fraction | None
    """Objective of the incumbent; None before the first solution."""
    bound: Fraction | None
    """Proved bound on the objective; None while nothing is proved."""
    by: str = ""
    """Name of the method that improved the incumbent or the bound; empty if unknown."""

    @property
    def gap(self) -> float | None:
        """Relative gap (objective - bound) / objective; None while either is missing."""
        return gap(self.objective, self.bound)


class Control:
    """Cancel switch, time limit and progress of one solve; safe to share between threads.

    Parameters
    ----------
    time_limit_s : float
        Wall seconds from now after which the solver must stop and return its incumbent.
    on_progress : Callable
        Called on the solver's thread with each `Progress`.  It must be quick and must not raise.
    """

    def __init__(self, time_limit_s: float = 3600.0, on_progress: Callable[[Progress], None] | None = None) -> None:
        self._start = time.monotonic()
        self._deadline = self._start + time_limit_s
        self._cancel = threading.Event()
        self._on_progress = on_progress
        self.history: list[Progress] = []
        self.parts: list[Any] = []
        """Finished parts of the result, oldest first. The solver may still compute the other parts."""

    def cancel(self) -> None:
        """Ask the solver to stop within a second and return its incumbent."""
        self._cancel.set()

    def quiet(self) -> Control:
        """Return a control with the same clock and cancel switch that publishes no progress.

        It is used for preliminary searches that have another objective.
        """
        quiet = copy.copy(self)
        quiet._on_progress, quiet.history, quiet.parts = None, [], []
        return quiet

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancel.is_set()

    @property
    def elapsed_s(self) -> float:
        """Wall seconds since this control was created."""
        return time.monotonic() - self._start

    @property
    def remaining_s(self) -> float:
        """Wall seconds left, never negative; 0 once cancelled."""
        return 0.0 if self.cancelled else max(0.0, self._deadline - time.monotonic())

    @property
    def stopped(self) -> bool:
        """Whether the solve is cancelled or out of time."""
        return self.remaining_s <= 0.0

    def part(self, seconds: float) -> Control:
        """Return a control for a part of the work, with a time limit of at most `seconds` from now.

        It shares the clock, the cancel switch and the progress reports with this control.
        """
        part = copy.copy(self)
        part._deadline = min(self._deadline, time.monotonic() + seconds)
        return part

    def report(self, phase: str, objective: Fraction | int | None, bound: Fraction | int | None, by: str = "") -> None:
        """Publish progress and append it to the history; `by` names the method that made it."""
        incumbent, proved = (None if value is None else Fraction(value) for value in (objective, bound))
        progress = Progress(self.elapsed_s, phase, incumbent, proved, by)
        self.history.append(progress)
        if self._on_progress is not None:
            self._on_progress(progress)

    def deliver(self, part: object) -> None:
        """Publish a finished part of the result."""
        self.parts.append(part)
