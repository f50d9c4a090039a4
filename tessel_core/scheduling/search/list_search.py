"""List scheduling with priorities and handicaps (see `kernels.lists`). Random changes improve both."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tessel_core.model import BlockKind, MicroBatchPlan
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.kernels.insertion import Pauses, insert_into_lists
from tessel_core.scheduling.kernels.lists import Rules, evolve, place_all, restart, rules_copy
from tessel_core.scheduling.kernels.tables import UNLIMITED, backwards, tables_of
from tessel_core.scheduling.structure import all_tied, part_of, path_lengths

Priorities = NDArray[np.float64]

_RUNS_PER_SLICE = 500_000
"""Number of runs placed in one slice of the search. A core places this many in about a fifth of a second."""
_MIN_PRACTICE_MICRO_BATCHES = 24
"""Least number of micro-batches in practice.

*Practice* improves rules on fewer micro-batches than the schedule has.
"""
_MAX_STALLED_PRACTICE_SLICES = 4
"""Practice ends after this many slices without improvement."""
_DUE_DATE_STEP = 0.5
"""Distance between the due dates of consecutive micro-batches, as a fraction of the busiest device's work.

It was chosen by measurement.
"""
_CHANGED_PRIORITIES = 3
"""Number of priorities that change when a list search restarts.

Measured: after more changes, the search rarely reaches the same quality again.
"""
_HANDICAP_SPREAD = 0.05
"""Standard deviation of one change of a handicap, as a share of the busiest device's work."""


_INSERTION_COST = 4
"""Inserting one run takes as long as placing this many runs in a list schedule."""

_KIND_PRIORITIES = {BlockKind.BACKWARD: 2, BlockKind.FORWARD: 1, BlockKind.OTHER: 1, BlockKind.WEIGHT: 0}

RULES: dict[str, Callable[[MicroBatchPlan], Sequence[int]]] = {
    "advanced": lambda plan: np.argsort(plan.topological_order).tolist(),
    "backward": lambda plan: [_KIND_PRIORITIES[block.kind] for block in plan.blocks],
    "longest-path": lambda plan: path_lengths(plan)[1],
    "shortest-path": lambda plan: [-tail for tail in path_lengths(plan)[1]],
    "least-slack": lambda plan: path_lengths(plan)[1],
    "longest-run": lambda plan: [block.duration for block in plan.blocks],
    "oldest": lambda plan: [0] * len(plan.blocks),
}
"""Rules by name. Each rule returns one priority per block of a plan. A higher priority comes first.

At equal priority, the oldest micro-batch comes first.

- advanced: the last block in topological order first
- backward: backward first, then forward, then weight gradients
- longest-path, shortest-path: by the path to the end of the micro-batch
- least-slack: by the longest path too, but the priority falls with each later micro-batch
- longest-run: the longest block first
- oldest: the oldest micro-batch first
"""


