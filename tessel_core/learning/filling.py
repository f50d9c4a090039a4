"""Data for two pages on placement: the dynamic-programming table to fill, and the cost of contiguity."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import isfinite
from typing import Any

from tessel_core.learning.lattice import Ideal, Lattice
from tessel_core.learning.lattice_picture import graph_picture, lattice_picture, scale_of, short_names
from tessel_core.model import PlacementReport, Status
from tessel_core.placement.problem import PlacementProblem
from tessel_core.units import counted, many, show_time

lattice_of = lru_cache(maxsize=4)(Lattice.of)


@lru_cache(maxsize=4)
def filling(problem: PlacementProblem) -> dict[str, Any]:
    """Return a JSON object with the ideals, the table, and the cuts of each ideal with the load of the rest.

    Loads are in the unit that the object names, and null where nothing fits.  Raises InputError as `Lattice.of` does.
    """
    lattice, unit = lattice_of(problem), problem.graph.time_unit
    divisor, shown = scale_of(lattice, unit)
    place = {ideal: at for at, ideal in enumerate(lattice.ideals)}
    names, short = lattice.names, short_names(lattice)

    def scaled(load: float) -> float | None:
        return float(f"{load / divisor:.6g}") if isfinite(load) else None

    return {
        "picture": lattice_picture(lattice),
        "unit": many(shown),
        "ideals": [_last(lattice, ideal) for ideal in lattice.ideals],
        "best": [[scaled(row[ideal]) for ideal in lattice.ideals] for row in lattice.best],
        "cuts": [[[place[cut], scaled(load)] for cut, load in lattice.cuts[ideal]] for ideal in lattice.ideals],
        "chain": [place[ideal] for ideal in lattice.chain],
        "stages": [_named(lattice, after - before) for before, after in pairwise(lattice.chain)],
        "called": [] if short[names[0]] == names[0] else [f"{short[name]} {name}" for name in names],
    }


def _last(lattice: Lattice, ideal: Ideal) -> str:
    """Return a name for an ideal. It lists the maximal groups, on which no other group of the ideal depends."""
    inner = {source for source, target in lattice.arcs if target in ideal}
    return _named(lattice, ideal - inner) if ideal else "nothing"


def _named(lattice: Lattice, groups: Ideal) -> str:
    short, runs = short_names(lattice), list[list[str]]()
    for before, name in pairwise(["", *lattice.names]):
        if name in groups:
            runs = [*runs[:-1], [*runs[-1], short[name]]] if before in groups else [*runs, [short[name]]]
    return ", ".join(f"{run[0]} – {run[-1]}" if len(run) > 3 else ", ".join(run) for run in runs)


def contiguity(problem: PlacementProblem, loose: PlacementReport) -> list[dict[str, str]]:
    """Return the best contiguous placement and the placement `loose`, each with a title, a sentence and SVG.

    Tensors that flow in a circle between devices are marked.  Raises InputError as `Lattice.of` does.
    """
    lattice, unit = lattice_of(problem), problem.graph.time_unit
    stages = tuple(after - before for before, after in pairwise(lattice.chain))
    least = lattice.best[-1][lattice.ideals[-1]]
    chain = f"Largest load {show_time(least, unit)}, proved: each stage needs only earlier stages."
    found = [{"title": "Contiguous", "says": chain, "picture": graph_picture(lattice, stages, (), unit)}]
    if loose.solution is None or loose.objective is None:
        return found
    placed = lattice.placed(loose.solution)
    marked, proved = lattice.in_circles(placed), loose.status is Status.PROVED_OPTIMAL
    sure = "proved" if proved else f"and none is below {show_time(float(loose.bound or 0), unit)}"
    says = f"Largest load {show_time(float(loose.objective), unit)}, {sure}. " + (
        f"{counted(len(marked), 'tensor')} on the marked arrows run in circles: these devices wait for each other."
        if marked
        else "No tensor flows in a circle, so it is contiguous as well."
    )
    return [*found, {"title": "Any sets", "says": says, "picture": graph_picture(lattice, placed, marked, unit)}]
