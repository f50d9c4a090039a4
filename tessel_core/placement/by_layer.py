"""Conversion between placements and Megatron-LM's layouts, which put whole transformer layers into stages.

A layout gives each stage some letters: E for the embedding, t for a transformer layer, m for multi-token prediction,
and L for the loss.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Sequence

from tessel_core.errors import InputError
from tessel_core.model import LayoutShape, OperatorGraph, Placement
from tessel_core.model.layers import layer_of
from tessel_core.model.layout import layout_of

_NUMBERED = re.compile(r"(.*?)(\d{1,9})")


def place_by_layer(graph: OperatorGraph, stages: Sequence[str], devices: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the device of each operator, as a tuple of one device.

    `stages` has the letters of each stage, as `read_layout` returns them. Stages loop over the devices. If there are
    fewer stages than devices, only the first devices are used.

    Raises InputError if the number of stages is not a multiple of the number of devices, and in the cases of
    `stages_by_layer`.
    """
    used = min(len(stages), len(devices))
    if len(stages) % used:
        why = f"has {len(stages)} stages, which is not a multiple of the {len(devices)} devices"
        raise InputError("the layout", why)
    return tuple((devices[stage % used],) for stage in stages_by_layer(graph, stages))


def stages_by_layer(graph: OperatorGraph, stages: Sequence[str]) -> tuple[int, ...]:
    """Return the stage of each operator. `stages` has the letters of each stage.

    The layer of an operator is the first part of its name. The letters t stand for the numbered layers, such as layer0,
    in order. E stands for all layers before them, and L for all layers after them.

    Raises InputError if the graph has no numbered layers, if their number is not the number of letters t, or if
    `stages` has a letter m.
    """
    order, embedding, loss = _layers(graph)
    wanted, left = sum(stage.count("t") for stage in stages), deque(order)
    if wanted != len(order):
        raise InputError("the layout", f"has {wanted} transformer layers, t, but the graph has {len(order)}")
    if any("m" in stage for stage in stages):
        raise InputError("the layout", "has layers of multi-token prediction, m, but the graph has none")
    stage_of = dict[str, int]()
    for s, stage in enumerate(stages):
        layers = [*(embedding if "E" in stage else ()), *(left.popleft() for _ in range(stage.count("t")))]
        stage_of |= dict.fromkeys([*layers, *(loss if "L" in stage else ())], s)
    return tuple(stage_of[layer_of(operator)] for operator in graph.operators)


def stage_letters(placement: Placement) -> tuple[str, ...]:
    """Return the letters of each stage of a placement, as `layout_text` expects them. The inverse of `place_by_layer`.

    Raises InputError if the graph has no numbered layers, if a stage cuts a layer, or if the stages do not loop over
    the devices.
    """
    graph, layout = placement.graph, layout_of(placement)
    if placement.stages is None or layout is None:
        raise InputError("the placement", "has no layout with several stages per device")
    if layout.shape is not LayoutShape.LOOP:
        raise InputError("the placement", "is a V, but Megatron's stages loop over the ranks")
    order, embedding, loss = _layers(graph)
    stages_of = dict[str, set[int]]()
    for operator, stage in zip(graph.operators, placement.stages, strict=True):
        stages_of.setdefault(layer_of(operator), set()).add(stage)
    apart = next((name for name, stages in stages_of.items() if len(stages) > 1), None)
    if apart is not None:
        raise InputError(f"layer {apart}", "is in several stages, but a layout has whole layers: merge with --by-layer")
    last = max(placement.stages)
    for names, stage, what in ((embedding, 0, "first"), (loss, last, "last")):
        away = next((name for name in names if stages_of[name] != {stage}), None)
        if away is not None:
            raise InputError(f"layer {away}", f"is not in the {what} stage, where a layout needs it")
    counts = Counter(stage for name in order for stage in stages_of[name])
    letters = ["t" * counts[stage] for stage in range(last + 1)]
    return (f"E{letters[0]}", *letters[1:-1], f"{letters[-1]}L")


def _layers(graph: OperatorGraph) -> tuple[list[str], list[str], list[str]]:
    """Return the names of the numbered layers in order, of the layers before them, and of the layers after them."""
    names = list(dict.fromkeys(layer_of(operator) for operator in graph.operators))
    numbered = {name: match for name in names if (match := _NUMBERED.fullmatch(name))}
    stems = sorted({match[1] for match in numbered.values()})
    if len(stems) != 1:
        why = (
            f"has layers of several kinds, {' and '.join(stems)}" if stems else "has no numbered layers, such as layer0"
        )
        raise InputError(f"graph {graph.name}", f"{why}; a layout needs one row of numbered layers")
    first = min(map(names.index, numbered))
    order = sorted(numbered, key=lambda name: int(numbered[name][2]))
    before = [name for name in names[:first] if name not in numbered]
    return order, before, [name for name in names[first:] if name not in numbered]
