"""The exact least period of small plans, and repetends that attain it or come as close to it as one likes.

The plan has no lags, and its blocks form two sets. Memory ties the blocks of the set K together (`tied_by_memory`).
Each block of the set A shares a device with every block of K and with every other block of A.

**States.** A state of K is that of `states_bound`, and each move lasts one tick. Then every schedule of K is a walk
along moves, and a repetend of K is a closed walk. A *pause* is a state in which no run is in progress. Cutting the time
of A out of a schedule leaves a schedule of K that has a pause wherever A runs. The other way round, A can run at any
pause. A predecessor in A can run any number of periods earlier, so dependencies between A and K do not lengthen a
period.

**Infimum.** Let r be the least ratio of ticks to micro-batches over all cycles [Lawler 1967]. Then b = work(A) + r is a
lower bound on the period per micro-batch, where work(A) is the duration of all blocks of A. The *cost* of a move is its
ticks - r * micro-batches that begin, plus a difference of potentials that makes every cost at least 0. So a closed walk
of U micro-batches lasts r * U + its cost. A repetend with period P is a closed walk of cost P - b * U. It passes a
pause if A has any blocks.

**Attained.** A closed walk of cost 0 stays in one strongly connected component of the moves of cost 0. So b is attained
if and only if such a component has a cycle and, if A has any blocks, a pause.

**Approached.** Otherwise, let c be the least cost of a walk from a pause to a cycle of cost 0 and back to that pause.
Let u micro-batches begin on this walk, and v in one round of the cycle. With j rounds, the walk is a repetend of U = u
+ v * j micro-batches whose period is b * U + c. So b is the infimum.

**No repetend is better.** A closed walk of cost below c that passes a pause meets no cycle of cost 0. So it passes no
state twice with the same cost so far. Therefore the number of micro-batches that begin on it is limited. For more
micro-batches than that, the period is at least b * U + c.

If all durations are multiples of g ticks, everything holds for the plan counted in units of g. A repetend whose period
is not a multiple of g has an order that also allows the next larger multiple. So its period is more than b * U + c - g.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tessel_core.control import Control
from tessel_core.model import MicroBatchPlan, PeriodInfimum, Repetend
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.search.states_bound import StateGraph, least_ratio, set_aside
from tessel_core.scheduling.search.timing import earliest_starts
from tessel_core.scheduling.structure import tied_by_memory

if TYPE_CHECKING:
    import networkx as nx

    Graph: TypeAlias = nx.DiGraph[int]

_MAX_STATES = 16_000
"""Largest number of states for which the exact period is computed. So many states take about a second."""
_MAX_PAUSES_TRIED = 16
"""Largest number of pauses from which a cycle with few micro-batches is sought."""


@dataclass(frozen=True, slots=True)
class ExactPeriod:
    """The least period per micro-batch in ticks, and a repetend that attains it or repetends that approach it."""

    per_micro_batch: Fraction
    infimum: PeriodInfimum | None
    """Proof that no repetend attains the least period. None if a repetend attains it."""
    _cycles: _Cycles
    _walk: _Walk

    def repetend(self, at_most: int) -> Repetend | None:
        """Return the known repetend of shortest period with at most `at_most` micro-batches, or None."""
        states = self._walk.with_at_most(at_most)
        return None if states is None else self._cycles.repetend(states)


def exact_period(plan: MicroBatchPlan, control: Control) -> ExactPeriod | None:
    """Return the exact least period per micro-batch of a plan, or None.

    One micro-batch must fit in memory. The result is None if the plan is not of the kind that the module describes, if
    it has too many states, or if the control stopped the search.
    """
    tied = list(tied_by_memory(plan))
    if len(tied) != 1 or any(lag for _, _, lag in plan.arcs):
        return None
    aside = [b for b in plan.topological_order if b not in tied[0]]
    if set_aside(plan, tied[0]) < sum(plan.blocks[b].duration for b in aside):
        return None
    cycles = _Cycles(plan, tied[0], aside)
    return cycles.exact(control) if cycles.explore(control) else None


@dataclass(frozen=True, slots=True)
class _Walk:
    """A closed walk: `there` leads to a cycle, `cycle` goes round it once, and `back` returns to the first state.

    Each list of states includes both of its ends. `sizes` has the numbers of micro-batches that begin in the three
    lists.
    """

    there: list[int]
    cycle: list[int]
    back: list[int]
    sizes: tuple[int, int, int]

    def with_at_most(self, micro_batches: int) -> list[int] | None:
        """Return the states of the walk with as many rounds on the cycle as `micro_batches` allow, or None.

        The result is None if not even one round is allowed. If the walk is only the cycle, one round is enough.
        """
        to, each, back = self.sizes
        rounds = (micro_batches - to - back) // each
        if len(self.there) == 1:
            rounds = min(rounds, 1)
        return [*self.there, *(self.cycle[1:] * rounds), *self.back[1:]] if rounds > 0 else None


class _Cycles:
    """The states of the tied blocks K, the costs of their moves, and closed walks of least cost (see the module)."""

    def __init__(self, plan: MicroBatchPlan, tied: Sequence[int], aside: Sequence[int]) -> None:
        self.plan, self.tied, self.aside = plan, tied, aside
        self.unit = gcd(*(block.duration for block in plan.blocks))
        self.ratio = Fraction(sum(plan.blocks[b].duration for b in tied), self.unit)
        self.states = StateGraph(plan, tied, self.unit, every_tick=True)
        self.graph: Graph
        """One edge per move. `begun` is the number of micro-batches that begin in the move.

        `cost` is the cost of the move times the denominator of `ratio`. `weight` compares walks by cost first, and then
        by micro-batches.
        """

    def explore(self, control: Control) -> bool:
        """Find all states, the least ratio and the costs of moves.

        Return False if there are too many states, or if the control stopped the search.
        """
        import networkx as nx

        if not self.states.explore(_MAX_STATES, control):
            return False
        ratio = least_ratio(self.states.moves, self.ratio, control)
        if ratio is None:
            return False
        self.ratio = ratio
        source, target, ticks, begun = self.states.moves.T
        cost = ticks * ratio.denominator - begun * ratio.numerator
        count = len(self.states.states)
        potential, _ = earliest_starts(count, source, target, -cost)
        cost += potential[target] - potential[source]
        rows = zip(source.tolist(), target.tolist(), cost.tolist(), begun.tolist(), strict=True)
        self.graph = nx.DiGraph()
        self.graph.add_edges_from(
            (a, b, {"cost": each, "begun": more, "weight": 2 * each * count + more}) for a, b, each, more in rows
        )
        return True

    def exact(self, control: Control) -> ExactPeriod | None:
        """Return the least period with walks that attain or approach it.

        None if not even one micro-batch fits in memory, or if the control stopped the search.
        """
        import networkx as nx

        free: Graph = nx.DiGraph()
        free.add_edges_from((a, b, move) for a, b, move in self.graph.edges(data=True) if not move["cost"])
        # A component of one state has no cycle: a micro-batch begins on each cycle, and takes more than one move.
        cyclic = [free.subgraph(each).copy() for each in nx.strongly_connected_components(free) if len(each) > 1]
        work = sum(self.plan.blocks[b].duration for b in self.aside)
        least = work + self.unit * self.ratio
        attained = [self._smallest_cycle(each, pauses) for each in cyclic if (pauses := self._pauses(each))]
        if attained:
            cycle = min(attained, key=self._begun)
            end = cycle[:1]
            return ExactPeriod(least, None, self, _Walk(end, cycle, end, (0, self._begun(cycle), 0)))
        if not cyclic or control.stopped:
            return None
        walks = [self._walk_by(each) for each in cyclic]
        cost, walk = min(walks, key=lambda each: each[0])
        longest = self._longest_below(cost, {state for each in cyclic for state in each})
        excess = self.unit * (Fraction(cost, self.ratio.denominator) - 1) + 1
        return ExactPeriod(least, PeriodInfimum(least, excess, longest), self, walk)

    def _pauses(self, states: Iterable[int]) -> list[int]:
        """Return the `states` in which A can run: those without a run in progress, or all of them if A is empty."""
        return [each for each in states if not self.aside or not any(self.states.states[each][1])]

    def _begun(self, walk: Sequence[int]) -> int:
        """Return the number of micro-batches that begin on a walk."""
        return sum(self.graph.edges[move]["begun"] for move in pairwise(walk))

    def _smallest_cycle(self, component: Graph, through: Sequence[int]) -> list[int]:
        """Return the states of a cycle of few micro-batches through one of the states `through` of a component.

        The first state is also the last.
        """
        import networkx as nx

        cycles = []
        for state in through[:_MAX_PAUSES_TRIED]:
            distances, paths = nx.single_source_dijkstra(component, state, weight="begun")
            sizes = {last: distances[last] + begun for last, _, begun in component.in_edges(state, data="begun")}
            cycles.append([*paths[min(sizes, key=sizes.__getitem__)], state])
        return min(cycles, key=self._begun)

    def _walk_by(self, component: Graph) -> tuple[int, _Walk]:
        """Return the least cost of a walk from a pause to a cycle of the component and back, and such a walk."""
        import networkx as nx

        from_there, back = nx.multi_source_dijkstra(self.graph, set(component), weight="weight")
        to_there, there = nx.multi_source_dijkstra(self.graph.reverse(copy=False), set(component), weight="weight")
        weights = {each: to_there[each] + from_there[each] for each in self._pauses(from_there) if each in to_there}
        pause = min(weights, key=weights.__getitem__)
        arrive, leave = there[pause][0], back[pause][0]
        cycle = self._smallest_cycle(component, [leave])
        to = [*there[pause][::-1], *nx.dijkstra_path(component, arrive, leave, weight="begun")[1:]]
        sizes = self._begun(to), self._begun(cycle), self._begun(back[pause])
        return weights[pause] // (2 * len(self.states.states)), _Walk(to, cycle, back[pause], sizes)

    def _longest_below(self, cost: int, cyclic: set[int]) -> int:
        """Return the most micro-batches that begin on a walk of cost below `cost` without `cyclic` states.

        Without these states, moves of cost 0 form no cycle. So the pairs (cost so far, state) have an order in which
        each move goes forwards.
        """
        import networkx as nx

        rest = self.graph.subgraph(self.graph.nodes - cyclic)
        free = nx.DiGraph((a, b) for a, b, each in rest.edges(data="cost") if not each)
        free.add_nodes_from(rest)
        order = list(nx.topological_sort(free))
        longest = [dict.fromkeys(order, 0) for _ in range(cost)]
        for so_far, here in enumerate(longest):
            for state in order:
                for _, to, move in rest.out_edges(state, data=True):
                    after = so_far + move["cost"]
                    if after < cost:
                        longest[after][to] = max(longest[after][to], here[state] + move["begun"])
        return max((each for layer in longest for each in layer.values()), default=0)

    def repetend(self, walk: Sequence[int]) -> Repetend:
        """Return the repetend of a closed walk, given by its states.

        All runs of A are in the pause at its beginning.
        """
        unroll, state = self._begun(walk), self.states.states
        work = unroll * sum(self.plan.blocks[b].duration for b in self.aside)
        period = work + self.unit * (len(walk) - 1)
        starts = np.zeros((unroll, len(self.plan.blocks)), dtype=np.int64)
        numbers = list(state[walk[0]][0])
        for tick, (here, there) in enumerate(pairwise(walk)):
            for i in self._started(here, there):
                turn, copy = divmod(numbers[i], unroll)
                starts[copy, self.tied[i]] = work + self.unit * tick - turn * period
                numbers[i] += 1
        _add_aside(self.plan, self.aside, period, starts)
        return Repetend(self.plan, period, starts)

    def _started(self, here: int, there: int) -> list[int]:
        """Return the positions in `tied` of the blocks that start in the move from state `here` to state `there`."""
        before, after = self.states.states[here][0], self.states.states[there][0]
        raised = before[0] + self.graph.edges[here, there]["begun"] - after[0]
        return [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if new + raised > old]


def _add_aside(plan: MicroBatchPlan, aside: Sequence[int], period: int, starts: IntColumn) -> None:
    """Set the starts of the blocks `aside`, which run one after another at the beginning of the period.

    The function chooses the micro-batches to which their runs belong. The choice meets the dependencies on blocks whose
    starts are known, and keeps the waits between these blocks as short as possible.
    """
    unroll = len(starts)
    duration = np.array([block.duration for block in plan.blocks])
    first = dict(zip(aside, unroll * np.cumsum([0, *(duration[b] for b in aside[:-1])]), strict=True)) if aside else {}
    known = set(range(len(plan.blocks))).difference(aside)
    early = [b for b in aside if any(plan.ancestors[each] >> b & 1 for each in known)]
    late = [b for b in aside if b not in early]
    for b, step in [*((b, 1) for b in reversed(early)), *((b, -1) for b in late)]:
        neighbours = plan.successors[b] if step > 0 else plan.predecessors[b]
        others = [each for each, _ in neighbours if each in known]

        def placed(shift: int, b: int = b) -> IntColumn:
            """Return the starts of the block, one per micro-batch, if its first run belongs to micro-batch `shift`."""
            turn, copy = np.divmod(np.arange(unroll) + shift, unroll)
            column = np.zeros(unroll, dtype=np.int64)
            column[copy] = first[b] + np.arange(unroll) * duration[b] - turn * period
            return column

        def fits(shift: int, b: int = b, step: int = step, others: Sequence[int] = others) -> bool:
            own = placed(shift, b)
            return all(
                bool(
                    (own + duration[b] <= starts[:, a]).all() if step > 0 else (starts[:, a] + duration[a] <= own).all()
                )
                for a in others
            )

        shift = 0
        while not fits(shift):
            shift += step
        while others and fits(shift - step):
            shift -= step
        starts[:, b] = placed(shift)
        known.add(b)
