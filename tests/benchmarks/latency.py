"""How good placements for the latency of one sample are, against the best known and the published greedy.

    python tests/benchmarks/latency.py                  # all inputs, a minute each at most
    python tests/benchmarks/latency.py --small          # the quick placers only

Reads `../shared/data/device-placement` beside the project, or `--data DIR`; without it nothing is measured.  The exit
status is 1 where the published greedy is not reached to 1e-6, or, without `--small`, an answer is worse than the best
known; seconds are shown and never judged.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tessel_core.model import LATENCY, PlacementReport
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.placement import PLACERS, PlacementProblem, solve_placement

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "device-placement"
# (input, what the published greedy reaches by the published evaluator, best known, in ms)
INPUTS: tuple[tuple[str, float, float], ...] = (
    ("LayerGraphs/bert24_inference", 100.2185, 100.2185),
    ("LayerGraphs/resnet50_inference", 4197.05546875, 1156.8813),
    ("LayerGraphs/inceptionv3_inference", 2485.2396298828126, 1326.2792),
    ("OperatorGraphs/bert_l-3_inference", 416.20437558696733, 408.4745),
    ("OperatorGraphs/bert_l-12_inference", 867.8394712360762, 765.3005),
    ("OperatorGraphs/resnet50_inference", 839.5362863359463, 651.1208),
)


def placed(path: Path, placer: str, **options: object) -> PlacementReport:
    """The report on the numbers of devices that the input says."""
    file = read_graph_file(path)
    assert file.pool is not None
    problem = replace(PlacementProblem.on_pool(file.graph, file.pool), objective=LATENCY)
    return solve_placement(placer, problem, PLACERS[placer].config(**options))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="the quick placers only")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each search")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the published inputs")
    options = parser.parse_args(arguments)
    console = Console(width=140)
    if not options.data.exists():
        console.print(f"{options.data} is not there: nothing to measure")
        return 0
    headings = ("input", "placer", "ours", "bound", "status", "wall s", "published greedy", "best known")
    table = Table(*headings, title="Latency of one sample, one subgraph a device (ms)")
    good = True
    placers = ("latency-greedy", "latency-dp") if options.small else ("latency-greedy", "latency-dp", "latency-cp-sat")
    for name, greedy, known in INPUTS:
        for placer in placers:
            limit = {} if placer == "latency-greedy" else {"time_limit": options.time_limit}
            found = placed(options.data / "latency" / f"{name}.json", placer, **limit)
            ours, bound = float(found.objective or 0), float(found.bound or 0)
            right = abs(ours - greedy) <= 1e-6 if placer == "latency-greedy" else True
            right &= ours <= known + 1e-4 if placer == "latency-cp-sat" else True
            good &= right
            status = str(found.status) if right else f"[red]{found.status}[/red]"
            row = (name, placer, f"{ours:.6f}", f"{bound:.6f}", status, f"{found.wall_s:.1f}")
            table.add_row(*row, f"{greedy:.4f}", f"{known:.4f}")
    console.print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
