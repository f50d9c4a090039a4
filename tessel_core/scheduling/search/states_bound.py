"""The states bound: the exact rate at which blocks that memory ties together can go on for ever, at every unroll.

What such blocks can do next depends on how many micro-batches each has started, up to a common number, and on how long
those that run still take.  Memory bounds the differences, so these states are finitely many.  A steady state goes round
a cycle of them, and the least ratio of time to micro-batches over all cycles is the least period  [Lawler 1967].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import gcd

import numpy as np

from tessel_core.control import Control
from tessel_core.cpsat import Effort
from tessel_core.model import MicroBatchPlan
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.search.timing import earliest_starts
from tessel_core.scheduling.structure import memory_intervals_on

_STATES_PER_SECOND = 8_000
"""States visited a second, about: only the size of what is tried depends on it."""
_LONGEST = 10_000
"""Ticks that a micro-batch may take; finer costs have too many states anyway."""


def states_bound(
    plan: MicroBatchPlan, least: Fraction, effort: Effort, control: Control, *, known: Fraction | None = None
) -> Fraction:
    """A bound on the period per micro-batch at every unroll, at least `least`; none is looked for above `known`.

    period >= work(A) + least ratio of the blocks K, for every K that memory ties together.  Blocks of A exclude each
    other and all of K in time, so a schedule without the time in which they run is still one of K.  Lags are left out,
    and so are blocks neither in K nor in A.
    """
    for tied in _tied_by_memory(plan):
        aside = _set_aside(plan, tied)
        unit = gcd(*(plan.blocks[b].duration for b in tied))
        one_by_one = sum(plan.blocks[b].duration for b in tied)
        if one_by_one // unit > _LONGEST:
            continue
        at_most = Fraction(one_by_one) if known is None else min(Fraction(one_by_one), known - aside)
        if aside + at_most <= least:
            continue
        graph = _StateGraph(plan, tied, unit)
        if graph.explore(int(effort.seconds * _STATES_PER_SECOND), control):
            ratio = _least_ratio(graph.moves, at_most / unit, control)
            if ratio is not None:
                least = max(least, aside + unit * ratio)
    return least


def _tied_by_memory(plan: MicroBatchPlan) -> Iterator[list[int]]:
    """Sets of blocks none of which can get far ahead of another: a successor never does, nor does an acquire of its
    release where the device's memory is limited."""
    import networkx as nx

    ties: nx.DiGraph[int] = nx.DiGraph()
    ties.add_edges_from((before, after) for before, after, _ in plan.arcs)
    for d, device in enumerate(plan.devices):
        if device.activation_capacity is not None:
            ties.add_edges_from((hold.release, hold.acquire) for hold in memory_intervals_on(plan, d))
    for tied in nx.strongly_connected_components(ties):
        if len(tied) > 1:
            yield sorted(tied)


def _set_aside(plan: MicroBatchPlan, tied: Sequence[int]) -> int:
    """Work of blocks outside of `tied` that share a device with each of them and with each other, longest first."""
    others = sorted(set(range(len(plan.blocks))).difference(tied), key=lambda b: -plan.blocks[b].duration)
    clique = [set(plan.blocks[b].devices) for b in tied]
    work = 0
    for b in others:
        devices = set(plan.blocks[b].devices)
        if all(devices & other for other in clique):
            clique.append(devices)
            work += plan.blocks[b].duration
    return work


State = tuple[tuple[int, ...], tuple[int, ...]]
"""Per tied block, how many more runs have started than of the last one, and what its present run still takes."""


class _StateGraph:
    """The states that the tied blocks can reach from an empty beginning.

    A run starts when another ends: one that could start sooner with all orders kept does so without loss.  So a move
    starts some runs, or none, and lasts until the next end.
    """

    def __init__(self, plan: MicroBatchPlan, tied: Sequence[int], unit: int) -> None:
        place = {b: i for i, b in enumerate(tied)}
        blocks = [plan.blocks[b] for b in tied]
        self.duration = [block.duration // unit for block in blocks]
        self.devices = [sum(1 << d for d in block.devices) for block in blocks]
        self.before = [[place[a] for a, _ in plan.predecessors[b] if a in place] for b in tied]
        self.memory = [block.memory for block in blocks]
        self.limits: list[list[tuple[int, list[int]]]] = [[] for _ in tied]
        """Per block that acquires, the capacity of each of its limited devices and what moves memory there."""
        for i, block in enumerate(blocks):
            for d in block.devices if block.memory > 0 else ():
                capacity = plan.devices[d].activation_capacity
                if capacity is not None:
                    self.limits[i].append((capacity, [place[b] for b in plan.blocks_on[d] if b in place]))
        self.moves: IntColumn = np.zeros((0, 4), dtype=np.int64)
        """One a row: from, to, ticks, runs of the first block that it starts."""

    def explore(self, most: int, control: Control) -> bool:
        """Find every state and move; False where there are more than `most` states or the control has stopped."""
        empty: State = ((0,) * len(self.duration), (0,) * len(self.duration))
        number, waiting, moves = {empty: 0}, [empty], []
        while waiting:
            state = waiting.pop()
            for following, ticks, begun in self._moves_from(state):
                if following not in number:
                    number[following] = len(number)
                    waiting.append(following)
                moves.append((number[state], number[following], ticks, begun))
            if len(number) > most or control.stopped:
                return False
        self.moves = np.array(moves, dtype=np.int64).reshape(-1, 4)
        return True

    def _moves_from(self, state: State) -> Iterator[tuple[State, int, int]]:
        started, left = state
        busy = 0
        for i, ticks in enumerate(left):
            if ticks:
                busy |= self.devices[i]
        choices: list[tuple[tuple[int, ...], int]] = [((), busy)]
        for i in self._ready(started, left, busy):
            choices += [
                ((*chosen, i), taken | self.devices[i]) for chosen, taken in choices if not taken & self.devices[i]
            ]
        for chosen, taken in choices:
            if not taken:
                continue
            after, running = list(started), list(left)
            for i in chosen:
                after[i] += 1
                running[i] = self.duration[i]
            ticks = min(each for each in running if each)
            least = min(after)
            following = tuple([each - least for each in after]), tuple([each and each - ticks for each in running])
            yield following, ticks, int(0 in chosen)

    def _ready(self, started: Sequence[int], left: Sequence[int], busy: int) -> list[int]:
        """Blocks whose next run may start: devices free, predecessors ended, and room for what it acquires."""
        ended = [each - (1 if ticks else 0) for each, ticks in zip(started, left, strict=True)]
        return [
            i
            for i, devices in enumerate(self.devices)
            if not devices & busy
            and all(ended[a] > started[i] for a in self.before[i])
            and all(
                self.memory[i] + sum(self.memory[a] * (started if self.memory[a] > 0 else ended)[a] for a in on)
                <= capacity
                for capacity, on in self.limits[i]
            )
        ]


def _least_ratio(moves: IntColumn, at_most: Fraction, control: Control) -> Fraction | None:
    """Least ratio of ticks to micro-batches over all cycles, or `at_most` where none is below; None once stopped.

    While some cycle is cheaper than the ratio, its own ratio is the next; when none is, distances to all states exist,
    which prove it.
    """
    ratio = at_most
    source, target, ticks, begun = moves.T
    states = int(moves[:, :2].max(initial=-1)) + 1
    while True:
        gain = begun * ratio.numerator - ticks * ratio.denominator
        _, cheaper = earliest_starts(states, source, target, gain, control)
        if cheaper is None:
            return None
        if not cheaper:
            return ratio
        ratio = Fraction(int(ticks[cheaper].sum()), int(begun[cheaper].sum()))
