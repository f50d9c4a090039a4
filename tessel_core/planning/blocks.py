"""Which operators of a device run together: as few blocks as the flow allows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from tessel_core.model import BlockKind, Operator, Placement
from tessel_core.model.checks import find_cycle, grouped, quotient, topological_order

WEIGHT_GRADIENT = "weight_gradient"
"""Suffix of the kind of operators that compute weight gradients only: nothing waits for them within a micro-batch."""

_Key = tuple[tuple[int, ...], BlockKind, int]
"""The devices of an operator, in ascending order, its kind of block, and its stage where devices have several."""
_MOST_TO_MERGE = 400
"""Blocks beyond which they are left as the levels cut them."""


@dataclass(frozen=True, slots=True)
class StageBlock:
    """Operators that run one after the other on the same devices, without waiting for another block in between."""

    devices: tuple[int, ...]
    kind: BlockKind
    operators: tuple[int, ...]
    """By index, predecessors first."""


@dataclass(frozen=True)
class BlockGraph:
    """Blocks, predecessors first, and which of them must follow which."""

    blocks: tuple[StageBlock, ...]
    block_of: tuple[int, ...]
    """Per operator."""
    arcs: tuple[tuple[int, int], ...]


def block_graph(placement: Placement, *, split_weights: bool = False) -> BlockGraph:
    """One block per devices and direction where that makes no cycle, else as many as needed.

    Where the flow leaves a device and comes back (placements that are not contiguous), the operators on the cycle
    are split by how often the flow has changed blocks on its way to them, and joined again where that is safe.
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
    numbers = _apart(_numbered(keys), arcs, order)
    return _ordered(_joined(numbers, keys, arcs), keys, arcs, order)


def kind_of(operator: Operator, *, split_weights: bool) -> BlockKind:
    """Which sort of block the operator runs in."""
    if not operator.backward:
        return BlockKind.FORWARD
    apart = split_weights and operator.kind.endswith(WEIGHT_GRADIENT)
    return BlockKind.WEIGHT if apart else BlockKind.BACKWARD


def _before(count: int, arcs: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    return grouped(count, ((target, source) for source, target in arcs))


def _numbered(keys: Iterable[Hashable]) -> list[int]:
    """Equal keys get equal numbers from 0 on."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(key, len(known)) for key in keys]


def _quotient(numbers: Sequence[int], arcs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Per block, those that it must follow."""
    return quotient(max(numbers) + 1, ((numbers[source], numbers[target]) for source, target in arcs))


def _apart(numbers: list[int], arcs: Sequence[tuple[int, int]], order: Sequence[int]) -> list[int]:
    """Blocks on a cycle are cut into levels: within a level no arc leads from one block to another."""
    before = _quotient(numbers, arcs)
    if not find_cycle(before):
        return numbers
    import networkx  # late: most placements have no cycles

    flow = networkx.DiGraph((source, target) for target, sources in enumerate(before) for source in sources)
    cycle_of = dict.fromkeys(range(len(before)), -1)
    for number, cycle in enumerate(networkx.strongly_connected_components(flow)):
        cycle_of.update(dict.fromkeys(cycle, number) if len(cycle) > 1 else {})
    level = [0] * len(numbers)
    sources = _before(len(numbers), arcs)
    for operator in order:
        for source in sources[operator]:
            if cycle_of[numbers[operator]] == cycle_of[numbers[source]] != -1:
                level[operator] = max(level[operator], level[source] + (numbers[source] != numbers[operator]))
    return _numbered(zip(numbers, level, strict=True))


def _joined(numbers: list[int], keys: Sequence[Hashable], arcs: Sequence[tuple[int, int]]) -> list[int]:
    """Pairs of blocks of one key become one wherever no third block has to run between them."""
    before = _quotient(numbers, arcs)
    of_key: dict[Hashable, list[int]] = defaultdict(list)
    for number, key in dict(zip(numbers, keys, strict=True)).items():
        of_key[key].append(number)
    if len(before) == len(of_key) or len(before) > _MOST_TO_MERGE:
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


def _ordered(
    numbers: Sequence[int], keys: Sequence[_Key], arcs: Sequence[tuple[int, int]], order: Sequence[int]
) -> BlockGraph:
    before = _quotient(numbers, arcs)
    members = grouped(len(before), ((numbers[operator], operator) for operator in order))
    sequence = topological_order(before)
    place = {number: i for i, number in enumerate(sequence)}
    blocks = tuple(StageBlock(*keys[members[number][0]][:2], members[number]) for number in sequence)
    pairs = {(place[source], place[target]) for target, sources in enumerate(before) for source in sources}
    return BlockGraph(blocks, tuple(place[number] for number in numbers), tuple(sorted(pairs)))
