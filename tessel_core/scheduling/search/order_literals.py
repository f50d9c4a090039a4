"""Literals for the order of two runs on one device, which CP-SAT models of many runs share.

Runs of one block come in order. So if run i of block p comes before run j of block q, the runs of p up to i come before
the runs of q from j on. As implications between literals, these staircases let CP-SAT exclude horizons in seconds
which it cannot exclude in minutes from no-overlap constraints alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, combinations, product
from typing import NamedTuple

from ortools.sat.python import cp_model

from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.order import Run
from tessel_core.scheduling.structure import least_held, memory_intervals_on, path_lengths

_MAX_PAIRS = 100_000
"""Largest number of pairs of runs that are looked at, which takes a fifth of a second."""
_MAX_OPEN_PAIRS_PER_RUN = 4
"""Largest number of literals per run.

Measured: with 1 to 4 (V shapes of two or three blocks per device) they exclude horizons 10 to 100 times faster. With 8
to 36 (shapes with more blocks per device) models with literals take 10 to 100 times longer to find schedules.
"""

Chain = Sequence[Run]
"""Runs of one block that come in order."""


class AtOnce(NamedTuple):
    """At most `most` micro-batches are between the start of block `acquire` and the end of block `release`."""

    acquire: int
    release: int
    most: int


def at_once_on(plan: MicroBatchPlan, device: int) -> list[AtOnce]:
    """Return the largest numbers of micro-batches in the memory intervals of a device with limited memory.

    If each micro-batch holds at least v from the start of a to the end of r, at most capacity // v do so at once.
    """
    capacity = plan.devices[device].activation_capacity
    if capacity is None:
        return []
    holds = memory_intervals_on(plan, device)
    return [AtOnce(hold.acquire, hold.release, capacity // least_held(plan, device, hold)) for hold in holds]


class Windows(NamedTuple):
    """Earliest and latest starts, as [micro-batch][block]."""

    earliest: list[list[int]]
    latest: list[list[int]]


def windows(
    plan: MicroBatchPlan, count: int, horizon: int, devices: frozenset[int], duration: Sequence[int], quantum: int = 1
) -> Windows:
    """Return the windows of the starts of `count` micro-batches that come in order and end by `horizon`.

    They follow from the dependencies, and from three rules of the given devices: a block has one run at a time, its
    runs come in order, and memory limits the number of micro-batches. A window is empty if no schedule exists. Starts,
    durations and the horizon are in quanta.
    """
    blocks, order = plan.blocks, plan.topological_order
    heads, tails = path_lengths(plan, quantum)
    apart = [duration[b] if devices.intersection(block.devices) else 0 for b, block in enumerate(blocks)]
    limits = [limit for d in devices for limit in at_once_on(plan, d) if 0 < limit.most < count]
    earliest, latest = [list(heads) for _ in range(count)], [[horizon - tail for tail in tails] for _ in range(count)]
    for m, row in enumerate(earliest):
        for b in order:
            ready = [row[a] + duration[a] + lag // quantum for a, lag in plan.predecessors[b]]
            ready += [earliest[m - 1][b] + apart[b]] if m else []
            ready += [earliest[m - c][r] + duration[r] for a, r, c in limits if a == b and m >= c]
            row[b] = max([row[b], *ready])
    for m in reversed(range(count)):
        row = latest[m]
        for b in reversed(order):
            due = [row[c] - lag // quantum - duration[b] for c, lag in plan.successors[b]]
            due += [latest[m + 1][b] - apart[b]] if m + 1 < count else []
            due += [latest[m + c][a] - duration[b] for a, r, c in limits if r == b and m + c < count]
            row[b] = min([row[b], *due])
    return Windows(earliest, latest)


class OrderLiterals:
    """The literals of a model. `windows` has the earliest and the latest start of each run.

    Micro-batches in `alike` come in order on each block. Each run of another micro-batch is a chain of its own.
    """

    def __init__(
        self,
        cp: cp_model.CpModel,
        plan: MicroBatchPlan,
        start: dict[Run, cp_model.LinearExpr],
        duration: Sequence[int],
        windows: dict[Run, tuple[int, int]],
        alike: Sequence[int],
    ) -> None:
        self._cp, self._plan, self._start, self._duration = cp, plan, start, duration
        self._windows, self._position = windows, {m: i for i, m in enumerate(alike)}
        self._limits: dict[tuple[int, int], int] = {}
        self._literals: dict[tuple[Run, Run], cp_model.LiteralT] = {}

    def add(self, devices: Iterable[int]) -> bool:
        """Add the literals of pairs of runs on the devices. Return False, and add none, if too many pairs are open."""
        plan = self._plan
        for a, r, most in chain.from_iterable(at_once_on(plan, d) for d in devices):
            self._limits[r, a] = min(most, self._limits.get((r, a), most))
        pairs = list(chain.from_iterable(combinations(self._chains_on(d), 2) for d in devices))
        pairs = list({(first[0], second[0]): (first, second) for first, second in pairs}.values())
        if sum(len(first) * len(second) for first, second in pairs) > _MAX_PAIRS:
            return False
        undecided = [
            [(i, j) for i, j in product(range(len(p)), range(len(q))) if self._known(p[i], q[j]) is None]
            for p, q in pairs
        ]
        if sum(map(len, undecided)) > _MAX_OPEN_PAIRS_PER_RUN * len(self._start):
            return False
        for (first, second), places in zip(pairs, undecided, strict=True):
            self._between(first, second, places)
        return True

    def before(self, first: Run, second: Run) -> cp_model.LiteralT:
        """Return the literal, or the constant, that says that `first` ends before `second` starts."""
        known = self._known(first, second)
        return self._literals[first, second] if known is None else known

    def _chains_on(self, device: int) -> list[Chain]:
        alike, runs = list(self._position), list[Chain]()
        for b in self._plan.blocks_on[device]:
            runs.append([(b, m) for m in alike])
            runs += [[run] for run in self._start if run[0] == b and run[1] not in self._position]
        return [each for each in runs if each]

    def _between(self, first: Chain, second: Chain, places: Iterable[tuple[int, int]]) -> None:
        """Add literals for places in two chains, and what each says about its neighbours in the chains."""
        cp, literals, start, duration = self._cp, self._literals, self._start, self._duration
        for i, j in places:
            p, q, here = first[i], second[j], cp.new_bool_var("")
            literals[p, q], literals[q, p] = here, here.negated()
            cp.add(start[q] >= start[p] + duration[p[0]]).only_enforce_if(here)
            cp.add(start[p] >= start[q] + duration[q[0]]).only_enforce_if(here.negated())
            if i and (first[i - 1], q) in literals:
                cp.add_implication(here, literals[first[i - 1], q])
            if j and (p, second[j - 1]) in literals:
                cp.add_implication(literals[p, second[j - 1]], here)

    def _known(self, first: Run, second: Run) -> bool | None:
        """Return whether `first` comes before `second` in all schedules. None if windows and rules do not decide."""
        (earliest, latest), (other_earliest, other_latest) = self._windows[first], self._windows[second]
        if earliest + self._duration[first[0]] > other_latest or self._follows(first, second):
            return False
        if other_earliest + self._duration[second[0]] > latest or self._follows(second, first):
            return True
        return None

    def _follows(self, late: Run, early: Run) -> bool:
        """Return whether dependencies or memory let `late` wait for `early`."""
        (b, m), (a, n) = late, early
        ancestor = bool(self._plan.ancestors[b] >> a & 1)
        if m not in self._position or n not in self._position:
            return ancestor and m == n
        ahead = self._position[m] - self._position[n]
        return (ancestor and ahead >= 0) or ((a, b) in self._limits and ahead >= self._limits[a, b] > 0)
