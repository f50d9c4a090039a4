"""Price changes that could make a recommended strategy faster.

Each change is made alone, and its step time computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tessel_core.control import Control
from tessel_core.ir.transforms.pipeline import layers_of_stages
from tessel_core.model import Device, DeviceMesh, Link
from tessel_core.strategies.block_engine import BlockEngine
from tessel_core.strategies.blocks import BlockTable
from tessel_core.strategies.evaluation import Configuration
from tessel_core.strategies.recommendation import Candidate, Question, Recommendation, recommend
from tessel_core.strategies.strategy import Semantics, Strategy, why_not

MORE_MEMORY = 1.1
"""Factor on the memory of each device. The search is repeated with this memory."""
LINK_SPEEDS = (0.5, 2.0)
"""Factors on the bandwidth of links."""
MORE_MEMORY_CHANGE, LINKS, LAYER, MICRO_BATCH = "memory", "links", "layer", "micro-batch"


@dataclass(frozen=True, slots=True)
class PriceTag:
    """A change, and the strategy and step time after it."""

    kind: str
    """`MORE_MEMORY_CHANGE`, `LINKS`, `LAYER` or `MICRO_BATCH`."""
    change: str
    """The change as a clause: "twice the bandwidth between nodes"."""
    candidate: Candidate
    """The strategy after the change, with its step time and memory."""


@dataclass(frozen=True)
class PriceQuestion:
    """Asks for the step time after each change. Equal questions have equal answers."""

    asked: Question
    candidate: Candidate

    def solve(self, control: Control) -> tuple[PriceTag, ...]:
        """Price every change. If `control` stops, return the changes priced so far."""
        return price_tags(self.asked, self.candidate, control)


def price_tags(
    asked: Question, candidate: Candidate, control: Control, table: BlockTable | None = None
) -> tuple[PriceTag, ...]:
    """Return the step times with other links, with a moved layer, with larger micro-batches, and with more memory.

    Links, layer and micro-batches change the given strategy. With more memory, the search is repeated for all
    strategies, so this change comes last. `table` may have the blocks of the question's search. If `control` stops,
    return the changes priced so far.
    """
    table = table or BlockTable(asked.family, asked.spec, asked.mesh)
    found = list[PriceTag]()
    for tag in _tags(asked, candidate, control, table):
        if control.stopped:
            break
        found.append(tag)
        control.report(f"{len(found)} changes priced", None, None)
    return tuple(found)


def _tags(asked: Question, candidate: Candidate, control: Control, table: BlockTable) -> Iterator[PriceTag]:
    yield from _other_links(asked, candidate.strategy)
    yield from _moved_layer(asked, candidate.strategy, table)
    yield from _larger_micro_batches(asked, candidate.strategy, table)
    yield from _more_memory(asked, control, table)


def _other_links(asked: Question, strategy: Strategy) -> Iterator[PriceTag]:
    """Yield half and twice the bandwidth between nodes. If there is only one node, change the bandwidth inside it."""
    if strategy.devices == 1:
        return
    several = len({device.node for device in asked.mesh.devices[: strategy.devices]}) > 1
    for factor in LINK_SPEEDS:
        mesh = scaled_links(asked.mesh, factor, between_nodes=several)
        table = BlockTable(asked.family, asked.spec, mesh)
        (outcome,) = BlockEngine(table).evaluate([Configuration(asked.spec, strategy)])
        times = "half" if factor < 1 else "twice"
        where = "between nodes" if several else "between GPUs"
        yield PriceTag(LINKS, f"{times} the bandwidth {where}", Candidate(strategy, outcome))


def _moved_layer(asked: Question, strategy: Strategy, table: BlockTable) -> Iterator[PriceTag]:
    """Yield the fastest layout that fits after one layer was moved to a neighbouring stage."""
    layers = list(strategy.layout or layers_of_stages(asked.spec.layers, strategy.stages))
    ways = [(s, t) for s in range(len(layers)) for t in (s - 1, s + 1) if 0 <= t < len(layers) and layers[s] > 1]
    moved = list[Strategy]()
    for one, other in ways:
        layout = layers.copy()
        layout[one] -= 1
        layout[other] += 1
        moved.append(replace(strategy, layout=tuple(layout)))
    outcomes = BlockEngine(table).evaluate([Configuration(asked.spec, each) for each in moved])
    fitting = [(result.latency, i) for i, result in enumerate(outcomes) if not result.reason]
    if fitting:
        _, best = min(fitting)
        one, other = ways[best]
        yield PriceTag(
            LAYER, f"one layer moved from stage {one} to stage {other}", Candidate(moved[best], outcomes[best])
        )


def _larger_micro_batches(asked: Question, strategy: Strategy, table: BlockTable) -> Iterator[PriceTag]:
    """Yield the strategy with half as many micro-batches, each with twice as many samples."""
    half, odd = divmod(strategy.micro_batches, 2)
    if odd:
        return
    larger = replace(strategy, micro_batches=half)
    if why_not(asked.family, asked.spec, larger, asked.mesh, Semantics.DEFAULT):
        return
    (outcome,) = BlockEngine(table).evaluate([Configuration(asked.spec, larger)])
    yield PriceTag(MICRO_BATCH, "micro-batches twice as large", Candidate(larger, outcome))


def _more_memory(asked: Question, control: Control, table: BlockTable) -> Iterator[PriceTag]:
    """Yield the fastest of all strategies on devices with more memory."""
    mesh = scaled_memory(asked.mesh, MORE_MEMORY)
    if mesh == asked.mesh:
        return
    found: Recommendation[Question] = recommend(replace(asked, mesh=mesh), control, table.with_memory_of(mesh))
    if found.best is not None and found.complete:
        yield PriceTag(MORE_MEMORY_CHANGE, f"{MORE_MEMORY - 1:.0%} more memory per GPU", found.best)


def scaled_memory(mesh: DeviceMesh, factor: float) -> DeviceMesh:
    """Return the mesh with the memory of every device multiplied by `factor` and rounded to bytes."""

    def scaled(device: Device) -> Device:
        if device.memory_capacity is None:
            return device
        return replace(device, memory_capacity=round(device.memory_capacity * factor))

    return replace(mesh, devices=tuple(map(scaled, mesh.devices)))


def scaled_links(mesh: DeviceMesh, factor: float, *, between_nodes: bool) -> DeviceMesh:
    """Return the mesh with `factor` times the bandwidth of links: those between nodes, or those within nodes."""
    node = {device.name: device.node for device in mesh.devices}

    def scaled(link: Link | None) -> Link | None:
        return None if link is None else replace(link, bandwidth=link.bandwidth * factor)

    connections = tuple(
        replace(each, link=replace(each.link, bandwidth=each.link.bandwidth * factor))
        if (node[each.between[0]] != node[each.between[1]]) == between_nodes
        else each
        for each in mesh.connections
    )
    if not between_nodes:
        return replace(mesh, connections=connections, same_node_link=scaled(mesh.same_node_link))
    uplink = None if mesh.node_uplink is None else mesh.node_uplink * factor
    return replace(mesh, connections=connections, default_link=scaled(mesh.default_link), node_uplink=uplink)
