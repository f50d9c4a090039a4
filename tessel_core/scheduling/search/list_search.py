"""Schedules from priorities of blocks, and priorities that evolve."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tessel_core.model import BlockKind, MicroBatchPlan
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.kernels.lists import Rules, evolve, place_all, restart, rules_copy
from tessel_core.scheduling.kernels.tables import UNLIMITED, backwards, tables_of
from tessel_core.scheduling.structure import path_lengths

Priorities = NDArray[np.float64]

_PLACED_PER_SLICE = 500_000
"""Runs of blocks that a core places in about a fifth of a second, at least."""
_FEW, _PRACTICE = 24, 4
"""Micro-batches to practise on, at least, and slices without improvement after which practice is over."""
_DUE = 0.5
"""How much later each micro-batch is due, as a share of the busiest device's work.  Measured."""
_KICKED = 3
"""Priorities that change where a line begins again.  Measured: with more, it seldom comes back to where it was."""
_SPREAD = 0.05
"""How far a handicap usually moves at a time, as a share of the busiest device's work."""


_KINDS = {BlockKind.BACKWARD: 2, BlockKind.FORWARD: 1, BlockKind.OTHER: 1, BlockKind.WEIGHT: 0}

RULES: dict[str, Callable[[MicroBatchPlan], Sequence[int]]] = {
    "advanced": lambda plan: np.argsort(plan.topological_order).tolist(),
    "backward": lambda plan: [_KINDS[block.kind] for block in plan.blocks],
    "longest-path": lambda plan: path_lengths(plan)[1],
    "shortest-path": lambda plan: [-tail for tail in path_lengths(plan)[1]],
    "least-slack": lambda plan: path_lengths(plan)[1],
    "longest-run": lambda plan: [block.duration for block in plan.blocks],
    "oldest": lambda plan: [0] * len(plan.blocks),
}
"""Priorities of blocks by name: the most advanced block first; backward before forward before weight gradients; the
longest, or the shortest, way to the end of the micro-batch first; the same, later micro-batches being due later; the
longest block first; the oldest micro-batch first.  The oldest micro-batch decides between equals."""


