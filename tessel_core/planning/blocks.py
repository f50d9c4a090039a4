"""Group the operators of a placement into blocks. There are as few blocks as the flow of tensors allows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from tessel_core.model import BlockKind, Operator, Placement
from tessel_core.model.checks import circles, find_cycle, grouped, quotient, topological_order

WEIGHT_GRADIENT = "weight_gradient"
"""Suffix of `Operator.kind` for operators that only compute weight gradients.

No other operator of the micro-batch waits for such an operator.
"""

_Key = tuple[tuple[int, ...], BlockKind, int]
"""Devices of an operator in ascending order, the kind of its block, and its stage (0 if devices have one stage)."""
_MAX_BLOCKS_TO_MERGE = 400
"""With more blocks than this, blocks that were split are not merged again."""


@dataclass(frozen=True, slots=True)
class StageBlock:
    """Operators that run one after another on the same devices, without waiting for another block in between."""

    devices: tuple[int, ...]
    kind: BlockKind
    operators: tuple[int, ...]
    """Operator indices, predecessors first."""


@dataclass(frozen=True)
class BlockGraph:
    """Blocks, in an order with predecessors first, and the arcs between them."""

    blocks: tuple[StageBlock, ...]
    block_of: tuple[int, ...]
    """Index of the block of each operator."""
    arcs: tuple[tuple[int, int], ...]
    """Pairs of block indices. The second block must run after the first."""


def block_graph(placement: Placement, *, split_weights: bool = False) -> BlockGraph:
    """Build one block for each set of devices and each direction (forward or backward).

    If tensors leave a device and come back (placements that are not contiguous), blocks form cycles. Each block on a
    cycle is then split. Its operators are divided by the number of times that the flow has changed the block before it
    reaches them. Two parts of a block are merged again if the merged graph has no cycle.
    """
    graph = placement.graph
    mates = ((graph.operator_index(each.forward_of), i) for i, each in enumerate(graph.operators) if each.forward_of)
    arcs = [*graph.arcs, *mates]
    stages = placement.stages or (0,) * len(graph.operators)
    keys = [
        (tuple(sorted(on)), kind_of(each, split_weights=split_weights), stage)
        for each, on, stage in zip(graph.operators, placement.assignment, stages, strict=True)
    ]
    order = topological_order(_before(len(keys), arcs))
    numbers = _split_cycles(_numbered(keys), arcs, order)
    return _sorted_graph(_merged(numbers, keys, arcs), keys, arcs, order)


def kind_of(operator: Operator, *, split_weights: bool) -> BlockKind:
    """Return the kind of block in which the operator runs."""
    if not operator.backward:
        return BlockKind.FORWARD
    apart = split_weights and operator.kind.endswith(WEIGHT_GRADIENT)
    return BlockKind.WEIGHT if apart else BlockKind.BACKWARD


def _before(count: int, arcs: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    return grouped(count, ((target, source) for source, target in arcs))


def _numbered(keys: Iterable[Hashable]) -> list[int]:
    """Number the keys from 0 in order of first appearance. Equal keys have equal numbers."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(key, len(known)) for key in keys]


def _quotient(numbers: Sequence[int], arcs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the predecessors of each block."""
    return quotient(max(numbers) + 1, ((numbers[source], numbers[target]) for source, target in arcs))


def _split_cycles(numbers: list[int], arcs: Sequence[tuple[int, int]], order: Sequence[int]) -> list[int]:
    """Split the blocks on cycles. Return the new number of the block of each operator.

    The level of an operator is the largest number of changes of block on a path to it inside the cycle. Operators of
    one block and one level form a new block.
    """
    cycle_of = {block: i for i, cycle in enumerate(circles(_quotient(numbers, arcs))) for block in cycle}
    if not cycle_of:
        return numbers
    level = [0] * len(numbers)
    sources = _before(len(numbers), arcs)
    for operator in order:
        for source in sources[operator]:
            here, there = numbers[operator], numbers[source]
            if here in cycle_of and cycle_of[here] == cycle_of.get(there):
                level[operator] = max(level[operator], level[source] + (there != here))
    return _numbered(zip(numbers, level, strict=True))


def _merged(numbers: list[int], keys: Sequence[Hashable], arcs: Sequence[tuple[int, int]]) -> list[int]:
    """Merge pairs of blocks with equal keys if no third block has to run between them."""
    before = _quotient(numbers, arcs)
    of_key: dict[Hashable, list[int]] = defaultdict(list)
    for number, key in dict(zip(numbers, keys, strict=True)).items():
        of_key[key].append(number)
    if len(before) == len(of_key) or len(before) > _MAX_BLOCKS_TO_MERGE:
        return numbers
    place = {number: i for i, number in enumerate(topological_order(before))}
    arcs = [(source, target) for target, sources in enumerate(before) for source in sources]
    merged = list(range(len(before)))
    for same in of_key.values():
        first, *others = sorted(same, key=place.__getitem__)
        for other in others:
            tried = [first if number == other else number for number in merged]
            if find_cycle(_quotient(tried, arcs)):
                first = other
            else:
                merged = tried
    return _numbered(merged[number] for number in numbers)


def _sorted_graph(
    numbers: Sequence[int], keys: Sequence[_Key], arcs: Sequence[tuple[int, int]], order: Sequence[int]
) -> BlockGraph:
    """Build the graph of the numbered blocks, with blocks in topological order."""
    before = _quotient(numbers, arcs)
    members = grouped(len(before), ((numbers[operator], operator) for operator in order))
    sequence = topological_order(before)
    place = {number: i for i, number in enumerate(sequence)}
    blocks = tuple(StageBlock(*keys[members[number][0]][:2], members[number]) for number in sequence)
    pairs = {(place[source], place[target]) for target, sources in enumerate(before) for source in sources}
    return BlockGraph(blocks, tuple(place[number] for number in numbers), tuple(sorted(pairs)))
