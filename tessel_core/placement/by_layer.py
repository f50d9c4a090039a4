"""Placements that Megatron-LM's layouts describe: whole layers of a transformer in stages that go round the devices."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

from tessel_core.errors import InputError
from tessel_core.model import OperatorGraph
from tessel_core.model.layers import layer_of

_NUMBERED = re.compile(r"(.*?)(\d{1,9})")


def place_by_layer(graph: OperatorGraph, stages: Sequence[str], devices: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Per operator its device, for the letters of each stage, as `read_layout` has them; stage s is on device s modulo
    their number, or on the first ones where there are fewer stages than devices.

    Layers are the first part of operators' names: numbered ones are t in order, others before them E and after them L.

    Raises InputError for a graph without such layers, another number of them, and stages that do not go round evenly.
    """
    if len(stages) % min(len(stages), len(devices)):
        why = f"has {len(stages)} stages, which do not go round {len(devices)} devices evenly"
        raise InputError("the layout", why)
    order, embedding, loss = _layers(graph)
    wanted, left = sum(stage.count("t") for stage in stages), deque(order)
    if wanted != len(order):
        raise InputError("the layout", f"has {wanted} transformer layers, t, and the graph has {len(order)}")
    if any("m" in stage for stage in stages):
        raise InputError("the layout", "has layers of multi-token prediction, m, and the graph has none")
    place = dict[str, tuple[int, ...]]()
    for s, stage in enumerate(stages):
        there = (devices[s % min(len(stages), len(devices))],)
        layers = [*(embedding if "E" in stage else ()), *(left.popleft() for _ in range(stage.count("t")))]
        place |= dict.fromkeys([*layers, *(loss if "L" in stage else ())], there)
    return tuple(place[layer_of(operator)] for operator in graph.operators)


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
