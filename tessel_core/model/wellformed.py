"""The memory half of a well-formed plan: what a micro-batch acquires, it returns, and never before acquiring it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessel_core.errors import InputError

if TYPE_CHECKING:
    from tessel_core.model.plan import MicroBatchPlan


def check_memory_returns(plan: MicroBatchPlan) -> None:
    """Raise InputError unless every device's memory sums to 0 and can never go negative.

    The least that any order can hold is a minimum closure: each set of releases needs at least as much acquired
    by their ancestors on that device (Hall), which holds exactly when a flow from acquiring blocks to the releasing
    blocks that they precede saturates the releases [Picard 1976].
    """
    for d, device in enumerate(plan.devices):
        acquires = [b for b in plan.blocks_on[d] if plan.blocks[b].memory > 0]
        releases = [b for b in plan.blocks_on[d] if plan.blocks[b].memory < 0]
        total = sum(plan.blocks[b].memory for b in acquires + releases)
        if total != 0:
            raise InputError(
                f"device {device.name}", f"the memory of one micro-batch's blocks must sum to 0, it sums to {total}"
            )
        _check_never_negative(plan, d, acquires, releases)


def _check_never_negative(plan: MicroBatchPlan, device: int, acquires: list[int], releases: list[int]) -> None:
    for release in releases:
        available = sum(plan.blocks[a].memory for a in acquires if plan.ancestors[release] >> a & 1)
        if available < -plan.blocks[release].memory:
            raise InputError(
                f"device {plan.devices[device].name}",
                f"block {plan.blocks[release].name} can release {-plan.blocks[release].memory} when only {available} "
                "is held: the dependencies do not make the blocks that acquire it come first",
            )
    if len(releases) < 2 or len(acquires) == 1:
        return
    short = sum(-plan.blocks[b].memory for b in releases) - _saturated(plan, acquires, releases)
    if short:
        raise InputError(
            f"device {plan.devices[device].name}",
            f"an order that the dependencies allow releases {short} more than is held",
        )


def _saturated(plan: MicroBatchPlan, acquires: list[int], releases: list[int]) -> int:
    import networkx as nx

    graph: nx.DiGraph[object] = nx.DiGraph()
    for a in acquires:
        graph.add_edge("source", a, capacity=plan.blocks[a].memory)
    for r in releases:
        graph.add_edge(r, "sink", capacity=-plan.blocks[r].memory)
        graph.add_edges_from((a, r) for a in acquires if plan.ancestors[r] >> a & 1)
    return int(nx.maximum_flow_value(graph, "source", "sink"))
