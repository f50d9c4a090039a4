"""The states bound: the exact least period of *tied* blocks, over all unrolls.

Tied blocks are blocks that memory ties together (`tied_by_memory`). Their *state* has two numbers per block: the number
of runs that the block has started, minus the least such number of all tied blocks, and the remaining time of its
current run. Memory bounds the differences, so there are finitely many states. A steady state of a schedule is a cycle
of states. The least ratio of ticks to micro-batches over all cycles is the least period [Lawler 1967].
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
from tessel_core.scheduling.structure import tied_by_memory

_STATES_PER_SECOND = 8_000
"""Rough number of states visited per second. It limits the size of the graphs that are explored."""
_MAX_TICKS = 10_000
"""Largest work of the tied blocks, in units of the greatest common divisor of their durations.

More units lead to too many states.
"""


def states_bound(
    plan: MicroBatchPlan, least: Fraction, effort: Effort, control: Control, *, known: Fraction | None = None
) -> Fraction:
    """Return a lower bound on the period per micro-batch in ticks, for every unroll and at least `least`.

    For a set K of tied blocks, let A be blocks that never run at the same time as each other or as a block of K.
    Cutting out the time in which blocks of A run leaves a schedule of K. So the period is at least the work of A plus
    the least ratio of ticks to micro-batches of K. Lags and all other blocks are ignored. `known` is the period per
    micro-batch of a known schedule, which limits the search.
    """
    for tied in tied_by_memory(plan):
        aside = set_aside(plan, tied)
        unit = gcd(*(plan.blocks[b].duration for b in tied))
        one_by_one = sum(plan.blocks[b].duration for b in tied)
        if one_by_one // unit > _MAX_TICKS:
            continue
        at_most = Fraction(one_by_one) if known is None else min(Fraction(one_by_one), known - aside)
        if aside + at_most <= least:
            continue
        graph = StateGraph(plan, tied, unit)
        if graph.explore(int(effort.seconds * _STATES_PER_SECOND), control):
            ratio = least_ratio(graph.moves, at_most / unit, control)
            if ratio is not None:
                least = max(least, aside + unit * ratio)
    return least


def set_aside(plan: MicroBatchPlan, tied: Sequence[int]) -> int:
    """Return the work of blocks outside `tied` that share a device with every tied block and with each other.

    Such blocks are chosen greedily, the longest first.
    """
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
"""A pair of tuples, each with one number per tied block.

The first tuple has the number of runs that each block has started, minus the least such number of all tied blocks. The
second tuple has the remaining ticks of each block's current run, or 0.
"""


class StateGraph:
    """The states that the tied blocks can reach from an empty schedule.

    A move starts some runs, or none, and lasts until the next end of a run. For a bound, it is enough that each run
    starts when another run ends, because otherwise it could start earlier in the same order. With `every_tick`, a move
    lasts one tick, so every schedule is a walk. One tick of the graph is `unit` ticks of the plan.
    """

    def __init__(self, plan: MicroBatchPlan, tied: Sequence[int], unit: int, *, every_tick: bool = False) -> None:
        place = {b: i for i, b in enumerate(tied)}
        blocks = [plan.blocks[b] for b in tied]
        self.every_tick = every_tick
        self.duration = [block.duration // unit for block in blocks]
        self.devices = [sum(1 << d for d in block.devices) for block in blocks]
        self.before = [[place[a] for a, _ in plan.predecessors[b] if a in place] for b in tied]
        self.memory = [block.memory for block in blocks]
        self.limits: list[list[tuple[int, list[int]]]] = [[] for _ in tied]
        """For each tied block that acquires memory, one pair for each of its devices with limited memory.

        The pair is (capacity of the device, positions of the tied blocks on it).
        """
        for i, block in enumerate(blocks):
            for d in block.devices if block.memory > 0 else ():
                capacity = plan.devices[d].activation_capacity
                if capacity is not None:
                    self.limits[i].append((capacity, [place[b] for b in plan.blocks_on[d] if b in place]))
        self.moves: IntColumn = np.zeros((0, 4), dtype=np.int64)
        """One move per row: from state, to state, ticks, and the number of runs of the first tied block that start."""
        self.states: list[State] = []
        """All states. The number of a state is its index."""

    def explore(self, most: int, control: Control) -> bool:
        """Find all states and moves. Return False if there are more than `most` states or the control has stopped."""
        empty: State = ((0,) * len(self.duration), (0,) * len(self.duration))
        number, waiting, moves = {empty: 0}, [empty], []
        while waiting:
            state = waiting.pop()
            for following, ticks, begun in self._moves_from(state):
                if following not in number:
                    number[following] = len(number)
                    waiting.append(following)
                moves.append((number[state], number[following], ticks, begun))
                if len(number) > most:
                    return False
            if control.stopped:
                return False
        self.moves = np.array(moves, dtype=np.int64).reshape(-1, 4)
        self.states = list(number)
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
            if not taken and not self.every_tick:
                continue
            after, running = list(started), list(left)
            for i in chosen:
                after[i] += 1
                running[i] = self.duration[i]
            ticks = 1 if self.every_tick else min(each for each in running if each)
            least = min(after)
            following = tuple([each - least for each in after]), tuple([each and each - ticks for each in running])
            yield following, ticks, int(0 in chosen)

    def _ready(self, started: Sequence[int], left: Sequence[int], busy: int) -> list[int]:
        """Return the positions of the blocks whose next run may start.

        Such a run fits in memory, its devices are free, and its predecessors have ended. `busy` has one bit per device.
        """
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


def least_ratio(moves: IntColumn, at_most: Fraction, control: Control) -> Fraction | None:
    """Return the least ratio of ticks to micro-batches over all cycles, or `at_most` if that is less.

    `moves` has the columns of `StateGraph.moves`. As long as some cycle has a smaller ratio, that ratio is tried next.
    If no cycle has one, distances to all states exist, which proves that the ratio is the least. Return None if the
    control stopped the search.
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
