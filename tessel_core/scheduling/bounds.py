"""Bounds that no schedule can beat, computed without searching."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import ceil, gcd

from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.structure import (
    MemoryInterval,
    least_held,
    longest_from,
    longest_to,
    memory_intervals_on,
    path_lengths,
)

_FEW_BLOCKS = 4
"""Up to this many blocks on a device, the idle bound tries every subset of them."""


@lru_cache(maxsize=32)
def period_bound(plan: MicroBatchPlan) -> Fraction:
    """Ticks per micro-batch that no steady state can beat, at any unroll.

    The busiest device's work, and Little's law: what a micro-batch must hold on a device for how long, divided by
    what the device can hold.
    """
    return max([Fraction(plan.busiest_work), *_memory_bounds(plan)])


@lru_cache(maxsize=32)
def kept_period_bound(bound: Fraction, micro_batches: int) -> Fraction:
    """Ticks per micro-batch below which no schedule of so many micro-batches repeats.

    It repeats U < N of them, in a whole number of ticks; `bound` holds for every U.
    """
    if bound.denominator < micro_batches:
        return bound
    return min((Fraction(ceil(bound * unroll), unroll) for unroll in range(1, micro_batches)), default=bound)


def _memory_bounds(plan: MicroBatchPlan) -> Iterator[Fraction]:
    """period >= work(A) + holding outside A / capacity, per device and per clique A of blocks [Little 1961].

    Blocks of A exclude each other in time, and no block that shares a device with all of them can progress while one
    of them runs, so on a clock that stops for A a micro-batch still holds its memory for as long as those blocks take.
    What is held is a multiple of the blocks' common divisor, so no more of the capacity than such a multiple is of use.
    And where a micro-batch holds at least v for a time, only capacity // v of them do so at once.
    """
    wide = {block.devices for block in plan.blocks if len(block.devices) > 1}
    cliques = [frozenset[int]()]
    cliques += [frozenset(b for b, block in enumerate(plan.blocks) if set(s) <= set(block.devices)) for s in wide]
    for clique in dict.fromkeys(cliques):
        work = sum(plan.blocks[b].duration for b in clique)
        for d in range(len(plan.devices)):
            capacity = plan.devices[d].activation_capacity
            unit = gcd(*(plan.blocks[b].memory for b in plan.blocks_on[d]))
            if capacity is None or capacity < unit:
                continue
            if unit:
                yield work + Fraction(least_holding(plan, d, clique), capacity - capacity % unit)
            for hold in memory_intervals_on(plan, d):
                at_once = capacity // least_held(plan, d, hold)
                if at_once:
                    yield work + Fraction(_least_length(plan, hold, clique), at_once)


def least_holding(plan: MicroBatchPlan, device: int, clique: frozenset[int] = frozenset()) -> int:
    """Least memory x time that one micro-batch holds on `device`, on a clock that stops while `clique` runs.

    min over starts of sum(released x end) - sum(acquired x start), subject to the dependencies: the dual of a
    minimum-cost flow from acquiring to releasing blocks, so the optimum is an integer and exact.
    """
    memory = {b: plan.blocks[b].memory for b in plan.blocks_on[device] if plan.blocks[b].memory}
    if not memory:
        return 0
    shared = gcd(*memory.values())
    clock = _rivals_of_all(plan, clique, without=clique)
    fixed = sum(-held // shared * clock[b] for b, held in memory.items() if held < 0)
    arcs = [(before, after, clock[before] + (0 if clique else lag)) for before, after, lag in plan.arcs]
    supplies = {b: held // shared for b, held in memory.items()}
    return shared * (fixed + _longest_flow(len(plan.blocks), arcs, supplies))


def _least_length(plan: MicroBatchPlan, hold: MemoryInterval, clique: frozenset[int]) -> int:
    """Least time that `hold` lasts on a clock that stops while `clique` runs: the longest path from start to end."""
    clock = _rivals_of_all(plan, clique, without=clique)
    between = longest_from(plan, hold.acquire, clock, lags=not clique)[hold.release]
    return clock[hold.acquire] + between + clock[hold.release]


def _rivals_of_all(plan: MicroBatchPlan, blocks: Collection[int], without: Collection[int]) -> list[int]:
    """Per block, its duration where it shares a device with each of `blocks` and is none of `without`, else 0."""
    devices = [set(plan.blocks[b].devices) for b in blocks]
    return [
        block.duration if b not in without and all(each.intersection(block.devices) for each in devices) else 0
        for b, block in enumerate(plan.blocks)
    ]


def _longest_flow(nodes: int, arcs: list[tuple[int, int, int]], supplies: dict[int, int]) -> int:
    """Most total length that a flow meeting `supplies` (positive sends, negative receives) can travel along `arcs`."""
    from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

    amount = sum(s for s in supplies.values() if s > 0)
    if amount * sum(length for _, _, length in arcs) > 2**60:
        return _longest_flow_big(nodes, arcs, supplies)
    flow = SimpleMinCostFlow()
    for before, after, length in arcs:
        flow.add_arc_with_capacity_and_unit_cost(before, after, amount, -length)
    for node in range(nodes):
        flow.set_node_supply(node, supplies.get(node, 0))
    if flow.solve() != flow.OPTIMAL:  # type: ignore[no-untyped-call]
        raise AssertionError("a well-formed plan always has a flow from what it acquires to what it releases")
    return -int(flow.optimal_cost())


def _longest_flow_big(nodes: int, arcs: list[tuple[int, int, int]], supplies: dict[int, int]) -> int:
    """As `_longest_flow`, for numbers beyond 64 bits."""
    import networkx as nx

    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from((node, {"demand": -supplies.get(node, 0)}) for node in range(nodes))
    graph.add_edges_from((before, after, {"weight": -length}) for before, after, length in arcs)
    cost, _ = nx.network_simplex(graph)
    return -int(cost)


@lru_cache(maxsize=32)
def makespan_bound(plan: MicroBatchPlan, micro_batches: int) -> int:
    """Ticks that no schedule of `micro_batches` can beat: critical path, idle bound, Little's law, memory windows."""
    path = max(path_lengths(plan)[1])
    memory = max((ceil(micro_batches * bound) for bound in _memory_bounds(plan)), default=0)
    return max(path, memory, idle_bound(plan, micro_batches), window_bound(plan, micro_batches))


