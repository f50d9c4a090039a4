"""Benchmark of placements: one table per kind of question, over the published inputs.

    python tests/benchmarks/placement.py              # everything, a quarter of an hour
    python tests/benchmarks/placement.py --small      # without other numbers of devices and long searches

Reads `../shared/data/device-placement` beside the project, or `--data DIR`. Without it, nothing is measured. The peer
is the published C++ program on the same inputs. The exit status is 1 if an answer is not the known optimum, or is not
proved, or if replicated stages are not proved within their time limit. Other seconds are shown and never judged.
`any_sets.py` measures non-contiguous placements.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tessel_core.costs.reductions import ReplicaOptions
from tessel_core.formats.files import read_any
from tessel_core.formats.graph_file import SplitFile, split_placement
from tessel_core.model import THROUGHPUT, DevicePool, Status
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.placement import PLACERS, solve_placement
from tessel_core.placement.problem import placement_problem

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "device-placement"
# (input, optimum in ms, CPU seconds and MB of the published program); seconds are None if it did not finish in 253 s
INPUTS: tuple[tuple[str, float, float | None, float], ...] = (
    ("LayerGraphs/bert24_inference", 17.789906, 0.0, 4),
    ("LayerGraphs/bert24_training", 41.745813, 0.0, 4),
    ("LayerGraphs/resnet50_inference", 33.774666, 0.06, 5),
    ("LayerGraphs/resnet50_training", 78.631813, 0.11, 6),
    ("LayerGraphs/gnmt_inference", 32.910658, 11.6, 549),
    ("LayerGraphs/inceptionv3_inference", 51.551864, None, 3400),
    ("OperatorGraphs/bert_l-3_inference", 27.918568, 0.6, 29),
    ("OperatorGraphs/bert_l-3_training", 65.303149, 3.8, 75),
    ("OperatorGraphs/bert_l-6_inference", 29.579506, 2.2, 58),
    ("OperatorGraphs/resnet50_inference", 124.348850, 0.07, 6),
    ("OperatorGraphs/bert_l-12_inference", 147.477984, 10.5, 135),
)
OTHER_POOLS = ((2, 0), (3, 1), (4, 3), (8, 1), (12, 2))
REPLICATED = (1, 32)
"""Micro-batches per reduction of gradients with replicated stages."""
MAX_REPLICATED_S = 60.0
TIGHT = 1.05
"""Memory of an accelerator, as a multiple of an even share of the operators' memory."""


@dataclass(frozen=True)
class Measured:
    """Measurements of one answer."""

    status: Status
    objective: float | None
    bound: float | None
    cpu_s: float
    wall_s: float
    mega_bytes: float


def measure(
    path: Path,
    pool: DevicePool | None,
    tight: bool,
    placer: str,
    by_hand: Path | None,
    reduce_every: int | None,
) -> Measured:
    """Place the graph of a file. Run this in its own process, so that the peak memory is that of one question."""
    began = time.process_time()
    file = read_graph_file(path)
    devices = pool or file.pool
    assert devices is not None
    if tight:
        even = sum(operator.memory for operator in file.graph.operators) / devices.accelerators
        devices = replace(devices, memory=TIGHT * even)
    replicas = None if reduce_every is None else ReplicaOptions(reduce_every)
    problem = placement_problem(file.graph, devices, replicas=replicas)
    if by_hand is not None:
        split = read_any(by_hand)
        assert isinstance(split, SplitFile)
        problem = replace(problem, by_hand=split_placement(split, file.graph, devices).assignment)
    report = solve_placement(placer, problem)
    seconds = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    objective, bound = (None if value is None else float(value) for value in (report.objective, report.bound))
    return Measured(report.status, objective, bound, seconds, report.wall_s, memory)


def measure_alone(
    path: Path,
    pool: DevicePool | None = None,
    tight: bool = False,
    placer: str = "dp",
    by_hand: Path | None = None,
    reduce_every: int | None = None,
) -> Measured:
    """Run `measure` in a new process."""
    with get_context("spawn").Pool(1) as one:
        return one.apply(measure, (path, pool, tight, placer, by_hand, reduce_every))


def published(data: Path, console: Console) -> bool:
    """Print the table with the published numbers of devices. Return whether all optima are reached and proved."""
    headings = ("input", "optimum", "ours", "status", "CPU s", "MB", "published CPU s", "MB", "ratio")
    table = Table(*headings, title="Published inputs, contiguous throughput (ms)")
    good, total = True, 0.0
    for name, optimum, peer_s, peer_mb in INPUTS:
        found = measure_alone(data / "throughput" / f"{name}.json")
        total += found.cpu_s
        right = found.status is Status.PROVED_OPTIMAL and abs((found.objective or 0) - optimum) <= 1e-6
        good &= right
        peer = "> 253" if peer_s is None else f"{peer_s:.2f}"
        ratio = (253 if peer_s is None else peer_s) / found.cpu_s
        row = (name, f"{optimum:.6f}", shown(found.objective), found.status if right else f"[red]{found.status}[/red]")
        table.add_row(*row, f"{found.cpu_s:.2f}", f"{found.mega_bytes:.0f}", peer, f"{peer_mb:.0f}", f"{ratio:.1f}")
    console.print(table, f"together {total:.1f} s of CPU")
    return good


