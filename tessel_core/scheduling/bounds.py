"""Lower bounds on periods and makespans that need no search."""

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

_MAX_BLOCKS_FOR_ALL_SUBSETS = 4
"""If a device has at most this many blocks, the idle bound tries every subset of them."""


@lru_cache(maxsize=32)
def period_bound(plan: MicroBatchPlan) -> Fraction:
    """Return a lower bound on the period per micro-batch in ticks, for any number of micro-batches per period.

    It is the larger of two bounds. The first is the work of the busiest device. The second is Little's law: the least
    memory x time that a micro-batch holds on a device, divided by the capacity of the device.
    """
    return max([Fraction(plan.busiest_work), *_memory_bounds(plan)])


@lru_cache(maxsize=32)
def kept_period_bound(bound: Fraction, micro_batches: int) -> Fraction:
    """Return a lower bound on the period per micro-batch of a repetend of fewer than `micro_batches` micro-batches.

    The period of such a repetend is a whole number of ticks, so the result may be above `bound`. `bound` is a lower
    bound on the period per micro-batch of every repetend.
    """
    if bound.denominator < micro_batches:
        return bound
    return min((Fraction(ceil(bound * unroll), unroll) for unroll in range(1, micro_batches)), default=bound)


def _memory_bounds(plan: MicroBatchPlan) -> Iterator[Fraction]:
    """Yield lower bounds on the period per micro-batch, for each device and each clique of blocks.

    A clique is a set of blocks of which no two run at the same time, because they share a device. It may be empty. The
    bound is the work of the clique + memory x time / capacity. Here, memory x time is the least that one micro-batch
    holds on the device while no block of the clique runs. The time counts only blocks that share a device with every
    block of the clique, because only these never run at the same time as the clique.

    Memory held is a multiple of the greatest common divisor of the blocks' memory, so the capacity is rounded down to
    such a multiple.

    A second form counts micro-batches. If each micro-batch holds at least v for at least t ticks, at most capacity // v
    micro-batches do so at once. Then t / (capacity // v) replaces memory x time / capacity [Little 1961].
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
    """Return the least memory x ticks that one micro-batch holds on `device` while no block of `clique` runs.

    It is the minimum of sum(released x end) - sum(acquired x start) over all starts of blocks that keep the
    dependencies. Its dual is a minimum-cost flow from acquiring to releasing blocks, so the optimum is an exact
    integer.
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
    """Return the least number of ticks of `hold` in which no block of `clique` runs.

    It is the length of the longest path through `hold`. Only blocks that share a device with all of `clique` add to
    this length.
    """
    clock = _rivals_of_all(plan, clique, without=clique)
    between = longest_from(plan, hold.acquire, clock, lags=not clique)[hold.release]
    return clock[hold.acquire] + between + clock[hold.release]


def _rivals_of_all(plan: MicroBatchPlan, blocks: Collection[int], without: Collection[int]) -> list[int]:
    """Return the duration of each block that shares a device with all of `blocks`, and 0 for all other blocks.

    Blocks in `without` get 0 too.
    """
    devices = [set(plan.blocks[b].devices) for b in blocks]
    return [
        block.duration if b not in without and all(each.intersection(block.devices) for each in devices) else 0
        for b, block in enumerate(plan.blocks)
    ]


def _longest_flow(nodes: int, arcs: list[tuple[int, int, int]], supplies: dict[int, int]) -> int:
    """Return the largest total length of a flow from nodes with positive `supplies` to nodes with negative ones.

    `arcs` are triples (from, to, length). The total length is the sum of flow x length over all arcs.
    """
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
        raise AssertionError("a well-formed plan always has a flow from acquiring to releasing blocks")
    return -int(flow.optimal_cost())


def _longest_flow_big(nodes: int, arcs: list[tuple[int, int, int]], supplies: dict[int, int]) -> int:
    """Return the same as `_longest_flow`, for numbers beyond 64 bits."""
    import networkx as nx

    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from((node, {"demand": -supplies.get(node, 0)}) for node in range(nodes))
    graph.add_edges_from((before, after, {"weight": -length}) for before, after, length in arcs)
    cost, _ = nx.network_simplex(graph)
    return -int(cost)


@lru_cache(maxsize=32)
def makespan_bound(plan: MicroBatchPlan, micro_batches: int) -> int:
    """Return a lower bound on the makespan in ticks.

    It is the largest of the critical path, the idle bound, Little's law and the window bound.
    """
    path = max(path_lengths(plan)[1])
    memory = max((ceil(micro_batches * bound) for bound in _memory_bounds(plan)), default=0)
    return max(path, memory, idle_bound(plan, micro_batches), window_bound(plan, micro_batches))


