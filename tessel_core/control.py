"""Control of a running solver: the clock, the cancel switch, its threads and the news."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any


def gap(objective: Fraction | None, bound: Fraction | None) -> float | None:
    """(objective - bound) / objective, a fraction; None while either is missing."""
    if objective is None or bound is None:
        return None
    return float((objective - bound) / objective) if objective else 0.0


class Abandonable(threading.Thread):
    """A thread that may be in C++ when nobody waits for it any more, also at the end of the process."""

    def __init__(self, target: Callable[[], object]) -> None:
        super().__init__(target=target, daemon=True)


@dataclass(frozen=True, slots=True)
class Progress:
    """One piece of news from a running solver."""

    wall_s: float
    phase: str
    """The present work of the solver, in a few words; news of one phase have one objective."""
    objective: Fraction | None
    """Best solution so far, None before there is one."""
    bound: Fraction | None
    """Proved bound on the objective, None while nothing is proved."""
    by: str = ""
    """The method that found this step, in a word or two; empty where unknown."""

    @property
    def gap(self) -> float | None:
        """(objective - bound) / objective, a fraction; None while either is missing."""
        return gap(self.objective, self.bound)


class Control:
    """Cancel switch, time limit and progress of one solve; safe to share between threads.

    `time_limit_s` wall seconds from now solvers must wrap up, keeping the best so far.  `on_progress` is called on the
    solver's thread with each `Progress`; it must be quick and must not raise.
    """

    def __init__(self, time_limit_s: float = 3600.0, on_progress: Callable[[Progress], None] | None = None) -> None:
        self._start = time.monotonic()
        self._deadline = self._start + time_limit_s
        self._cancel = threading.Event()
        self._on_progress = on_progress
        self.history: list[Progress] = []
        self.parts: list[Any] = []
        """Parts of the answer that are ready while the rest is still worked on, oldest first."""

    def cancel(self) -> None:
        """Ask the solver to stop soon (well under a second) and keep its best solution."""
        self._cancel.set()

    def quiet(self) -> Control:
        """The same clock and cancel switch, with nobody listening: for a preliminary search with another objective."""
        quiet = copy.copy(self)
        quiet._on_progress, quiet.history, quiet.parts = None, [], []
        return quiet

    @property
    def cancelled(self) -> bool:
        return self._cancel.is_set()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._start

    @property
    def remaining_s(self) -> float:
        """Wall seconds left, never negative; 0 once cancelled."""
        return 0.0 if self.cancelled else max(0.0, self._deadline - time.monotonic())

    @property
    def stopped(self) -> bool:
        """True once cancelled or out of time."""
        return self.remaining_s <= 0.0

    def part(self, seconds: float) -> Control:
        """A control for a part of the work: same clock, cancel switch and news, `seconds` from now at most."""
        part = copy.copy(self)
        part._deadline = min(self._deadline, time.monotonic() + seconds)
        return part

    def report(self, phase: str, objective: Fraction | int | None, bound: Fraction | int | None, by: str = "") -> None:
        """Publish news, found by what `by` names, and keep it for the solve report's history."""
        now, proved = (None if each is None else Fraction(each) for each in (objective, bound))
        news = Progress(self.elapsed_s, phase, now, proved, by)
        self.history.append(news)
        if self._on_progress is not None:
            self._on_progress(news)

    def deliver(self, part: object) -> None:
        """Hand over a part of the answer that is ready."""
        self.parts.append(part)
