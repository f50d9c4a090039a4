"""What blocks of a placement are called: their direction, and their first and last layer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from tessel_core.model import BlockKind, OperatorGraph
from tessel_core.model.checks import topological_order
from tessel_core.model.layers import layer_of
from tessel_core.planning.blocks import BlockGraph

_LETTERS = {BlockKind.FORWARD: "F", BlockKind.BACKWARD: "B", BlockKind.WEIGHT: "W"}
_DEPTHS = 3
"""Steps of operators' names that are shown at most."""
_LONGEST = 24
"""Letters of a layer in a name."""
_NUMBERED = re.compile(r"(.*?)(\d*)", re.DOTALL)


def block_names(graph: OperatorGraph, found: BlockGraph) -> list[str]:
    """F, B or W and the layers, as in "F embedding–layer3"; a forward block and its backward ones differ by the letter.

    Blocks of the same layers are told apart by parts of layers, as in "F layer3/mlp", else numbered from the second on,
    as in "F layer3 (2)".  Names have at most 70 letters.
    """
    order = topological_order(graph.predecessors)
    depths = [_named(graph, found, order, depth) for depth in range(1, _DEPTHS + 1)]
    counts = [Counter(each) for each in depths]
    rank = {graph.operators[i].name: place for place, i in enumerate(order)}
    first = [
        min(rank[operator.forward_of or operator.name] for operator in (graph.operators[i] for i in each.operators))
        for each in found.blocks
    ]
    names, taken = [""] * len(first), set[str]()
    for block in sorted(range(len(first)), key=first.__getitem__):
        told = (names[block] for names, count in zip(depths, counts, strict=True) if count[names[block]] == 1)
        wished, number = next(told, depths[0][block]), 1
        name = wished
        while name in taken:
            number += 1
            name = f"{wished} ({number})"
        taken.add(name)
        names[block] = name
    return names


def _named(graph: OperatorGraph, found: BlockGraph, order: Sequence[int], depth: int) -> list[str]:
    """Per block its letter and the span of its layers, these being so many steps of its operators' names."""
    layers = [layer_of(operator, depth) for operator in graph.operators]
    flow = list(dict.fromkeys(layers[i] for i in order))
    return [
        f"{_LETTERS[each.kind]} {_span({layers[i] for i in each.operators}, flow)}".strip() for each in found.blocks
    ]


def _span(here: set[str], flow: Sequence[str]) -> str:
    """The first and the last of the layers that are `here`, in the order of the flow.

    >>> _span({"layer0", "layer1", "layer2"}, ["embedding", "layer0", "layer1", "layer2"])
    'layer0–2'
    >>> _span({"embedding", "layer2"}, ["embedding", "layer0", "layer1", "layer2"])
    'embedding…layer2'

    "–" stands where none of these kinds is missing between them.
    """
    ends = [i for i, layer in enumerate(flow) if layer in here]
    first, last = flow[ends[0]], flow[ends[-1]]
    if first == last:
        return _short(first)
    stems = {_stem(layer) for layer in here}
    gap = any(layer not in here and _stem(layer) in stems for layer in flow[ends[0] : ends[-1]])
    stem, parent = _stem(first), first[: first.rfind("/") + 1]
    numbered = stem == _stem(last) and len(stem) < min(len(first), len(last))
    rest = last[len(stem) :] if numbered else last.removeprefix(parent)
    return f"{_short(first)}{'…' if gap else '–'}{_short(rest)}"


def _stem(layer: str) -> str:
    match = _NUMBERED.fullmatch(layer)
    assert match is not None, "it takes any text"
    return match[1]


def _short(layer: str) -> str:
    """The beginning, and the end, where layers are numbered, of a long name."""
    half = _LONGEST // 2
    return layer if len(layer) <= _LONGEST else f"{layer[: half - 1]}…{layer[-half:]}"
