"""Draw a lattice of ideals and its operator graph as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

from tessel_core.charts.palette import LIMIT, SERIES_COLOURS, ink, slot_colour
from tessel_core.learning.lattice import Ideal, Lattice
from tessel_core.units import time_scale

_APART, _ALONG = 62, 84
"""Distance between ideals of the same size, and between ideals of successive sizes, in pixels."""
_BOX, _LETTER = 60, 8
"""Width of a group's box, and width of a letter in it, in pixels."""
_MAX_NAME_LETTERS = 3
"""Number of letters of the longest name that pictures show."""
_MARKED = f'stroke="{LIMIT}" stroke-width="4" stroke-dasharray="7 4"'


def lattice_picture(lattice: Lattice, devices: int | None = None, chain: Sequence[Ideal] = (), unit: str = "") -> str:
    """Draw the lattice, with the empty ideal at the left.

    An arrow adds a group. With `devices`, an ideal shows its table entry for that many devices, otherwise its size.
    Ideals on `chain` are marked.
    """
    places, names = _places(lattice), short_names(lattice)
    tallest = max(sum(len(each) == size for each in lattice.ideals) for size in range(len(lattice.names) + 1))
    parts = []
    for ideal in lattice.ideals:
        for after in lattice.ideals:
            if len(after) == len(ideal) + 1 and ideal < after:
                (x, y), (u, v) = places[ideal], places[after]
                (name,) = after - ideal
                parts.append(f'<path d="M{x} {y}L{u} {v}" stroke="currentColor" stroke-opacity=".35"/>')
                parts.append(_text(x + 0.36 * (u - x), y + 0.36 * (v - y) - 4, names[name], 11, soft=True))
    for before, after in pairwise(chain):
        (x, y), (u, v) = places[before], places[after]
        parts.append(f'<path d="M{x} {y}L{u} {v}" stroke="{SERIES_COLOURS[1]}" stroke-width="4" fill="none"/>')
    for at, (ideal, (x, y)) in enumerate(places.items()):
        colour = SERIES_COLOURS[1] if ideal in chain else SERIES_COLOURS[0]
        parts.append(f'<circle cx="{x}" cy="{y}" r="15" fill="{colour}" data-ideal="{at}"/>')
        label = str(len(ideal)) if devices is None else number(lattice, lattice.best[devices][ideal], unit)
        parts.append(_text(x, y + 4, label, 12, ink(colour), about=f' data-value="{at}"'))
    return _svg(max(x for x, _ in places.values()) + 40, 40 + _APART * tallest, parts, "The ideals of the graph")


def graph_picture(
    lattice: Lattice, stages: Sequence[Ideal] = (), marked: Sequence[tuple[str, str]] = (), unit: str = ""
) -> str:
    """Draw the groups in the direction of the tensors, with their times.

    A group has the colour of its stage. The arcs in `marked` are highlighted.
    """
    depth: dict[str, int] = {}
    for name in lattice.names:  # In this order, predecessors stand before successors.
        depth[name] = max((depth[before] + 1 for before, after in lattice.arcs if after == name), default=0)
    names = short_names(lattice)
    labels = {name: f"{names[name]}: {number(lattice, time, unit)}" for name, time in lattice.times.items()}
    box = max(_BOX, *(_LETTER * len(each) + 8 for each in labels.values()))
    rows = {at: [name for name in lattice.names if depth[name] == at] for at in set(depth.values())}
    high = _BOX * max(map(len, rows.values())) + 40
    places = {
        name: (box + (box + 40) * at, high / 2 + _BOX * (i - (len(alike) - 1) / 2))
        for at, alike in rows.items()
        for i, name in enumerate(alike)
    }
    parts = []
    for source, target in lattice.arcs:
        (x, y), (u, v) = places[source], places[target]
        look = _MARKED if (source, target) in marked else 'stroke="currentColor" stroke-opacity=".5"'
        parts.append(f'<path d="M{x} {y}L{u} {v}" {look}/>')
    for name, (x, y) in places.items():
        which = next((i for i, stage in enumerate(stages) if name in stage), 0)
        colour = slot_colour(which)
        parts.append(f'<rect x="{x - box / 2}" y="{y - 17}" width="{box}" height="34" rx="6" fill="{colour}"/>')
        parts.append(_text(x, y + 5, labels[name], 14, ink(colour)))
    return _svg(max(x for x, _ in places.values()) + box, high, parts, "The operator graph")


def short_names(lattice: Lattice) -> Mapping[str, str]:
    """Return the label of each group: its name if all names are short, otherwise its number in topological order."""
    if all(len(name) <= _MAX_NAME_LETTERS for name in lattice.names):
        return {name: name for name in lattice.names}
    return {name: str(at) for at, name in enumerate(lattice.names, 1)}


def number(lattice: Lattice, load: float, unit: str) -> str:
    """Format a load in the unit of `scale_of`. Return a dash if the load is infinite."""
    return "–" if load == float("inf") else f"{load / scale_of(lattice, unit)[0]:.3g}"


def scale_of(lattice: Lattice, unit: str) -> tuple[float, str]:
    """Return the number by which loads are divided, and the unit in which they are shown."""
    return time_scale(sum(lattice.times.values()), unit)


def _places(lattice: Lattice) -> Mapping[Ideal, tuple[float, float]]:
    by_size = [[each for each in lattice.ideals if len(each) == size] for size in range(len(lattice.names) + 1)]
    tallest = max(map(len, by_size))
    return {
        ideal: (30 + _ALONG * size, 36 + _APART * (i + (tallest - len(alike)) / 2))
        for size, alike in enumerate(by_size)
        for i, ideal in enumerate(alike)
    }


def _text(
    x: float, y: float, text: str, size: int, colour: str = "currentColor", *, soft: bool = False, about: str = ""
) -> str:
    look = f'fill="{colour}"' + (' fill-opacity=".75"' if soft else "")
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="middle" {look}{about}>{escape(text)}</text>'


def _svg(width: float, height: float, parts: Sequence[str], about: str) -> str:
    size = f'viewBox="0 0 {width:g} {height:g}" style="max-width: 100%; max-height: 60vh; width: {width:g}px"'
    return f'<svg {size} role="img" aria-label="{about}">{"".join(parts)}</svg>'
