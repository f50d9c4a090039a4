"""Structure of a plan: longest paths, intervals of memory, independent parts and mirror images."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tessel_core.model import MicroBatchPlan
from tessel_core.model.checks import joined


def longest_to(
    plan: MicroBatchPlan, weight: Sequence[int], quantum: int = 1, *, lags: bool = True, backwards: bool = False
) -> list[int]:
    """Return the length of the longest path to the start of each block, or from its end if `backwards`.

    The length is the sum of the `weight` of the other blocks on the path and, with `lags`, of the lags between blocks.
    Weights and lengths are in quanta of `quantum` ticks. Lags are rounded down to quanta.
    """
    before = plan.successors if backwards else plan.predecessors
    longest = [0] * len(plan.blocks)
    for b in reversed(plan.topological_order) if backwards else plan.topological_order:
        reached = (longest[a] + weight[a] + (lag // quantum if lags else 0) for a, lag in before[b])
        longest[b] = max(reached, default=0)
    return longest


def path_lengths(plan: MicroBatchPlan, quantum: int = 1) -> tuple[list[int], list[int]]:
    """Return two lists with the longest path of each block: to its start, and from its start to the micro-batch's end.

    Lengths are in quanta of `quantum` ticks, to which durations and lags are rounded down.
    """
    duration = [block.duration // quantum for block in plan.blocks]
    after = longest_to(plan, duration, quantum, backwards=True)
    return longest_to(plan, duration, quantum), [own + rest for own, rest in zip(duration, after, strict=True)]


def longest_from(
    plan: MicroBatchPlan,
    first: int,
    weight: Sequence[int],
    quantum: int = 1,
    *,
    lags: bool = True,
    ends: Collection[int] = (),
) -> dict[int, int]:
    """Return the length of the longest path from the end of `first` to the start of each block that depends on it.

    A path may end at a block of `ends`, but not pass through it. Weights, lags and quanta are as in `longest_to`.
    """
    longest: dict[int, int] = {}
    for b in plan.topological_order:
        reached = [
            (lag // quantum if lags else 0) + (0 if a == first else longest[a] + weight[a])
            for a, lag in plan.predecessors[b]
            if a == first or (a in longest and a not in ends)
        ]
        if reached:
            longest[b] = max(reached)
    return longest


@dataclass(frozen=True, slots=True)
class MemoryInterval:
    """An `amount` of memory that a micro-batch holds from the start of block `acquire` to the end of `release`."""

    acquire: int
    release: int
    amount: int


@lru_cache(maxsize=256)
def memory_intervals_on(plan: MicroBatchPlan, device: int) -> tuple[MemoryInterval, ...]:
    """Return the intervals in which one micro-batch holds memory of a device.

    The sum of their amounts is all memory that the micro-batch holds there. Each interval leads from an acquiring block
    to a releasing block that depends on it. The amounts are a flow from acquiring to releasing blocks that uses all
    memory. Every well-formed plan has such a flow.
    """
    acquires = [b for b in plan.blocks_on[device] if plan.blocks[b].memory > 0]
    releases = [b for b in plan.blocks_on[device] if plan.blocks[b].memory < 0]
    if len(acquires) == 1:
        return tuple(MemoryInterval(acquires[0], r, -plan.blocks[r].memory) for r in releases)
    if len(releases) == 1:
        return tuple(MemoryInterval(a, releases[0], plan.blocks[a].memory) for a in acquires)
    return _paired_by_flow(plan, acquires, releases)


def _paired_by_flow(plan: MicroBatchPlan, acquires: list[int], releases: list[int]) -> tuple[MemoryInterval, ...]:
    from ortools.graph.python.max_flow import SimpleMaxFlow

    flow, source, sink = SimpleMaxFlow(), len(plan.blocks), len(plan.blocks) + 1
    for a in acquires:
        flow.add_arc_with_capacity(source, a, plan.blocks[a].memory)
    for r in releases:
        flow.add_arc_with_capacity(r, sink, -plan.blocks[r].memory)
    pairs = {
        flow.add_arc_with_capacity(a, r, plan.blocks[a].memory): (a, r)
        for a in acquires
        for r in releases
        if plan.ancestors[r] >> a & 1
    }
    if flow.solve(source, sink) != flow.OPTIMAL:  # type: ignore[no-untyped-call]
        raise AssertionError("a well-formed plan always has a flow from acquiring to releasing blocks")
    amounts = ((pair, int(flow.flow(arc))) for arc, pair in pairs.items())
    return tuple(MemoryInterval(a, r, amount) for (a, r), amount in amounts if amount)


def least_held(plan: MicroBatchPlan, device: int, during: MemoryInterval) -> int:
    """Return the least memory that one micro-batch holds on `device` from the start to the end of an interval.

    It is the total amount of all memory intervals that always contain the given interval.
    """

    def reaches(before: int, after: int) -> bool:
        return before == after or bool(plan.ancestors[after] >> before & 1)

    return sum(
        hold.amount
        for hold in memory_intervals_on(plan, device)
        if reaches(hold.acquire, during.acquire) and reaches(during.release, hold.release)
    )


def tied_by_memory(plan: MicroBatchPlan) -> Iterator[list[int]]:
    """Yield sets of blocks that limited memory ties together: no block can run far ahead of another one in the set.

    A successor cannot get ahead of its predecessor. On a device with limited memory, an acquiring block cannot get far
    ahead of its releasing block. Each set has two or more blocks.
    """
    import networkx as nx

    ties: nx.DiGraph[int] = nx.DiGraph()
    ties.add_edges_from((before, after) for before, after, _ in plan.arcs)
    for d, device in enumerate(plan.devices):
        if device.activation_capacity is not None:
            ties.add_edges_from((hold.release, hold.acquire) for hold in memory_intervals_on(plan, d))
    for tied in nx.strongly_connected_components(ties):
        if len(tied) > 1:
            yield sorted(tied)


def all_tied(plan: MicroBatchPlan) -> list[int]:
    """Return all blocks of the sets of `tied_by_memory`, and the blocks on paths between two such blocks."""
    tied = sum(1 << b for each in tied_by_memory(plan) for b in each)
    before = 0
    for b in range(len(plan.blocks)):
        before |= plan.ancestors[b] if tied >> b & 1 else 0
    return [b for b in range(len(plan.blocks)) if tied >> b & 1 or (before >> b & 1 and plan.ancestors[b] & tied)]


def part_of(plan: MicroBatchPlan, blocks: Collection[int]) -> MicroBatchPlan:
    """Return the plan with only the given blocks, in their order in the plan, and their mutual dependencies."""
    names = {plan.blocks[b].name for b in blocks}
    return replace(
        plan,
        blocks=tuple(block for block in plan.blocks if block.name in names),
        dependencies=tuple(dep for dep in plan.dependencies if {dep.predecessor, dep.successor} <= names),
    )


def independent_parts(plan: MicroBatchPlan) -> tuple[tuple[int, ...], ...]:
    """Return the connected components of the plan's graph, as block indices.

    Components are ordered by their first blocks.
    """
    return joined(len(plan.blocks), [(before, after) for before, after, _ in plan.arcs])


def find_mirror(plan: MicroBatchPlan) -> dict[int, int]:
    """Map each block of the second half of a plan to its mirror image in the first half.

    In the image, device d of n devices becomes device n - 1 - d. The map is empty if the plan has no mirror image. If
    each block starts together with its image, the rules of one half imply those of the other. Then only half of the
    plan has to be solved.
    """
    halves = independent_parts(plan)
    if len(halves) != 2 or len(halves[0]) != len(halves[1]):
        return {}
    last = len(plan.devices) - 1

    def looks(b: int, reflect: bool) -> tuple[object, ...]:
        block = plan.blocks[b]
        devices = sorted(last - d if reflect else d for d in block.devices)
        return block.kind, block.duration, block.memory, tuple(devices)

    originals, images = {looks(b, True): b for b in halves[0]}, {looks(b, False): b for b in halves[1]}
    if originals.keys() != images.keys() or len(originals) < len(halves[0]):
        return {}
    mirror = {image: originals[look] for look, image in images.items()}
    folded = {(mirror[a], mirror[b], lag) for a, b, lag in plan.arcs if a in mirror}
    same_arcs = folded == {(a, b, lag) for a, b, lag in plan.arcs if a not in mirror}
    capacities = [device.activation_capacity for device in plan.devices]
    return mirror if same_arcs and capacities == capacities[::-1] else {}
