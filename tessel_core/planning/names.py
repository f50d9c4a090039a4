"""Names of the blocks of a placement. A name consists of the direction and the first and last layer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from tessel_core.model import BlockKind, OperatorGraph
from tessel_core.model.checks import topological_order
from tessel_core.model.layers import layer_of
from tessel_core.planning.blocks import BlockGraph

_LETTERS = {BlockKind.FORWARD: "F", BlockKind.BACKWARD: "B", BlockKind.WEIGHT: "W"}
_MAX_NAME_DEPTH = 3
"""Largest number of parts of an operator's path that the name of a block contains."""
_MAX_LAYER_CHARACTERS = 24
_NUMBERED = re.compile(r"(.*?)(\d*)", re.DOTALL)


def block_names(graph: OperatorGraph, blocks: BlockGraph) -> list[str]:
    """Name each block by a letter (F, B or W) and its layers, as in "F embedding–layer3".

    The names of a forward block and its backward blocks differ only in the letter. Blocks of the same layers get
    longer paths, as in "F layer3/mlp", or else numbers from the second block on, as in "F layer3 (2)". Names have at
    most 70 characters.
    """
    order = topological_order(graph.predecessors)
    depths = [_named(graph, blocks, order, depth) for depth in range(1, _MAX_NAME_DEPTH + 1)]
    counts = [Counter(each) for each in depths]
    rank = {graph.operators[i].name: place for place, i in enumerate(order)}
    first = [
        min(rank[operator.forward_of or operator.name] for operator in (graph.operators[i] for i in each.operators))
        for each in blocks.blocks
    ]
    names, taken = [""] * len(first), set[str]()
    for block in sorted(range(len(first)), key=first.__getitem__):
        unique = (names[block] for names, count in zip(depths, counts, strict=True) if count[names[block]] == 1)
        stem, number = next(unique, depths[0][block]), 1
        name = stem
        while name in taken:
            number += 1
            name = f"{stem} ({number})"
        taken.add(name)
        names[block] = name
    return names


def _named(graph: OperatorGraph, blocks: BlockGraph, order: Sequence[int], depth: int) -> list[str]:
    """Return a name for each block: its letter and its layers.

    A layer is the first `depth` parts of an operator's path.
    """
    layers = [layer_of(operator, depth) for operator in graph.operators]
    flow = list(dict.fromkeys(layers[i] for i in order))
    return [
        f"{_LETTERS[each.kind]} {_span({layers[i] for i in each.operators}, flow)}".strip() for each in blocks.blocks
    ]


def _span(here: set[str], flow: Sequence[str]) -> str:
    """Write the first and the last of the layers `here`, in the order of `flow`.

    >>> _span({"layer0", "layer1", "layer2"}, ["embedding", "layer0", "layer1", "layer2"])
    'layer0–2'
    >>> _span({"embedding", "layer2"}, ["embedding", "layer0", "layer1", "layer2"])
    'embedding…layer2'

    A dash means that the block has all layers from the first to the last. An ellipsis means that some are missing.
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
    assert match is not None, "the pattern matches any text"
    return match[1]


def _short(layer: str) -> str:
    """Shorten a long name by cutting its middle. The end is kept, because it has the number of the layer."""
    half = _MAX_LAYER_CHARACTERS // 2
    return layer if len(layer) <= _MAX_LAYER_CHARACTERS else f"{layer[: half - 1]}…{layer[-half:]}"
