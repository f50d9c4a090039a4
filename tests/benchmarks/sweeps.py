"""How fast sweeps go: points per second in a plain loop, on one process and on several, and what a point costs extra.

    python tests/benchmarks/sweeps.py                # a minute
    python tests/benchmarks/sweeps.py --workers 1,2,4

Extra is what the processes' time is above the loop's, a point; with fewer idle cores than processes it has their
waiting in it.  Own CPU is that of handing out and keeping.  Workers are warm: starting them is a column of its own.
Every result is compared with the loop's; the exit status is 1 where one differs.  Seconds are shown, never judged.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from helpers.sweeps import GRAPH, OTHER, PAIR, answers, in_a_loop, small_sweep  # noqa: E402

from tessel_core.control import Control  # noqa: E402
from tessel_core.sweeps.pools import open_pool  # noqa: E402
from tessel_core.sweeps.running import run_sweep  # noqa: E402
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2", help="numbers of processes, with commas between")
    options = parser.parse_args(arguments)
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
    Console(width=140).print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