def idle_bound(plan: MicroBatchPlan, micro_batches: int) -> int:
    """max over devices and subsets Q of their blocks of N x work + least head idle + least tail idle.

    Before a device's first run of Q it can run only its other blocks; an ancestor of Q that shares a device with every
    one of those forces it to idle.  Tails likewise, on the reversed plan.
    """
    best = 0
    for d in range(len(plan.devices)):
        for chosen in _subsets(plan, d):
            others = [b for b in plan.blocks_on[d] if b not in chosen]
            forced = _rivals_of_all(plan, others, without=plan.blocks_on[d])
            heads = longest_to(plan, forced, lags=not others)
            tails = longest_to(plan, forced, lags=not others, backwards=True)
            idle = min(heads[q] for q in chosen) + min(tails[q] for q in chosen)
            best = max(best, micro_batches * plan.work[d] + idle)
    return best


def _subsets(plan: MicroBatchPlan, device: int) -> Iterator[frozenset[int]]:
    blocks = plan.blocks_on[device]
    if len(blocks) <= _FEW_BLOCKS:
        for size in range(1, len(blocks) + 1):
            yield from map(frozenset, combinations(blocks, size))
        return
    widths = sorted({len(plan.blocks[b].devices) for b in blocks})
    for width in widths:
        yield frozenset(b for b in blocks if len(plan.blocks[b].devices) <= width)


def window_bound(plan: MicroBatchPlan, micro_batches: int) -> int:
    """Ticks that no schedule can beat, from the memory window of each device; 0 where no window is narrow enough.

    A micro-batch that has at least v of a device's capacity from the start of block a to the end of block r shares it
    with at most c = capacity // v - 1 others.  As runs of one block can be swapped freely, let all take micro-batches
    in order: then the acquire of m + c waits for the release of m, and so on round after round, N / c times.
    """
    heads, tails = path_lengths(plan)
    longest = 0
    for d, device in enumerate(plan.devices):
        capacity = device.activation_capacity
        if capacity is None or capacity < 0:
            continue
        for hold in memory_intervals_on(plan, d):
            at_once = capacity // least_held(plan, d, hold)
            if 0 < at_once < micro_batches:
                window = _Window(plan, d, hold, at_once, heads, tails)
                longest = max(longest, _round_by_round(window, micro_batches))
    return longest


