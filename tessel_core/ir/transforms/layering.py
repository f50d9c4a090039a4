"""Find the layers of a program that was read from a file, so that a pipeline can divide it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.program import Op

_NUMBERED = re.compile(r".*\d")


def with_layers(model: Distributed) -> Distributed:
    """Return the forward pass with the layer of each operation in `tag.stage`.

    Layers come from the names of operations: `encoder/layer.3/attention/query` belongs to layer `encoder/layer.3`. If
    names give fewer than two layers, a new layer begins wherever later operations need only one earlier activation.
    Each of these layers has at least one weight. Layer numbers never decrease from one operation to the next.
    """
    by_name = _numbered([_layer_name(op) for op in model.program.ops])
    layers = by_name if max(by_name, default=0) else _between_single_activations(model)
    pairs = zip(model.program.ops, layers, strict=True)
    ops = tuple(replace(op, tag=replace(op.tag, stage=layer)) for op, layer in pairs)
    return replace(model, program=replace(model.program, ops=ops))


def _layer_name(op: Op) -> str:
    """Return an operation's name up to the first part that ends in a digit, without looking at the last part.

    Return "" if no such part exists.
    """
    steps = op.tag.name.lstrip("/").split("/")[:-1]
    end = next((place for place, step in enumerate(steps) if _NUMBERED.fullmatch(step)), None)
    return "" if end is None else "/".join(steps[: end + 1])


def _numbered(names: Sequence[str]) -> list[int]:
    """Return a layer number for each name, in order of first appearance.

    An empty name belongs to the previous layer.
    """
    number = {name: i for i, name in enumerate(dict.fromkeys(filter(None, names)))}
    found, layer = list[int](), 0
    for name in names:
        layer = max(layer, number.get(name, 0))
        found.append(layer)
    return found


def _between_single_activations(model: Distributed) -> list[int]:
    """Return the layer of each operation. A layer begins wherever later operations need only one earlier activation."""
    program = model.program
    weights = {value for value, piece in model.piece_of.items() if model.role_of(piece).weight}
    last = {value: place for place, op in enumerate(program.ops) for value in op.inputs}
    learned, alive = set[int](weights), set[int]()
    found, layer, has_weight, may_end = list[int](), 0, False, False
    for place, op in enumerate(program.ops):
        takes_weight = not weights.isdisjoint(op.inputs)
        if may_end and has_weight and takes_weight:
            layer, has_weight = layer + 1, False
        found.append(layer)
        has_weight = has_weight or takes_weight
        if not learned.isdisjoint(op.inputs):
            learned.update(op.outputs)
            alive.update(op.outputs)
        alive = {value for value in alive if last.get(value, place) > place}
        may_end = len(alive) <= 1
    return found
