"""Compare recommended strategies of operator graphs with simple ones: python tests/benchmarks/graph_strategies.py.

There is one line per graph: the sample graphs, and random graphs. It has the seconds of the search, the seconds until a
step within 5 % of the answer is known, the recommended step, the lower bound divided by it, and the steps of simple
strategies divided by it. These are pure data parallelism, `tessel place` and `tessel place --replicate`, each with
1F1B. A strategy that does not fit is left out. The exit status is 1 if a simple strategy is faster.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from helpers.graph_strategies import random_graph, simple_steps
from rich.console import Console
from rich.table import Table

from tessel_core.control import Control
from tessel_core.costs.meshes import find_mesh
from tessel_core.samples import list_graphs, load_graph
from tessel_core.strategies.graphs.question import GraphQuestion
from tessel_core.strategies.graphs.search import recommend_graph
from tessel_core.units import show_time

RANDOM = {f"random-{seed}": random_graph(seed, 24) for seed in range(1, 5)}
NEAR = 1.05


def main() -> None:
    """Print the table."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--mesh", default="h100-8")
    asked.add_argument("--micro-batches", type=int, default=32)
    asked.add_argument("--only", nargs="*", default=[*(each.name for each in list_graphs()), *RANDOM])
    given = asked.parse_args()
    mesh, worse = find_mesh(given.mesh), False
    rows = Table("graph", "search", "first", "step", "bound", "simple strategies", "strategy", box=None)
    for name in given.only:
        graph = RANDOM.get(name) or load_graph(name)
        control = Control()
        best = (found := recommend_graph(GraphQuestion(graph, mesh, given.micro_batches), control)).best
        seconds = control.elapsed_s
        if best is None:
            rows.add_row(name, show_time(seconds, "s"), "", "fits nowhere")
            continue
        step = best.outcome.latency
        first = next(each.wall_s for each in control.history if each.objective and each.objective <= NEAR * step)
        ratios = {way: each / step for way, each in simple_steps(graph, mesh, given.micro_batches).items()}
        worse |= min(ratios.values(), default=1.0) < 1 - 1e-6
        said = ", ".join(f"{way} {ratio:.3f}" for way, ratio in ratios.items())
        times = (show_time(each, "s") for each in (seconds, first, step))
        rows.add_row(name, *times, f"{(found.bound_s or 0) / step:.3f}", said, best.strategy.summary)
    Console(width=200).print(rows)
    sys.exit(worse)


if __name__ == "__main__":
    main()
