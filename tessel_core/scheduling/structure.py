"""The structure of one micro-batch: its longest paths, memory as intervals, independent parts and mirror images."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tessel_core.model import MicroBatchPlan
from tessel_core.model.checks import joined


def longest_to(
    plan: MicroBatchPlan, weight: Sequence[int], quantum: int = 1, *, lags: bool = True, backwards: bool = False
) -> list[int]:
    """Per block, the longest path to its start, or backwards from its end: the `weight` of other blocks, and lags.

    Lags are rounded down to quanta, in which weights and paths are counted.
    """
    before = plan.successors if backwards else plan.predecessors
    longest = [0] * len(plan.blocks)
    for b in reversed(plan.topological_order) if backwards else plan.topological_order:
        reached = (longest[a] + weight[a] + (lag // quantum if lags else 0) for a, lag in before[b])
        longest[b] = max(reached, default=0)
    return longest


def path_lengths(plan: MicroBatchPlan, quantum: int = 1) -> tuple[list[int], list[int]]:
    """Per block, the longest path to its start, and from its start to the end of the micro-batch.

    Durations and lags are rounded down to quanta, and lengths counted in them.
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
    """As `longest_to`, per block that follows `first`, from the end of `first` and through none of `ends`."""
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
    """`amount` of memory held from the start of block `acquire` to the end of block `release`."""

    acquire: int
    release: int
    amount: int


@lru_cache(maxsize=256)
def memory_intervals_on(plan: MicroBatchPlan, device: int) -> tuple[MemoryInterval, ...]:
    """Holds that add up to exactly what the device's blocks acquire and release.

    Each release is paired with blocks that precede it, so that every hold is an interval: a saturating flow, which a
    well-formed plan always has.
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
        raise AssertionError("a well-formed plan always has a flow from what it acquires to what it releases")
    found = ((pair, int(flow.flow(arc))) for arc, pair in pairs.items())
    return tuple(MemoryInterval(a, r, amount) for (a, r), amount in found if amount)


def least_held(plan: MicroBatchPlan, device: int, during: MemoryInterval) -> int:
    """The least that a micro-batch holds on `device` while `during` lasts: intervals that contain it."""

    def reaches(before: int, after: int) -> bool:
        return before == after or bool(plan.ancestors[after] >> before & 1)

    return sum(
        hold.amount
        for hold in memory_intervals_on(plan, device)
        if reaches(hold.acquire, during.acquire) and reaches(during.release, hold.release)
    )


def independent_parts(plan: MicroBatchPlan) -> tuple[tuple[int, ...], ...]:
    """The connected components of the plan's graph, in the order of their first blocks."""
    return joined(len(plan.blocks), [(before, after) for before, after, _ in plan.arcs])


def find_mirror(plan: MicroBatchPlan) -> dict[int, int]:
    """Each block of one half mapped to its image in the other when device d becomes n - 1 - d; empty without one.

    A schedule in which images start together satisfies both halves' rules at once, so half the plan need be solved.
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
