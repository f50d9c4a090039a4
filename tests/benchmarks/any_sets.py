"""Benchmark of non-contiguous placements over several seeds: one row per published input.

    python tests/benchmarks/any_sets.py                       # five seeds each, ten for the hardest; half an hour
    python tests/benchmarks/any_sets.py --only L-12_training --seeds 2 --seconds 20 --workers 1
    python tests/benchmarks/any_sets.py --busy 4              # other programs take three quarters of the cores

Reads `../shared/data/device-placement` beside the project, or `--data DIR`, and skips missing inputs. The published
repository has BERT-12 training as `throughput-inputs/OperatorGraphs/bert_L-12_training.json`. "Known" is the best load
of earlier searches of minutes to hours, and "least" the least load that any run of this search found. "Reached" counts
the seeds that had the known load or less within `--seconds` of CPU time per worker. "After" is the CPU time of all
workers until the last of them had it. The time limit of an answer is wall time: `--seconds` times `--busy`. The exit
status is 1 if a seed stays above the known load.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tessel_core.control import Control, Progress
from tessel_core.model import Status
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.placement import PlacementProblem, solve_placement
from tessel_core.placement.annealing import warm
from tessel_core.placement.cp_sat import CpSatConfig

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "device-placement"
# (input, best known load, least load that any run of this search found, best known bound), in ms
KNOWN: tuple[tuple[str, float, float, float], ...] = (
    ("OperatorGraphs/bert_l-3_inference", 21.908376, 21.908376, 21.908376),
    ("OperatorGraphs/bert_l-3_training", 54.207399, 54.207399, 54.207399),
    ("OperatorGraphs/bert_l-6_inference", 28.332191, 28.332191, 26.478),
    ("OperatorGraphs/bert_l-12_inference", 130.038095, 130.038095, 130.038095),
    ("OperatorGraphs/bert_L-12_training", 373.424072, 373.424072, 362.949),
    ("OperatorGraphs/resnet50_inference", 124.348850, 124.348850, 124.348850),
    ("LayerGraphs/bert24_inference", 17.714719, 17.714719, 17.708),
    ("LayerGraphs/bert24_training", 39.789539, 39.789539, 39.789539),
    ("LayerGraphs/resnet50_inference", 33.688812, 33.331369, 33.083),
    ("LayerGraphs/resnet50_training", 77.200602, 76.438195, 75.929),
    ("LayerGraphs/gnmt_inference", 31.687311, 31.687311, 31.132),
    ("LayerGraphs/inceptionv3_inference", 51.551864, 51.355269, 51.018),
)
MORE_SEEDS = {"OperatorGraphs/bert_L-12_training": 2}
"""Factors for the number of seeds."""


@dataclass(frozen=True)
class Measured:
    """Measurements of one answer."""

    status: Status
    load: float
    bound: float
    reached: float
    """CPU seconds until the known load was reached. Infinite if it never was."""


def measure(path: Path, known: float, config: CpSatConfig) -> Measured:
    """Place the graph of a file once."""
    warm()  # compiling is no part of the search
    file = read_graph_file(path)
    assert file.pool is not None
    began, reached = time.process_time(), list[float]()

    def hear(news: Progress) -> None:
        if news.objective is not None and news.objective <= known + 1e-6:
            reached.append(time.process_time() - began)

    problem = replace(PlacementProblem.on_pool(file.graph, file.pool), contiguous=False)
    report = solve_placement("cp-sat", problem, config, Control(on_progress=hear))
    load, bound = (float("nan") if each is None else float(each) for each in (report.objective, report.bound))
    if load <= known + 1e-6:
        reached.append(time.process_time() - began)
    return Measured(report.status, load, bound, min(reached, default=float("inf")))


def table(data: Path, options: argparse.Namespace, console: Console) -> bool:
    """Print all rows, and return whether every seed reached the known load."""
    headings = (
        "input",
        "known",
        "least",
        "best seed",
        "worst seed",
        "known bound",
        "bound",
        "proved",
        "reached",
        "after, CPU s",
    )
    output = Table(*headings, title=f"Non-contiguous throughput (ms), {options.seconds:g} s, {options.workers} workers")
    good = True
    for name, known, least, known_bound in KNOWN:
        path = data / "throughput" / f"{name}.json"
        if not path.exists() or options.only not in name:
            continue
        count = options.seeds * MORE_SEEDS.get(name, 1)
        limit = options.seconds * options.busy
        configs = [CpSatConfig(limit, options.workers, seed) for seed in range(count)]
        with get_context("spawn").Pool(1) as alone:
            answers = [alone.apply(measure, (path, known, config)) for config in configs]
        reached = [each.reached for each in answers if each.reached <= options.seconds * options.workers]
        right = len(reached) == count
        good &= right
        loads, worst = [each.load for each in answers], max(each.load for each in answers)
        proved = sum(each.status is Status.PROVED_OPTIMAL for each in answers)
        row = (
            name,
            f"{known:.6f}",
            f"{least:.6f}",
            f"{min(loads):.6f}",
            f"{worst:.6f}" if right else f"[red]{worst:.6f}[/red]",
        )
        bounds = (f"{known_bound:.3f}", f"{min(each.bound for each in answers):.3f}")
        output.add_row(*row, *bounds, str(proved), f"{len(reached)} of {count}", f"{max(reached, default=0.0):.1f}")
    console.print(output)
    return good


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="seeds per input, from 0")
    parser.add_argument("--seconds", type=float, default=40.0, help="time limit per answer, and CPU time per worker")
    parser.add_argument("--busy", type=float, default=1.0, help="factor for the time limit on a busy machine")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="inputs with this in their name")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the published inputs")
    options = parser.parse_args(arguments)
    console = Console(width=150)
    if not options.data.exists():
        console.print(f"{options.data} does not exist: nothing to measure")
        return 0
    return 0 if table(options.data, options, console) else 1


if __name__ == "__main__":
    sys.exit(main())
