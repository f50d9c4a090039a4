"""The choice of horizons: times between a bound and a makespan by which CP-SAT finds or excludes schedules."""

from __future__ import annotations

_REACHES = (0.5, 0.75, 0.25, 0.9, 0.1)
"""Distances of a horizon from the bound, as fractions of the gap. Horizons near the least makespan are hardest."""
_NEAR = 0.005
"""If the gap is below this fraction of the makespan, every second horizon is just below the makespan."""


class Horizons:
    """Halves the gap between bound and makespan, as long as each question is decided in `seconds`.

    A small gap may also be closed by one question. After a question without an answer, the next one has another reach.
    When all have failed, the time doubles. `first` selects the reach of the first question.
    """

    def __init__(self, seconds: float, first: int = 0) -> None:
        first %= len(_REACHES)
        self.seconds, self._reaches = seconds, [*_REACHES[first:], *_REACHES[:first]]
        self._failed, self._whole = 0, False

    def next_horizon(self, bound: int, makespan: int) -> int:
        """Return the next horizon: at least the bound, and below the makespan."""
        near = makespan - bound < _NEAR * makespan
        self._whole = near and not self._whole and not self._failed
        if self._whole:
            return makespan - 1
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