class ListSearch:
    """The shortest schedule that one line of rules has come to, beginning with that called `rule` in `RULES`.

    `order` is one of the plan's blocks in which one micro-batch alone fits.  `from_the_end` builds schedules from their
    end: the same search on the plan with time reversed.

    Rules that are good for a few micro-batches are mostly good for many, so they evolve on a few first.
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
            priority, age = tails * per_tick, max(1e-6, _DUE * plan.busiest_work * per_tick)
        handicap, tables = np.zeros(len(plan.blocks), dtype=np.int64), self._tables
        self._rules = Rules(priority, np.array([age]), handicap, tables.capacity.copy(), tables.guarded.copy())
        self._starts = self._best = np.zeros((micro_batches, len(plan.blocks)), dtype=np.int64)
        few = max(_FEW, 2 * len(plan.devices))
        self._practice = np.zeros_like(self._starts[:few]) if few < micro_batches / 2 else self._starts
        self._practised = -1
        """Makespan of the shortest for practice; the rules are those of that schedule."""
        self.makespan = -1
        """Makespan of the shortest so far; -1 before there is one."""
        self.slices = self.idle_slices = 0
        """Slices of evolution, all of them and since the last improvement."""
        self._spread = max(0.6, plan.busiest_work * _SPREAD)

    @property
    def tries_per_slice(self) -> int:
        """Schedules built in about a fifth of a second."""
        return max(1, _PLACED_PER_SLICE // self._starts.size)

    def restart(self, tries: int) -> None:
        """Keep the shortest of the rule's own schedule and of those by the rule with random changes, `tries` more."""
        found = np.empty_like(self._starts)
        noise = len(self.plan.blocks) / 8
        self._keep(restart(self._tables, self._rules, found, self._restarts, tries, noise, self._first_seed), found)
        self._restarts += tries

    def scatter(self) -> None:
        """Begin somewhere else: priorities at random."""
        noise = np.random.default_rng(self._next_seed()).standard_normal(len(self.plan.blocks))
        self._rules.priority[:] += len(self.plan.blocks) / 3 * noise

    def kicked(self, seed: int) -> ListSearch:
        """A search that begins with the rules of now, a few of their priorities changed at random."""
        other = self._with_rules_of_now(len(self._starts))
        other._seed, other.makespan, other._practised = seed, -1, -1
        other.slices = other.idle_slices = 0
        chance, blocks = np.random.default_rng(other._next_seed()), len(self.plan.blocks)
        kicked = chance.choice(blocks, min(blocks, _KICKED), replace=False)
        other._rules.priority[kicked] += blocks / 8 * chance.standard_normal(len(kicked))
        return other

    def evolve(self, tries: int | None = None) -> None:
        """Change the rules at random, so often, or for a slice, keeping what is not longer."""
        before, self.slices = self._practised, self.slices + 1
        tries = max(1, _PLACED_PER_SLICE // self._practice.size) if tries is None else tries
        self._practised = evolve(
            self._tables, self._rules, self._practice, self._practised, tries, self._spread, self._next_seed()
        )
        practising = len(self._practice) < len(self._starts)
        if self._practised != before:
            self.idle_slices = 0
            found = np.zeros_like(self._starts) if practising else self._practice.copy()
            self._keep(place_all(self._tables, self._rules, found, UNLIMITED) if practising else self._practised, found)
        elif practising and self.idle_slices >= _PRACTICE:
            self._practice, self._practised, self.idle_slices = self._starts, -1, 0
        else:
            self.idle_slices += 1

    def _keep(self, makespan: int, starts: IntColumn) -> None:
        if makespan >= 0 and (self.makespan < 0 or makespan < self.makespan):
            self.makespan, self._best = makespan, starts

    @property
    def starts(self) -> IntColumn:
        """Starts of the shortest, shaped (micro-batches, blocks)."""
        return self._forwards(self._best)

    def stretched(self, micro_batches: int) -> ListSearch | None:
        """A search that begins with the rules of now for another number of micro-batches; None where they get stuck."""
        other = self._with_rules_of_now(micro_batches)
        other.makespan = other._practised = place_all(self._tables, other._rules, other._starts, UNLIMITED)
        return other if other.makespan >= 0 else None

    def _with_rules_of_now(self, micro_batches: int) -> ListSearch:
        other = copy.copy(self)
        other._rules = rules_copy(self._rules)
        other._starts = other._practice = other._best = np.zeros((micro_batches, self._starts.shape[1]), np.int64)
        return other

    def _forwards(self, starts: IntColumn) -> IntColumn:
        """A copy of `starts`, in the plan's own direction of time."""
        if not self.from_the_end:
            return starts.copy()
        ends = starts + np.array([block.duration for block in self.plan.blocks])
        reversed_starts: IntColumn = (ends.max() - ends)[::-1].copy()
        return reversed_starts

    def _next_seed(self) -> int:
        self._seed += 1
        return self._seed * 7919 % 2**31


def _by_rank(values: Sequence[int]) -> Priorities:
    """Priorities of even steps, equals alike: so that a random change means the same for every rule."""
    known, ranks = np.unique(values, return_inverse=True)
    return np.asarray(ranks * (len(values) / len(known)), dtype=np.float64)


def lists_by_every_rule(plan: MicroBatchPlan, order: Sequence[int], micro_batches: int, seed: int) -> list[ListSearch]:
    """A search by each rule forwards and one from the end, each with a seed of its own."""
    return [
        ListSearch(plan, order, micro_batches, rule, seed + i, from_the_end=from_the_end)
        for i, (rule, from_the_end) in enumerate(product(RULES, (False, True)))
    ]