def others(data: Path, console: Console) -> bool:
    """Print the table with other numbers of devices and tight memory. Return whether every answer is proved."""
    table = Table("input", "devices", "memory", "ours", "bound", "status", "CPU s", "MB", title="Other devices (ms)")
    good = True
    for name, *_ in INPUTS:
        path = data / "throughput" / f"{name}.json"
        known = read_graph_file(path).pool
        assert known is not None
        questions = [(replace(known, accelerators=k, cpus=cpus), False) for k, cpus in OTHER_POOLS]
        for pool, tight in (*questions, (known, True)):
            found = measure_alone(path, pool, tight)
            proved = found.status in (Status.PROVED_OPTIMAL, Status.INFEASIBLE)
            good &= proved
            memory = f"{TIGHT} x even share" if tight else "as published"
            row = (name, f"{pool.accelerators} + {pool.cpus}", memory, shown(found.objective), shown(found.bound))
            status = found.status if proved else f"[red]{found.status}[/red]"
            table.add_row(*row, status, f"{found.cpu_s:.2f}", f"{found.mega_bytes:.0f}")
    console.print(table)
    return good


def replicated(data: Path, console: Console) -> bool:
    """Print the table of replicated stages on eight accelerators.

    Return whether every answer is proved, and none is above the optimum of one device per stage.
    """
    headings = (
        "input",
        "micro-batches per reduction",
        "one device per stage",
        "replicated",
        "status",
        "wall s",
        "CPU s",
    )
    table = Table(*headings, title="Replicated stages on 8 accelerators and a CPU (ms)")
    good = True
    for name, *_ in INPUTS:
        path = data / "throughput" / f"{name}.json"
        known = read_graph_file(path).pool
        assert known is not None
        pool = replace(known, accelerators=8)
        alone = measure_alone(path, pool)
        for every in REPLICATED:
            found = measure_alone(path, pool, reduce_every=every)
            right = found.status is Status.PROVED_OPTIMAL and found.wall_s <= MAX_REPLICATED_S
            right &= (found.objective or 0) <= (alone.objective or 0) * (1 + 1e-9)
            good &= right
            row = (name, str(every), shown(alone.objective), shown(found.objective))
            status = found.status if right else f"[red]{found.status}[/red]"
            table.add_row(*row, status, f"{found.wall_s:.1f}", f"{found.cpu_s:.1f}")
    console.print(table)
    return good


def other_placers(data: Path, console: Console) -> bool:
    """Print the table of CP-SAT and the baselines. Return whether CP-SAT proves every optimum."""
    suitable = [
        name
        for name, each in PLACERS.items()
        if True in each.contiguous and THROUGHPUT in each.objectives and False in each.replicates
    ]
    baselines = [name for name in suitable if name not in ("dp", "cp-sat")]
    headings = ("input", "optimum", "CP-SAT", "wall s", *(f"{name} above" for name in baselines))
    table = Table(*headings, title="Contiguous throughput (ms): CP-SAT, and how far baselines are above the optimum")
    good = True
    for name, optimum, *_ in INPUTS:
        path = data / "throughput" / f"{name}.json"
        exact = measure_alone(path, placer="cp-sat")
        right = exact.status is Status.PROVED_OPTIMAL and abs((exact.objective or 0) - optimum) <= 1e-6
        good &= right
        cells = []
        for baseline in baselines:
            hand = data / "human-experts" / f"{path.stem}_expert.json"
            if baseline == "expert" and (not hand.exists() or "Layer" not in name):
                cells.append("-")
                continue
            found = measure_alone(path, placer=baseline, by_hand=hand if baseline == "expert" else None)
            cells.append("-" if found.objective is None else f"{max(0.0, found.objective / optimum - 1):.1%}")
        table.add_row(name, f"{optimum:.6f}", str(exact.status), f"{exact.wall_s:.1f}", *cells)
    console.print(table)
    return good


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.6f}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="without other devices and long searches")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the published inputs")
    options = parser.parse_args(arguments)
    console = Console(width=140)
    if not options.data.exists():
        console.print(f"{options.data} does not exist: nothing to measure")
        return 0
    good = published(options.data, console)
    good &= replicated(options.data, console)
    good &= other_placers(options.data, console)
    return 0 if (options.small or others(options.data, console)) and good else 1


if __name__ == "__main__":
    sys.exit(main())
