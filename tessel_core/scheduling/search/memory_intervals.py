"""Memory as intervals: which release returns what which block acquired."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tessel_core.model import MicroBatchPlan


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
    """What a micro-batch has on `device` at least while `during` lasts: holds that begin no later and end no sooner."""

    def reaches(before: int, after: int) -> bool:
        return before == after or bool(plan.ancestors[after] >> before & 1)

    return sum(
        hold.amount
        for hold in memory_intervals_on(plan, device)
        if reaches(hold.acquire, during.acquire) and reaches(during.release, hold.release)
    )