class ListSearch:
    """A search for short list schedules. It starts from a rule of `RULES` and changes the priorities at random.

    `order` lists the blocks so that one micro-batch alone fits in memory. With `from_the_end`, the search runs on the
    plan with time reversed, and so builds schedules from their end.

    Priorities that are good for a few micro-batches are mostly good for many, so they are first improved on a few.
    """

    def __init__(
        self,
        plan: MicroBatchPlan,
        order: Sequence[int],
        micro_batches: int,
        rule: str,
        seed: int,
        *,
        from_the_end: bool = False,
    ) -> None:
        self.plan, self.from_the_end, self._seed = plan, from_the_end, seed
        self._first_seed, self._restarts = seed * 7919, 0
        searched = backwards(plan) if from_the_end else plan
        self._tables = tables_of(searched, order[::-1] if from_the_end else order)
        priority, age = _by_rank(RULES[rule](searched)), 1e-6
        if rule == "oldest":
            age = float(len(plan.blocks))
        elif rule == "least-slack":
            tails = np.array(RULES[rule](searched), dtype=np.float64)
            per_tick = len(plan.blocks) / max(1.0, tails.max())
            priority, age = tails * per_tick, max(1e-6, _DUE_DATE_STEP * plan.busiest_work * per_tick)
        handicap, tables = np.zeros(len(plan.blocks), dtype=np.int64), self._tables
        self._rules = Rules(priority, np.array([age]), handicap, tables.capacity.copy(), tables.guarded.copy())
        self._starts = self._best = np.zeros((micro_batches, len(plan.blocks)), dtype=np.int64)
        few = max(_MIN_PRACTICE_MICRO_BATCHES, 2 * len(plan.devices))
        self._practice = np.zeros_like(self._starts[:few]) if few < micro_batches / 2 else self._starts
        self._practised = -1
        """Makespan of the schedule in `_practice`, or -1 if there is none."""
        self.makespan = -1
        """Makespan of the shortest schedule so far, or -1 before the first schedule."""
        self.slices = self.idle_slices = 0
        """Number of calls of `evolve`, in total and since the last improvement."""
        self._spread = max(0.6, plan.busiest_work * _HANDICAP_SPREAD)

    @property
    def tries_per_slice(self) -> int:
        """Number of schedules in one slice. Building them takes about a fifth of a second."""
        return max(1, _RUNS_PER_SLICE // self._starts.size)

    def restart(self, tries: int) -> None:
        """Build `tries` more schedules and keep the shortest.

        The first two schedules of this search follow the rule. All later ones change its priorities at random.
        """
        found = np.empty_like(self._starts)
        noise = len(self.plan.blocks) / 8
        self._keep(restart(self._tables, self._rules, found, self._restarts, tries, noise, self._first_seed), found)
        self._restarts += tries

    def scatter(self) -> None:
        """Change all priorities at random."""
        noise = np.random.default_rng(self._next_seed()).standard_normal(len(self.plan.blocks))
        self._rules.priority[:] += len(self.plan.blocks) / 3 * noise

    def kicked(self, seed: int) -> ListSearch:
        """Return a search that starts from the current rules, with a few priorities changed at random."""
        other = self._with_current_rules(len(self._starts))
        other._seed, other.makespan, other._practised = seed, -1, -1
        other.slices = other.idle_slices = 0
        chance, blocks = np.random.default_rng(other._next_seed()), len(self.plan.blocks)
        kicked = chance.choice(blocks, min(blocks, _CHANGED_PRIORITIES), replace=False)
        other._rules.priority[kicked] += blocks / 8 * chance.standard_normal(len(kicked))
        return other

    def evolve(self, tries: int | None = None) -> None:
        """Change the rules at random, `tries` times or for one slice. Keep changes that make no schedule longer."""
        before, self.slices = self._practised, self.slices + 1
        tries = max(1, _RUNS_PER_SLICE // self._practice.size) if tries is None else tries
        self._practised = evolve(
            self._tables, self._rules, self._practice, self._practised, tries, self._spread, self._next_seed()
        )
        practising = len(self._practice) < len(self._starts)
        if self._practised != before:
            self.idle_slices = 0
            found = np.zeros_like(self._starts) if practising else self._practice.copy()
            self._keep(place_all(self._tables, self._rules, found, UNLIMITED) if practising else self._practised, found)
        elif practising and self.idle_slices >= _MAX_STALLED_PRACTICE_SLICES:
            self._practice, self._practised, self.idle_slices = self._starts, -1, 0
        else:
            self.idle_slices += 1

    def _keep(self, makespan: int, starts: IntColumn) -> None:
        if makespan >= 0 and (self.makespan < 0 or makespan < self.makespan):
            self.makespan, self._best = makespan, starts

    @property
    def starts(self) -> IntColumn:
        """Starts of the shortest schedule, shaped (micro-batches, blocks)."""
        return self._forwards(self._best)

    def stretched(self, micro_batches: int) -> ListSearch | None:
        """Return a search with the current rules and another number of micro-batches.

        Return None if the rules lead to a deadlock.
        """
        other = self._with_current_rules(micro_batches)
        other.makespan = other._practised = place_all(self._tables, other._rules, other._starts, UNLIMITED)
        return other if other.makespan >= 0 else None

    def _with_current_rules(self, micro_batches: int) -> ListSearch:
        other = copy.copy(self)
        other._rules = rules_copy(self._rules)
        other._starts = other._practice = other._best = np.zeros((micro_batches, self._starts.shape[1]), np.int64)
        return other

    def _forwards(self, starts: IntColumn) -> IntColumn:
        """Return a copy of `starts` in the plan's own direction of time."""
        if not self.from_the_end:
            return starts.copy()
        ends = starts + np.array([block.duration for block in self.plan.blocks])
        reversed_starts: IntColumn = (ends.max() - ends)[::-1].copy()
        return reversed_starts

    def _next_seed(self) -> int:
        self._seed += 1
        return self._seed * 7919 % 2**31


class InsertionSearch(ListSearch):
    """A list search that lists only the `tied` blocks, and inserts all other blocks into their schedule.

    All other blocks change no limited memory, so they can wait (see `kernels.insertion`). In a list schedule of all
    blocks, they often delay the tied blocks, which wastes memory.
    """

    def __init__(
        self,
        plan: MicroBatchPlan,
        tied: Sequence[int],
        order: Sequence[int],
        micro_batches: int,
        seed: int,
        *,
        from_the_end: bool = False,
    ) -> None:
        super().__init__(plan, order, micro_batches, "advanced", seed, from_the_end=from_the_end)
        searched = backwards(plan) if from_the_end else plan
        part, number = part_of(searched, tied), {b: i for i, b in enumerate(tied)}
        part_order = [number[b] for b in (order[::-1] if from_the_end else order) if b in number]
        self._part = ListSearch(part, part_order, micro_batches, "advanced", seed)
        self._tied, self._pauses = np.array(tied, dtype=np.int64), Pauses(0, 1, 0)

    def restart(self, tries: int) -> None:
        """Build `tries` schedules of the tied blocks, and insert the other blocks into the shortest."""
        self._part.restart(tries)
        self._insert(1)

    def evolve(self, tries: int | None = None) -> None:
        """Improve the schedule of the tied blocks until it stops getting shorter, and then the whole schedule."""
        self.slices += 1
        before = self.makespan
        if self._part.makespan < 0 or (tries is None and self._part.idle_slices < _MAX_STALLED_PRACTICE_SLICES):
            self._part.evolve(tries)
            self._insert(1)
        else:
            self._insert(max(2, _RUNS_PER_SLICE // _INSERTION_COST // self._starts.size) if tries is None else tries)
        self.idle_slices = 0 if self.makespan != before else self.idle_slices + 1

    def kicked(self, seed: int) -> InsertionSearch:
        """Return a search that starts from the current rules for tied blocks, with a few of them changed at random."""
        other = copy.copy(self)
        other._part = self._part.kicked(seed)
        other._seed, other.makespan, other.slices, other.idle_slices = seed, -1, 0, 0
        return other

    def stretched(self, micro_batches: int) -> InsertionSearch | None:
        """Return a search with the current rules and another number of micro-batches.

        Return None if the rules lead to a deadlock.
        """
        other, part = copy.copy(self), self._part.stretched(micro_batches)
        if part is None:
            return None
        other._starts = other._best = np.zeros((micro_batches, len(self.plan.blocks)), dtype=np.int64)
        other._part, other.makespan = part, -1
        other._insert(1)
        return other if other.makespan >= 0 else None

    def _insert(self, tries: int) -> None:
        """Insert the free blocks by the current rules and pauses, and keep the schedule if it is the shortest.

        Free blocks are not tied. All `tries` but the first change the rules or the pauses at random.
        """
        starts = np.zeros_like(self._starts)
        self._pauses, makespan = insert_into_lists(
            self._tables, self._part._tables, self._tied, self._part._rules, self._pauses, starts, tries,
            self._spread, self._next_seed(),
        )  # fmt: skip
        self._keep(makespan, starts)


def _by_rank(values: Sequence[int]) -> Priorities:
    """Replace priorities by evenly spaced ranks, so that a random change has the same effect for every rule."""
    known, ranks = np.unique(values, return_inverse=True)
    return np.asarray(ranks * (len(values) / len(known)), dtype=np.float64)


def lists_by_every_rule(plan: MicroBatchPlan, order: Sequence[int], micro_batches: int, seed: int) -> list[ListSearch]:
    """Return two searches per rule, forwards and from the end, each with its own seed.

    If memory ties only some blocks together, two searches that insert the other blocks come last.
    """
    by_rule = [
        ListSearch(plan, order, micro_batches, rule, seed + i, from_the_end=from_the_end)
        for i, (rule, from_the_end) in enumerate(product(RULES, (False, True)))
    ]
    tied = all_tied(plan)
    if not 0 < len(tied) < len(plan.blocks):
        return by_rule
    inserting = [InsertionSearch(plan, tied, order, micro_batches, seed, from_the_end=end) for end in (False, True)]
    return [*by_rule, *inserting]
