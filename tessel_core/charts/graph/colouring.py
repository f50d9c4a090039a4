"""Choose the colours of the marks (symbols of operators or groups), and the entries of the legend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tessel_core.charts.graph.groups import ColourBy, GraphView, Mark, MarkedGraph, accelerator_kind
from tessel_core.charts.palette import KIND_COLOURS, SLOTS, STATIC, slot_colour
from tessel_core.model import BlockKind, Operator, Placement
from tessel_core.units import flops_scale, many, memory_scale, time_scale

Key = TypeVar("Key", int, str)

_NOT_KNOWN = "not known"
_MAX_KINDS = 8
"""Number of operator kinds that get their own colour. These are the most frequent kinds."""
_MAX_LEGEND_ENTRIES = 12


@dataclass(frozen=True, slots=True)
class Tint:
    """Marks of one colour, with the name of the colour in the legend. An empty name gives no legend entry."""

    name: str
    colour: str
    marks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Gradient:
    """Marks coloured by an amount, such as time. The title names its unit."""

    title: str
    marks: tuple[int, ...]
    amounts: tuple[float, ...]


def colours_of(marked: MarkedGraph, view: GraphView, placement: Placement | None) -> tuple[list[Tint], Gradient | None]:
    """Return the colours of all marks. Each mark belongs to one tint or to the gradient."""
    if view.colour_by in (ColourBy.TIME, ColourBy.FLOPS, ColourBy.MEMORY):
        return _by_amount(marked, view)
    if view.colour_by is ColourBy.DEVICE and placement is not None:
        return _by_device(marked, placement), None
    if view.colour_by is ColourBy.KIND:
        return _by_kind(marked), None
    if view.colour_by is ColourBy.COLOUR:
        return _by_colour_class(marked), None
    return _by_direction(marked), None


def devices_of(mark: Mark, placement: Placement) -> tuple[int, ...]:
    """Return the devices of a mark's operators, in the order of the operators."""
    return tuple(dict.fromkeys(d for member in mark.members for d in placement.assignment[member]))


def amount_of(operators: Iterable[Operator], what: ColourBy, kind: str) -> float | None:
    """Return the sum over operators of their time on `kind`, FLOPs or bytes of memory.

    None if no operator's amount is known.
    """
    known = [amount for each in operators if (amount := _amount(each, what, kind)) is not None]
    return sum(known) if known else None


def _amount(operator: Operator, what: ColourBy, kind: str) -> float | None:
    if what is ColourBy.TIME:
        return operator.time_on(kind)
    if what is ColourBy.FLOPS:
        return operator.flops
    said = (operator.size, operator.weight_bytes, operator.activation_bytes)
    return None if all(each is None for each in said) else operator.memory


def _by_amount(marked: MarkedGraph, view: GraphView) -> tuple[list[Tint], Gradient | None]:
    kind = accelerator_kind(marked.graph)
    operators = marked.graph.operators
    amounts = [amount_of((operators[i] for i in mark.members), view.colour_by, kind) for mark in marked.marks]
    known = {i: amount for i, amount in enumerate(amounts) if amount is not None}
    rest = tuple(i for i in range(len(amounts)) if i not in known)
    tints = [Tint(_NOT_KNOWN, STATIC, rest)] if rest else []
    if not known:
        return tints, None
    largest = max(known.values())
    if view.colour_by is ColourBy.TIME:
        divisor, unit = time_scale(largest, marked.graph.time_unit)
        title = f"{many(unit)} on {kind}"
    else:
        divisor, title = memory_scale(largest, "B") if view.colour_by is ColourBy.MEMORY else flops_scale(largest)
    return tints, Gradient(title, tuple(known), tuple(amount / divisor for amount in known.values()))


def _by_device(marked: MarkedGraph, placement: Placement) -> list[Tint]:
    """Return one tint per device. A mark on several devices has the colour of the first."""
    firsts = [next(iter(devices_of(mark, placement)), None) for mark in marked.marks]
    names = {d: device.name for d, device in enumerate(placement.devices)}
    return _tints(firsts, _if_few(names, SLOTS), "no device")


def _by_kind(marked: MarkedGraph) -> list[Tint]:
    """Return one tint per kind. The kind of a mark is the most frequent kind of its operators."""
    operators = marked.graph.operators
    kinds = [Counter(operators[i].kind for i in mark.members).most_common(1)[0][0] for mark in marked.marks]
    frequent = {kind: kind for kind, _ in Counter(kind for kind in kinds if kind).most_common(_MAX_KINDS)}
    return _tints(kinds, frequent, "other kinds" if frequent else _NOT_KNOWN)


def _by_colour_class(marked: MarkedGraph) -> list[Tint]:
    """Return one tint per colour class of a mark's first operator. With many classes, colours repeat."""
    firsts = [marked.graph.operators[mark.members[0]].colour for mark in marked.marks]
    return _tints(firsts, _if_few({each: each for each in firsts if each is not None}), "no colour class")


def _by_direction(marked: MarkedGraph) -> list[Tint]:
    """Return one tint per direction. If all marks have one direction, the tint has no name in the legend."""
    training = any(mark.backward for mark in marked.marks)
    sides = ((BlockKind.FORWARD, False), (BlockKind.BACKWARD, True))
    found = [(kind, tuple(i for i, mark in enumerate(marked.marks) if mark.backward is back)) for kind, back in sides]
    return [Tint(str(kind) if training else "", KIND_COLOURS[kind], marks) for kind, marks in found if marks]


def _if_few(names: Mapping[Key, str], most: int = _MAX_LEGEND_ENTRIES) -> dict[Key, str]:
    """Return the names for the legend. If there are more than `most`, all names are empty."""
    return {key: name if len(names) <= most else "" for key, name in names.items()}


def _tints(keys: Sequence[Key | None], names: Mapping[Key, str], rest: str) -> list[Tint]:
    """Group marks by their keys. The colour of a key depends on its position in `names`; other keys are the `rest`.

    Keys with the same colour and name form one tint, so that the browser gets few traces.
    """
    looks: dict[Key | None, tuple[str, str]] = {
        key: (name, slot_colour(slot)) for slot, (key, name) in enumerate(names.items())
    }
    other = rest, STATIC
    found: dict[tuple[str, str], list[int]] = {look: [] for look in (*looks.values(), other)}
    for i, key in enumerate(keys):
        found[looks.get(key, other)].append(i)
    return [Tint(name, colour, tuple(marks)) for (name, colour), marks in found.items() if marks]
