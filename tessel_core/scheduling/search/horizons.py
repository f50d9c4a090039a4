"""The choice of horizons: times between a bound and a makespan by which CP-SAT finds or excludes schedules."""

from __future__ import annotations

_REACHES = (0.5, 0.75, 0.25, 0.9, 0.1)
"""Distances of a horizon from the bound, as fractions of the gap. Horizons near the least makespan are hardest."""


class Horizons:
    """Halves the gap between bound and makespan, as long as each question is decided in `seconds`.

    After a question without an answer, the next one has another reach. When all have failed, the time doubles. `first`
    selects the reach of the first question.
    """

    def __init__(self, seconds: float, first: int = 0) -> None:
        first %= len(_REACHES)
        self.seconds, self._reaches, self._failed = seconds, [*_REACHES[first:], *_REACHES[:first]], 0

    def next_horizon(self, bound: int, makespan: int) -> int:
        """Return the next horizon: at least the bound, and below the makespan."""
        return bound + int((makespan - 1 - bound) * self._reaches[0])

    def learn(self, answered: bool) -> None:
        """Take into account whether the answer to the last question improved the schedule or the bound."""
        if answered:
            self._failed = 0
            return
        self._reaches.append(self._reaches.pop(0))
        self._failed += 1
        if self._failed == len(self._reaches):
            self.seconds, self._failed = 2 * self.seconds, 0