class _Window:
    """One device's blocks as the window from the start of block a to the end of block r sees them, in ticks."""

    def __init__(
        self, plan: MicroBatchPlan, device: int, hold: MemoryInterval, at_once: int, heads: list[int], tails: list[int]
    ) -> None:
        a, r, ancestors, on = hold.acquire, hold.release, plan.ancestors, plan.blocks_on[device]
        duration = [block.duration for block in plan.blocks]
        before = [b for b in on if ancestors[a] >> b & 1]
        following = [b for b in on if ancestors[b] >> a & 1 and b != r]
        work = sum(duration[b] for b in following)
        self.at_once = at_once
        """Micro-batches that the window admits."""
        self.head, self.tail = heads[a], tails[r] - duration[r]
        """Longest path to the start of a, and from the end of r."""
        self.hold = duration[a] + longest_from(plan, a, duration)[r] + duration[r]
        """Longest path from the start of a to the end of r."""
        self.acquire, self.release = duration[a], duration[r]
        self.before = sum(duration[b] for b in before)
        """Work of the device's blocks that a waits for."""
        self.between = sum(duration[b] for b in following if ancestors[r] >> b & 1)
        """... that wait for a, and r for them."""
        self.after = sum(duration[b] for b in following if ancestors[b] >> r & 1)
        """... that wait for r."""
        self.beside = work - self.between - self.after
        """... that wait for a, and have nothing to do with r."""
        self.first = min(heads[b] for b in (*before, a))
        """Ticks before any of the device's blocks up to r can start."""
        self.last = min(tails[b] - duration[b] for b in (a, r, *following))
        """Ticks after the last of its blocks from a on."""


def _round_by_round(window: _Window, micro_batches: int) -> int:
    """The makespan after all acquires and releases in order, each as early as these rules allow, with c = `at_once`:

    - a(j) starts after j + 1 runs of what precedes a, j of a, and j - c + 1 of what precedes the releases before it;
    - a(j) starts after the end of r(i), i = j - c, and then after the j - i - c runs of a, and of r, in between;
    - r(j) ends a hold after a(j) starts, and after the j - i runs of r, and j - i - c + 1 of a, since r(i) ended;
    - after r(i) ends, N - 1 - i runs of r, N - i - c of a and N - i of what follows r are still to come.
    """
    w, c, count = window, window.at_once, micro_batches
    pair, whole = w.acquire + w.release, w.acquire + w.between + w.release
    starts, ends = list[int](), list[int]()
    steady_start = steady_acquire = steady_end = makespan = 0
    for j in range(count):
        start = max(w.head, w.first + (j + 1) * w.before + j * w.acquire)
        if j:
            start = max(start, starts[-1] + w.acquire)
        if j >= c:
            start = max(start, w.first + (j + 1) * w.before + j * w.acquire + (j - c + 1) * (w.between + w.release))
            steady_start = max(steady_start + pair, ends[j - c])
            steady_acquire = max(steady_acquire + whole, starts[j - c] + (c - 1) * w.acquire + whole)
            start = max(start, steady_start, steady_acquire)
        end = start + w.hold
        if j:
            end = max(end, ends[-1] + w.release)
        if j >= c:
            steady_end = max(steady_end, ends[j - c] + (c - 1) * w.release) + whole
            end = max(end, steady_end)
        starts.append(start)
        ends.append(end)
        to_come = count - 1 - j
        work = (
            to_come * w.release + max(0, count - j - c) * (w.acquire + w.between + w.beside) + (to_come + 1) * w.after
        )
        makespan = max(makespan, end + to_come * w.release + w.tail, end + work + w.last)
        makespan = max(makespan, start + (to_come + 1) * (whole + w.beside + w.after) + w.last)
    return makespan
