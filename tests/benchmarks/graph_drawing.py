"""How fast operator graphs are drawn, and how large their pictures are: a table over sizes and shapes.

    python tests/benchmarks/graph_drawing.py [--data ../shared/data/device-placement]

"first" is with the layout, "again" without: colours, a search and the devices of a moved operator change no layout.
Seconds are shown and never judged; the exit status is 1 where a picture exceeds two megabytes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from tessel_core.charts.graph.chart import graph_chart
from tessel_core.charts.graph.groups import ColourBy, GraphView
from tessel_core.model import DeviceTime, Edge, Operator, OperatorGraph
from tessel_core.networks.graphs.files import read_graph_file

SIZES = (10, 100, 600, 2_000, 20_000)
MAX_BYTES = 2_000_000
DATA = Path(__file__).parents[3] / "shared" / "data" / "device-placement"


def chain(count: int) -> set[tuple[int, int]]:
    """One operator after the other."""
    return set(pairwise(range(count)))


def residual(count: int) -> set[tuple[int, int]]:
    """Blocks of ten operators with two branches and a connection around them."""
    arcs = set()
    for first in range(0, count, 10):
        arcs |= {(first, first + 1), (first, first + 5), (first, first + 10), (first + 4, first + 9)}
        arcs |= {(first + i, first + i + 1) for i in (1, 2, 3, 5, 6, 7, 8, 9)}
    return {(source, target) for source, target in arcs if target < count}


def tangled(count: int) -> set[tuple[int, int]]:
    """Twice as many arcs as operators, to others some forty places on."""
    choose, arcs = Random(1), set()
    while len(arcs) < 2 * count - 4:
        source = choose.randrange(count - 1)
        arcs.add((source, min(count - 1, source + 1 + int(choose.expovariate(1 / 40)))))
    return arcs


def graphs(data: Path) -> Iterator[tuple[str, OperatorGraph]]:
    """Made ones of every size, then the published ones."""
    for shape in (chain, residual, tangled):
        for count in SIZES:
            operators = (Operator(f"layer{i // 10}/op{i}", times=(DeviceTime("gpu", 1.0),)) for i in range(count))
            arcs = sorted(shape(count))
            edges = (Edge(f"layer{a // 10}/op{a}", f"layer{b // 10}/op{b}") for a, b in arcs)
            yield shape.__name__, OperatorGraph("made", tuple(operators), tuple(edges))
    for path in sorted((data / "throughput").rglob("*.json")):
        yield path.stem, read_graph_file(path).graph


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="the published inputs")
    asked = parser.parse_args()
    graph_chart(OperatorGraph("warm-up", (Operator("a"), Operator("b")), (Edge("a", "b"),)))
    table = Table("graph", "operators", "edges", "first s", "again s", "kB", "pixels", title="Drawings, CPU seconds")
    good = True
    for name, graph in graphs(asked.data):
        began = time.process_time()
        graph_chart(graph)
        middle = time.process_time()
        figure = graph_chart(graph, GraphView(colour_by=ColourBy.TIME))
        again = time.process_time() - middle
        size = len(figure.to_json())
        good &= size <= MAX_BYTES
        counts = f"{len(graph.operators):,}", f"{len(graph.edges):,}"
        table.add_row(
            name, *counts, f"{middle - began:.2f}", f"{again:.2f}", f"{size / 1e3:,.0f}", str(figure.layout.height)
        )
    Console().print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
