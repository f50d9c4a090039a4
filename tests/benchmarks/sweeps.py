"""How fast sweeps go: points per second in a plain loop, on one process and on several, and what a point costs extra.

    python tests/benchmarks/sweeps.py                # a minute
    python tests/benchmarks/sweeps.py --workers 1,2,4

Extra is what the processes' time is above the loop's, a point; with fewer idle cores than processes it has their
waiting in it.  Own CPU is that of handing out and keeping.  Workers are warm: starting them is a column of its own.
A table before it has how workers begin, beside a plain ProcessPoolExecutor of processes that import everything: until
each has searched a schedule, and what all processes but this one then take of memory, shared pages in equal parts.
Every result is compared with the loop's; the exit status is 1 where one differs.  Seconds are shown, never judged.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from helpers.sweeps import GRAPH, OTHER, PAIR, answers, in_a_loop, offspring, small_sweep  # noqa: E402

from tessel_core.control import Control  # noqa: E402
from tessel_core.sweeps.pools import open_pool  # noqa: E402
from tessel_core.sweeps.running import run_sweep  # noqa: E402
from tessel_core.sweeps.solving import solve_point  # noqa: E402
from tessel_core.sweeps.store import SweepStore  # noqa: E402
from tessel_core.sweeps.sweep import SolverSweep  # noqa: E402

SWEEPS = {
    "published orders": SolverSweep(
        (GRAPH,), (PAIR, OTHER), schedulers=("1f1b", "gpipe", "sequential"), micro_batches=tuple(range(1, 101))
    ),
    "searched": SolverSweep(
        (GRAPH,), (PAIR, OTHER), (None, 38 * 10**9), schedulers=("time-optimal",), micro_batches=tuple(range(2, 27))
    ),
}


@dataclass(frozen=True)
class Measured:
    """One sweep on so many processes."""

    start_s: float
    """Until the first results of another sweep were there."""
    wall_s: float
    own_s: float
    """CPU seconds of this process, which hands points out and keeps results."""
    same: bool
    """As the loop."""


def measure(sweep: SolverSweep, workers: int, expected: dict[str, dict[str, object]]) -> Measured:
    """On warm workers, into a fresh file."""
    with tempfile.TemporaryDirectory() as folder, open_pool(workers=workers) as pool:
        began = time.perf_counter()
        warm = small_sweep(range(2, 2 + workers))
        with SweepStore(Path(folder) / "warm.sqlite", warm) as store:
            run_sweep(warm, pool, store, Control())
        start_s, began, cpu = time.perf_counter() - began, time.perf_counter(), time.process_time()
        with SweepStore(Path(folder) / "results.sqlite", sweep) as store:
            run_sweep(sweep, pool, store, Control())
            wall_s, own_s = time.perf_counter() - began, time.process_time() - cpu
            return Measured(start_s, wall_s, own_s, answers(store.rows()) == expected)


def beginning(executor: Executor, workers: int) -> tuple[float, float]:
    """Seconds until so many workers have begun and searched, and megabytes then."""
    began = time.perf_counter()
    point = next(iter(SolverSweep((GRAPH,), (PAIR,), schedulers=("tessel",), micro_batches=(4,)).points))
    wait([executor.submit(solve_point, point) for _ in range(workers)])
    seconds, kilobytes = time.perf_counter() - began, 0
    for pid in offspring(os.getpid()):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return seconds, kilobytes / 1e3


def beginnings(counts: Sequence[int], times: int = 3) -> Table:
    """Medians; the peer's first, while our server has not begun and takes no memory."""
    headings = ("workers", "s", "peer s", "ratio", "MB", "peer MB")
    table = Table(*headings, title="How workers begin")
    peers, ours = dict[int, tuple[float, ...]](), dict[int, tuple[float, ...]]()
    for workers in counts:
        found = list[tuple[float, float]]()
        for _ in range(times):
            with ProcessPoolExecutor(workers, get_context("spawn")) as plain:
                found.append(beginning(plain, workers))
        peers[workers] = tuple(map(median, zip(*found, strict=True)))
    with open_pool(workers=1) as pool:
        first_s, _ = beginning(pool.executor, 1)
    for workers in counts:
        found = []
        for _ in range(times):
            time.sleep(0.5)  # until the processes before have ended
            with open_pool(workers=workers) as pool:
                found.append(beginning(pool.executor, workers))
        ours[workers] = tuple(map(median, zip(*found, strict=True)))
    for workers, (peer_s, peer_mb) in peers.items():
        own_s, own_mb = ours[workers]
        row = (f"{own_s:.2f}", f"{peer_s:.2f}", f"{own_s / peer_s:.2f}", f"{own_mb:.0f}", f"{peer_mb:.0f}")
        table.add_row(f"{workers}", *row)
    table.caption = f"The very first worker, whose server has to begin, takes {first_s:.2f} s."
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2", help="numbers of processes, with commas between")
    options = parser.parse_args(arguments)
    console = Console(width=140)
    if sys.platform == "linux":
        console.print(beginnings((1, 2, 8)))
    headings = (
        "sweep",
        "points",
        "on",
        "s",
        "points/s",
        "against the loop",
        "extra ms a point",
        "own CPU ms",
        "start s",
        "same",
    )
    table, good = Table(*headings, title="Solver sweeps"), True
    for name, sweep in SWEEPS.items():
        in_a_loop(replace(sweep, micro_batches=sweep.micro_batches[:1]))  # imports are no part of the loop's time
        began = time.perf_counter()
        expected = in_a_loop(sweep)
        loop_s = time.perf_counter() - began
        table.add_row(
            name, f"{sweep.size}", "a loop", f"{loop_s:.2f}", f"{sweep.size / loop_s:.0f}", "1.00", "", "", ""
        )
        for workers in map(int, options.workers.split(",")):
            found = measure(sweep, workers, expected)
            good &= found.same
            extra = (found.wall_s * workers - loop_s) / sweep.size * 1e3
            ratios = (f"{sweep.size / found.wall_s:.0f}", f"{loop_s / found.wall_s:.2f}", f"{extra:.2f}")
            own = f"{found.own_s / sweep.size * 1e3:.2f}"
            on = f"{workers} {'process' if workers == 1 else 'processes'}"
            same = "yes" if found.same else "[red]no[/red]"
            table.add_row("", "", on, f"{found.wall_s:.2f}", *ratios, own, f"{found.start_s:.1f}", same)
    console.print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
