"""The ideals of a small operator graph, the table of the dynamic program over them, and both as pictures.

The placement search proper is `placement/chain.py`; this is its recurrence at the size of a slide, in plain sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from tessel_core.charts.palette import SERIES_COLOURS, ink
from tessel_core.model import OperatorGraph

Ideal = frozenset[str]
MOST_IDEALS = 200
_APART = 62
"""Pixels between ideals of one size."""


@dataclass(frozen=True)
class Lattice:
    """The ideals of a graph whose operators have times on one kind of device, and the best chains of them.

    Transfers cost nothing here.  `best[k][ideal]` is the least largest load of k devices, or fewer, that run the ideal.
    """

    graph: OperatorGraph
    devices: int

    @cached_property
    def times(self) -> Mapping[str, float]:
        """What each operator takes."""
        return {each.name: each.times[0].time for each in self.graph.operators}

    @cached_property
    def ideals(self) -> tuple[Ideal, ...]:
        """By size, then by what they hold; ValueError beyond `MOST_IDEALS`."""
        needs = {name: {edge.source for edge in self.graph.edges if edge.target == name} for name in self.times}
        found, front = {frozenset[str]()}, [frozenset[str]()]
        while front:
            ideal = front.pop()
            for name in self.times:
                grown = ideal | {name}
                if name not in ideal and needs[name] <= ideal and grown not in found:
                    found.add(grown)
                    front.append(grown)
            if len(found) > MOST_IDEALS:
                raise ValueError(f"{self.graph.name} has more than {MOST_IDEALS} ideals")
        return tuple(sorted(found, key=lambda each: (len(each), sorted(each))))

    def load(self, stage: Ideal) -> float:
        """What a device with these operators takes."""
        return sum(self.times[name] for name in stage)

    @cached_property
    def best(self) -> tuple[Mapping[Ideal, float], ...]:
        """The table, a row for each number of devices from 0 on."""
        rows: list[dict[Ideal, float]] = [{frozenset(): 0.0}]
        for _ in range(self.devices):
            before = rows[-1]
            rows.append(
                {
                    ideal: min(max(least, self.load(ideal - cut)) for cut, least in before.items() if cut <= ideal)
                    for ideal in self.ideals
                }
            )
        return tuple(rows)

    @property
    def chain(self) -> tuple[Ideal, ...]:
        """Ideals from the empty one to the whole graph whose differences are the stages of a best placement."""
        ideal, found = self.ideals[-1], [self.ideals[-1]]
        for before in reversed(self.best[:-1]):
            ideal = min(
                (cut for cut in before if cut <= ideal), key=lambda cut: max(before[cut], self.load(found[-1] - cut))
            )
            found.append(ideal)
        return tuple(reversed(found))

    # As pictures

    def picture(self, numbers: int | None = None, chain: Sequence[Ideal] = ()) -> str:
        """The lattice as SVG, from the empty ideal at the left: an arrow adds an operator.

        With `numbers`, an ideal shows what that many devices need for it; those on the `chain` are marked.
        """
        places = self._places()
        height = 40 + _APART * max(
            sum(len(each) == size for each in self.ideals) for size in range(len(self.times) + 1)
        )
        parts = []
        for ideal in self.ideals:
            for after in self.ideals:
                if len(after) == len(ideal) + 1 and ideal < after:
                    (x, y), (u, v) = places[ideal], places[after]
                    (name,) = after - ideal
                    parts.append(f'<path d="M{x} {y}L{u} {v}" stroke="currentColor" stroke-opacity=".35"/>')
                    parts.append(_text(x + 0.36 * (u - x), y + 0.36 * (v - y) - 4, name, 11, soft=True))
        for before, after in pairwise(chain):
            (x, y), (u, v) = places[before], places[after]
            parts.append(f'<path d="M{x} {y}L{u} {v}" stroke="{SERIES_COLOURS[1]}" stroke-width="4" fill="none"/>')
        for ideal, (x, y) in places.items():
            colour = SERIES_COLOURS[1] if ideal in chain else SERIES_COLOURS[0]
            parts.append(f'<circle cx="{x}" cy="{y}" r="15" fill="{colour}"/>')
            label = f"{self.best[numbers][ideal]:g}" if numbers is not None else str(len(ideal))
            parts.append(_text(x, y + 4, label, 12, ink(colour)))
        return _svg(max(x for x, _ in places.values()) + 40, height, parts, "The ideals of the graph")

    def graph_picture(self, stages: Sequence[Ideal] = ()) -> str:
        """The graph as SVG, along its flow, each operator with what it takes, in the colour of its stage."""
        depth: dict[str, int] = {}
        for name in self.times:  # a graph's operators may stand in any order
            self._depth(name, depth)
        rows = {at: [name for name in self.times if depth[name] == at] for at in set(depth.values())}
        high = 60 * max(map(len, rows.values())) + 40
        places = {
            name: (60 + 100 * at, high / 2 + 60 * (i - (len(names) - 1) / 2))
            for at, names in rows.items()
            for i, name in enumerate(names)
        }
        parts = []
        for edge in self.graph.edges:
            (x, y), (u, v) = places[edge.source], places[edge.target]
            parts.append(f'<path d="M{x} {y}L{u} {v}" stroke="currentColor" stroke-opacity=".5"/>')
        for name, (x, y) in places.items():
            which = next((i for i, stage in enumerate(stages) if name in stage), 0)
            colour = SERIES_COLOURS[which % len(SERIES_COLOURS)]
            parts.append(f'<rect x="{x - 30}" y="{y - 17}" width="60" height="34" rx="6" fill="{colour}"/>')
            parts.append(_text(x, y + 5, f"{name}: {self.times[name]:g}", 14, ink(colour)))
        return _svg(max(x for x, _ in places.values()) + 60, high, parts, "The operator graph")

    def _depth(self, name: str, known: dict[str, int]) -> int:
        if name not in known:
            before = (edge.source for edge in self.graph.edges if edge.target == name)
            known[name] = max((self._depth(each, known) + 1 for each in before), default=0)
        return known[name]

    def _places(self) -> Mapping[Ideal, tuple[float, float]]:
        by_size = [[each for each in self.ideals if len(each) == size] for size in range(len(self.times) + 1)]
        tallest = max(map(len, by_size))
        return {
            ideal: (30 + 84 * size, 36 + _APART * (i + (tallest - len(alike)) / 2))
            for size, alike in enumerate(by_size)
            for i, ideal in enumerate(alike)
        }


def _text(x: float, y: float, text: str, size: int, colour: str = "currentColor", *, soft: bool = False) -> str:
    faint = ' fill-opacity=".75"' if soft else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="middle" fill="{colour}"{faint}>{text}</text>'


def _svg(width: float, height: float, parts: Sequence[str], about: str) -> str:
    size = f'viewBox="0 0 {width:g} {height:g}" style="max-width: 100%; max-height: 60vh; width: {width:g}px"'
    return f'<svg {size} role="img" aria-label="{about}">{"".join(parts)}</svg>'
