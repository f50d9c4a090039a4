"""What no schedule can beat, computed without searching."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import ceil, gcd

from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.memory_window import window_bound
from tessel_core.scheduling.search.memory_intervals import MemoryInterval, least_held, memory_intervals_on

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
            capacity, unit = (
                plan.devices[d].activation_capacity,
                gcd(*(plan.blocks[b].memory for b in plan.blocks_on[d])),
            )
            if capacity is not None and unit and capacity >= unit:
                yield work + Fraction(least_holding(plan, d, clique), capacity - capacity % unit)
            for hold in memory_intervals_on(plan, d) if capacity is not None and capacity >= unit else ():
                assert capacity is not None
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
    clock = _clock_durations(plan, clique)
    fixed = sum(-held // shared * clock[b] for b, held in memory.items() if held < 0)
    arcs = [(before, after, clock[before] + (0 if clique else lag)) for before, after, lag in plan.arcs]
    supplies = {b: held // shared for b, held in memory.items()}
    return shared * (fixed + _longest_flow(len(plan.blocks), arcs, supplies))


def _least_length(plan: MicroBatchPlan, hold: MemoryInterval, clique: frozenset[int]) -> int:
    """Least time that `hold` lasts on a clock that stops while `clique` runs: the longest path from start to end."""
    clock = _clock_durations(plan, clique)
    way = {hold.acquire: 0}
    for b in plan.topological_order:
        reached = [way[a] + clock[a] + (0 if clique else lag) for a, lag in plan.predecessors[b] if a in way]
        if reached:
            way[b] = max(reached)
    return way[hold.release] + clock[hold.release]


def _clock_durations(plan: MicroBatchPlan, clique: frozenset[int]) -> list[int]:
    devices = [set(block.devices) for block in plan.blocks]
    return [
        block.duration if b not in clique and all(devices[b] & devices[a] for a in clique) else 0
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
    durations = {b: block.duration for b, block in enumerate(plan.blocks)}
    path = max(ready + durations[b] for b, ready in enumerate(_longest_to(plan, durations)))
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
            forced = _forced_idle(plan, d, others)
            heads = _longest_to(plan, forced, lags=not others)
            tails = _longest_to(plan, forced, lags=not others, backwards=True)
            idle = min(heads[q] for q in chosen) + min(tails[q] for q in chosen)
            best = max(best, micro_batches * plan.work[d] + idle)
    return best


def _forced_idle(plan: MicroBatchPlan, device: int, others: list[int]) -> dict[int, int]:
    """Per block off `device`, its duration where none of `others` can run beside it."""
    rivals = [set(plan.blocks[b].devices) for b in others]
    return {
        b: block.duration
        for b, block in enumerate(plan.blocks)
        if device not in block.devices and all(rival & set(block.devices) for rival in rivals)
    }


def _longest_to(
    plan: MicroBatchPlan,
    weight: dict[int, int],
    *,
    lags: bool = True,
    backwards: bool = False,
) -> list[int]:
    """Per block, the longest path to its start, counting `weight` of the blocks before it and, if asked, lags."""
    before = plan.successors if backwards else plan.predecessors
    order = reversed(plan.topological_order) if backwards else iter(plan.topological_order)
    longest = [0] * len(plan.blocks)
    for b in order:
        longest[b] = max((longest[a] + weight.get(a, 0) + (lag if lags else 0) for a, lag in before[b]), default=0)
    return longest


def _subsets(plan: MicroBatchPlan, device: int) -> Iterator[frozenset[int]]:
    blocks = plan.blocks_on[device]
    if len(blocks) <= _FEW_BLOCKS:
        for size in range(1, len(blocks) + 1):
            yield from map(frozenset, combinations(blocks, size))
        return
    widths = sorted({len(plan.blocks[b].devices) for b in blocks})
    for width in widths:
        yield frozenset(b for b in blocks if len(plan.blocks[b].devices) <= width)
