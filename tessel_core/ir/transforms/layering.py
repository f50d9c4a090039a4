"""Layers for a program that was read from a file: pipelines are cut between layers, so each operation needs one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.program import Op

_NUMBERED = re.compile(r".*\d")


def with_layers(model: Distributed) -> Distributed:
    """The forward pass with a layer for each operation, as `tag.stage`.

    A layer is what the names of operations say: `encoder/layer.3/attention/query` is of layer `encoder/layer.3`.  Where
    names do not say at least two layers, one begins wherever a single activation passes from all operations before to
    all operations after, and each layer has a weight.  No operation belongs to an earlier layer than one before it.
    """
    by_name = _numbered([_layer_name(op) for op in model.program.ops])
    layers = by_name if max(by_name, default=0) else _between_single_activations(model)
    pairs = zip(model.program.ops, layers, strict=True)
    ops = tuple(replace(op, tag=replace(op.tag, stage=layer)) for op, layer in pairs)
    return replace(model, program=replace(model.program, ops=ops))


def _layer_name(op: Op) -> str:
    """The steps of its name up to the first that ends in a number; empty where none but the last one does."""
    steps = op.tag.name.lstrip("/").split("/")[:-1]
    end = next((place for place, step in enumerate(steps) if _NUMBERED.fullmatch(step)), None)
    return "" if end is None else "/".join(steps[: end + 1])


def _numbered(names: Sequence[str]) -> list[int]:
    """Layers in the order in which their names come first; what has no name goes with what comes before."""
    number = {name: i for i, name in enumerate(dict.fromkeys(filter(None, names)))}
    found, layer = list[int](), 0
    for name in names:
        layer = max(layer, number.get(name, 0))
        found.append(layer)
    return found


def _between_single_activations(model: Distributed) -> list[int]:
    """Per operation, a layer; the layers are as many as possible."""
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
