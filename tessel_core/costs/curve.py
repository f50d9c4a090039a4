"""Between measured points: seconds as a monotone function of the amount of work."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, log
from statistics import median


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds over work (FLOPs, bytes or elements), linear between the logarithms of its points.

    Below its first point it is flat, because small operators are bound by their launch; beyond its last point the
    last rate holds.  More work never takes less time.
    """

    work: tuple[float, ...]
    seconds: tuple[float, ...]

    @classmethod
    def through(cls, points: Iterable[tuple[float, float]]) -> Curve:
        """The curve through (work, seconds) points: medians of equal work, raised to the slowest of less work.

        >>> round(Curve.through([(1, 4.0), (4, 1.0), (4, 16.0), (4, 8.0)])(2), 3)
        5.657
        """
        same: dict[float, list[float]] = defaultdict(list)
        for work, seconds in points:
            same[work].append(seconds)
        slowest = 0.0
        rising = []
        for work in sorted(same):
            slowest = max(slowest, median(same[work]))
            rising.append((work, slowest))
        return cls(tuple(work for work, _ in rising), tuple(seconds for _, seconds in rising))

    def __call__(self, work: float) -> float:
        after = bisect_left(self.work, work)
        if after == 0:
            return self.seconds[0]
        if after == len(self.work):
            return self.seconds[-1] * work / self.work[-1]
        low, high = after - 1, after
        share = log(work / self.work[low]) / log(self.work[high] / self.work[low])
        return exp((1 - share) * log(self.seconds[low]) + share * log(self.seconds[high]))
