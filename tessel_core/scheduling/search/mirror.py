"""Plans that are their own mirror image: two independent halves that run up and down the devices."""

from __future__ import annotations

from tessel_core.model import MicroBatchPlan


def find_mirror(plan: MicroBatchPlan) -> dict[int, int]:
    """Each block of one half mapped to its image in the other when device d becomes n - 1 - d; empty without one.

    A schedule in which images start together satisfies both halves' rules at once, so half the plan need be solved.
    """
    halves = _components(plan)
    if len(halves) != 2 or len(halves[0]) != len(halves[1]):
        return {}
    last = len(plan.devices) - 1

    def looks(b: int, reflect: bool) -> tuple[object, ...]:
        block = plan.blocks[b]
        devices = sorted(last - d if reflect else d for d in block.devices)
        return block.kind, block.duration, block.memory, tuple(devices)

    originals = {looks(b, True): b for b in halves[0]}
    images = {b: originals.get(looks(b, False)) for b in halves[1]}
    mirror = {b: original for b, original in images.items() if original is not None}
    if len(originals) < len(halves[0]) or len(set(mirror.values())) < len(halves[0]):
        return {}
    folded = {(mirror[a], mirror[b], lag) for a, b, lag in plan.arcs if a in mirror}
    same_arcs = folded == {(a, b, lag) for a, b, lag in plan.arcs if a not in mirror}
    return mirror if same_arcs and _same_devices(plan) else {}


def _same_devices(plan: MicroBatchPlan) -> bool:
    capacities = [device.activation_capacity for device in plan.devices]
    return capacities == capacities[::-1]


def _components(plan: MicroBatchPlan) -> list[list[int]]:
    import networkx as nx

    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(len(plan.blocks)))
    graph.add_edges_from((a, b) for a, b, _ in plan.arcs)
    return sorted(sorted(component) for component in nx.connected_components(graph))
