"""Slides on placement by dynamic programming over ideals, on a graph of ten operators."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from tessel_core.learning.deck import Deck, Slide
from tessel_core.learning.lattice import Ideal, Lattice
from tessel_core.learning.lattice_picture import graph_picture, lattice_picture
from tessel_core.learning.task import Facts
from tessel_core.model import DevicePool, DeviceTime, Edge, Operator, OperatorGraph, PlacementReport
from tessel_core.placement import solve_placement
from tessel_core.placement.problem import placement_problem

_DEVICES = 3
_TIMES = {"a": 2, "b": 4, "c": 3, "d": 2, "e": 5, "f": 3, "g": 4, "h": 2, "i": 3, "j": 2}
_AFTER = {"a": "bc", "b": "d", "c": "e", "d": "f", "e": "f", "f": "gh", "g": "i", "h": "i", "i": "j"}
"""Successors of each operator."""


def network() -> OperatorGraph:
    """Return a graph of two diamonds in a row."""
    operators = tuple(Operator(name, times=(DeviceTime("gpu", time),)) for name, time in _TIMES.items())
    return OperatorGraph(
        "two diamonds",
        operators,
        tuple(Edge(source, target) for source, targets in _AFTER.items() for target in targets),
    )


@lru_cache(maxsize=1)
def lattice() -> Lattice:
    """Return the lattice of the network on three devices."""
    return Lattice.of(placement_problem(network(), DevicePool(_DEVICES)))


def proved(*, contiguous: bool = True) -> PlacementReport:
    """Return the report of the placement search."""
    problem = placement_problem(network(), DevicePool(_DEVICES), contiguous=contiguous)
    return solve_placement("dp" if contiguous else "cp-sat", problem)


def stages() -> tuple[Ideal, ...]:
    """Return the operators of each device in a best placement."""
    return tuple(after - before for before, after in pairwise(lattice().chain))


def _facts() -> Facts:
    found, whole = lattice(), lattice().ideals[-1]
    chain = proved()
    loose = proved(contiguous=False)
    first = stages()[0]
    return {
        "operators": str(len(whole)),
        "devices": str(_DEVICES),
        "ideals": str(len(found.ideals)),
        "subsets": f"{2 ** len(whole):,}",
        "one": f"{found.best[1][whole]:g}",
        "two": f"{found.best[2][whole]:g}",
        "best": f"{found.best[_DEVICES][whole]:g}",
        "objective": f"{float(chain.objective or 0):g}",
        "first": ", ".join(sorted(first)),
        "load": f"{found.load(first):g}",
        "loose": f"{float(loose.objective or 0):g}",
        "average": f"{found.load(whole) / _DEVICES:.3g}",
    }


DECK = Deck(
    name="ideals",
    place=4,
    title="Placement over ideals",
    about="How the best cut of a graph into pipeline stages is found, and proved, step by step.",
    facts=_facts,
    slides=(
        Slide(
            "The question",
            (
                "Ten operators, each with its time, go on {devices} devices. The slowest one decides the throughput.",
                "A stage must not wait for a later one: tensors flow from device to device, never back.",
            ),
            picture=lambda: graph_picture(lattice()),
        ),
        Slide(
            "Ideals",
            (
                "An ideal is a set that contains, with each operator, all its predecessors. Pipelines can only be cut "
                "at ideals.",
                "Of {subsets} sets of operators, {ideals} are ideals. Each circle is an ideal, with its number of "
                "operators.",
                "An arrow adds one operator.",
            ),
            picture=lambda: lattice_picture(lattice()),
        ),
        Slide(
            "One device",
            (
                "What one device needs for an ideal is the sum of its times: {one} for the whole graph.",
                "This is the first row of the table.",
            ),
            picture=lambda: lattice_picture(lattice(), 1),
        ),
        Slide(
            "Two devices",
            (
                "For each ideal, try every ideal inside it as the first cut. The second device takes the difference.",
                "Each cut counts with the larger of both loads, and the smallest is kept: {two} for the whole graph.",
            ),
            picture=lambda: lattice_picture(lattice(), 2),
        ),
        Slide(
            "Three devices",
            (
                "The next row needs only the row before it: {best} for the whole graph.",
                "The marked chain of ideals leads there. Its first step is the first stage: {first}; it takes {load}.",
            ),
            picture=lambda: lattice_picture(lattice(), _DEVICES, lattice().chain),
        ),
        Slide(
            "The placement, and its proof",
            (
                "All cuts were tried, so no contiguous placement is below {best}; the placer proves {objective}.",
                "Without contiguity {loose} is possible, and nothing can be below the mean of {average}.",
            ),
            picture=lambda: graph_picture(lattice(), stages()),
        ),
    ),
)
