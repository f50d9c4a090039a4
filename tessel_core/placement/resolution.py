"""How fine the units of a CP-SAT model are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

import numpy as np

from tessel_core.cpsat import LARGEST_SUM
from tessel_core.placement.stages import Pipeline


class Resolution(Enum):
    """How fine the units of a model are; times are rounded down, so a bound is low by (n + m) units at most.

    CP-SAT may presolve all but FINE, and climbs to bounds in few steps where units are COARSE (BERT-24: 17.70 instead
    of 15.35 in as many seconds).  FINE bytes are rounded up, which the rounding error in the capacity makes up for;
    others are rounded down, so what is found may not fit, but bounds hold.
    """

    FINE = "so fine that only rounding errors are lost"
    PRESOLVED = "as fine as sums that are presolved may be"
    COARSE = "thousands in the objective"

    def units(self, parts: Sequence[Pipeline], upper: float) -> int:
        """Units in an upper bound on the objective, and in a capacity."""
        if self is Resolution.PRESOLVED:
            most = LARGEST_SUM / (2 + max(_terms(part, upper) for part in parts))
            return max(_COARSE, 1 << int(math.log2(most)))
        return _FINE if self is Resolution.FINE else _COARSE


_FINE, _COARSE = 2**44, 2**14


def _terms(part: Pipeline, upper: float) -> float:
    """The most that the terms of a load, or of what a device holds, may sum to, over `upper` or the capacity."""
    unit = max(upper, 1e-300)
    costs = sum(min(net.cost / unit, 1.0) for net in part.nets)
    times = (float(np.minimum(each.time[np.isfinite(each.time)] / unit, 1.0).sum()) for each in part.classes)
    held = (float(part.memory.sum()) / each.capacity for each in part.classes if each.capacity > 0)
    return max(costs + max(times), *held, 1.0)
