"""Placements that Megatron-LM's layouts describe: whole layers of a transformer in stages that go round the devices."""

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
    """Per operator its device, for the letters of each stage, as `read_layout` has them; stage s is on device s modulo
    their number, or on the first ones where there are fewer stages than devices.

    Raises InputError as `stages_by_layer`, and for stages that do not go round evenly.
    """
    used = min(len(stages), len(devices))
    if len(stages) % used:
        why = f"has {len(stages)} stages, which do not go round {len(devices)} devices evenly"
        raise InputError("the layout", why)
    return tuple((devices[stage % used],) for stage in stages_by_layer(graph, stages))


def stages_by_layer(graph: OperatorGraph, stages: Sequence[str]) -> tuple[int, ...]:
    """Per operator its stage, for the letters of each stage.

    Layers are the first part of operators' names: numbered ones are t in order, others before them E and after them L.

    Raises InputError for a graph without such layers, and another number of them.
    """
    order, embedding, loss = _layers(graph)
    wanted, left = sum(stage.count("t") for stage in stages), deque(order)
    if wanted != len(order):
        raise InputError("the layout", f"has {wanted} transformer layers, t, and the graph has {len(order)}")
    if any("m" in stage for stage in stages):
        raise InputError("the layout", "has layers of multi-token prediction, m, and the graph has none")
    found = dict[str, int]()
    for s, stage in enumerate(stages):
        layers = [*(embedding if "E" in stage else ()), *(left.popleft() for _ in range(stage.count("t")))]
        found |= dict.fromkeys([*layers, *(loss if "L" in stage else ())], s)
    return tuple(found[layer_of(operator)] for operator in graph.operators)


def stage_letters(placement: Placement) -> tuple[str, ...]:
    """The letters of each stage of a placement in stages, as `layout_text` takes them; the inverse of `place_by_layer`.

    Raises InputError for a graph without such layers, stages that cut through a layer, and those that are no loop.
    """
    graph, layout = placement.graph, layout_of(placement)
    if placement.stages is None or layout is None:
        raise InputError("the placement", "has no layout with several stages per device")
    if layout.shape is not LayoutShape.LOOP:
        raise InputError("the placement", "is a V, and Megatron's stages go round the ranks in loops")
    order, embedding, loss = _layers(graph)
    stages_of = dict[str, set[int]]()
    for operator, stage in zip(graph.operators, placement.stages, strict=True):
        stages_of.setdefault(layer_of(operator), set()).add(stage)
    apart = next((name for name, stages in stages_of.items() if len(stages) > 1), None)
    if apart is not None:
        raise InputError(f"layer {apart}", "is cut by a stage; a layout is of whole layers, as --by-layer merges them")
    last = max(placement.stages)
    for names, stage, what in ((embedding, 0, "first"), (loss, last, "last")):
        away = next((name for name in names if stages_of[name] != {stage}), None)
        if away is not None:
            raise InputError(f"layer {away}", f"is not in the {what} stage, where a layout has it")
    counts = Counter(stage for name in order for stage in stages_of[name])
    letters = ["t" * counts[stage] for stage in range(last + 1)]
    return (f"E{letters[0]}", *letters[1:-1], f"{letters[-1]}L")


def _layers(graph: OperatorGraph) -> tuple[list[str], list[str], list[str]]:
    """The names of numbered layers in their order, and of what comes before and after them."""
    names = list(dict.fromkeys(layer_of(operator) for operator in graph.operators))
    numbered = {name: match for name in names if (match := _NUMBERED.fullmatch(name))}
    stems = sorted({match[1] for match in numbered.values()})
    if len(stems) != 1:
        why = (
            f"has layers of several kinds, {' and '.join(stems)}" if stems else "has no numbered layers, such as layer0"
        )
        raise InputError(f"graph {graph.name}", f"{why}; a layout is for one row of them")
    first = min(map(names.index, numbered))
    order = sorted(numbered, key=lambda name: int(numbered[name][2]))
    before = [name for name in names[:first] if name not in numbered]
    return order, before, [name for name in names[first:] if name not in numbered]