def idle_bound(plan: MicroBatchPlan, micro_batches: int) -> int:
    """Return a lower bound on the makespan in ticks: the work of a device plus its idle time at both ends.

    It is the maximum over all devices, and over all subsets Q of a device's blocks. Before the first run of Q, the
    device can run only its other blocks. If an ancestor of Q shares a device with all of these other blocks, the device
    idles while that ancestor runs. The idle time after the last run of Q follows in the same way from the plan with
    time reversed.
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
    """Yield the sets of a device's blocks that the idle bound tries.

    If the device has few blocks, they are all subsets. Otherwise there is one set for each number k: the device's
    blocks that run on at most k devices.
    """
    blocks = plan.blocks_on[device]
    if len(blocks) <= _MAX_BLOCKS_FOR_ALL_SUBSETS:
        for size in range(1, len(blocks) + 1):
            yield from map(frozenset, combinations(blocks, size))
        return
    widths = sorted({len(plan.blocks[b].devices) for b in blocks})
    for width in widths:
        yield frozenset(b for b in blocks if len(plan.blocks[b].devices) <= width)


def window_bound(plan: MicroBatchPlan, micro_batches: int) -> int:
    """Return a lower bound on the makespan in ticks from the micro-batches that fit a device at once, or 0 if all fit.

    Let each micro-batch hold at least v of a device's memory from the start of block a to the end of block r. Then at
    most c = capacity // v micro-batches do so at once. Runs of one block are interchangeable, so assume that they come
    in order of micro-batch. Then run m + c of block a waits for the end of run m of block r, for every m.
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
    """Work and paths around the interval from the start of block a to the end of block r, on one device, in ticks.

    The blocks a and r are those of `window_bound`.
    """

    def __init__(
        self, plan: MicroBatchPlan, device: int, hold: MemoryInterval, at_once: int, heads: list[int], tails: list[int]
    ) -> None:
        a, r, ancestors, on = hold.acquire, hold.release, plan.ancestors, plan.blocks_on[device]
        duration = [block.duration for block in plan.blocks]
        before = [b for b in on if ancestors[a] >> b & 1]
        following = [b for b in on if ancestors[b] >> a & 1 and b != r]
        work = sum(duration[b] for b in following)
        self.at_once = at_once
        """Largest number of micro-batches that can be in the interval at the same time."""
        self.head, self.tail = heads[a], tails[r] - duration[r]
        """Longest path to the start of a, and longest path from the end of r."""
        self.hold = duration[a] + longest_from(plan, a, duration)[r] + duration[r]
        """Longest path from the start of a to the end of r."""
        self.acquire, self.release = duration[a], duration[r]
        self.before = sum(duration[b] for b in before)
        """Work of the device's blocks that precede a."""
        self.between = sum(duration[b] for b in following if ancestors[r] >> b & 1)
        """Work of the device's blocks that follow a and precede r."""
        self.after = sum(duration[b] for b in following if ancestors[b] >> r & 1)
        """Work of the device's blocks that follow r."""
        self.beside = work - self.between - self.after
        """Work of the device's blocks that follow a and are independent of r."""
        self.first = min(heads[b] for b in (*before, a))
        """Longest path to the start of a, or to the start of a device's block before it, whichever is shorter."""
        self.last = min(tails[b] - duration[b] for b in (a, r, *following))
        """Longest path from the end of a, of r, or of a device's block after a, whichever is shortest."""


def _round_by_round(window: _Window, micro_batches: int) -> int:
    """Return the makespan in ticks if all runs start as early as the rules below allow.

    a(j) and r(j) are the runs of blocks a and r (see `window_bound`) in micro-batch j, counted from 0. c is `at_once`,
    and N is the number of micro-batches.

    - Before a(j), the device does j + 1 runs of the blocks before a, j runs of a, and j - c + 1 runs of r and of the
      blocks between a and r.
    - a(j) starts after r(i) ends, for i = j - c, and then after the j - i - c runs of a, and of r, in between.
    - r(j) ends at least `hold` ticks after a(j) starts. It also ends after the j - i runs of r and the j - i - c + 1
      runs of a that follow the end of r(i).
    - After r(i) ends, N - 1 - i runs of r, N - i - c runs of a, and N - i runs of the blocks after r remain.
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
