"""How fast durations are drawn and orders timed anew: a table over plans, sizes and what varies.

    python tests/benchmarks/jitter.py [--small]

Each row is a process of its own: wall seconds and the ratio to what is asked (1 s for 1,000 runs x 10,000 draws, 10 s
for 200,000 x 200), nanoseconds a run and draw, and the peak of the process's memory, of which 1 GB is asked.  Seconds
are shown and never judged; the exit status is 1 where a draw without spread is not the order's own makespan, or memory
is above 1 GB.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from inspection import listed
from rich.console import Console
from rich.table import Table

from tessel_core.inspection import Jitter, under_jitter
from tessel_core.inspection.jitter import DEVICE, RUN

SAMPLES = ("gpt-6.7b-v-16", "gpt-13b-split-v-16", "m-shape-8", "nn-shape-8")
SIZES = ((1_000, 10_000, 1.0), (200_000, 200, 10.0))
"""Runs, draws and the seconds that are asked."""
_KILOBYTES_ASKED = 1_000_000


def measured(sample: str, runs: int, draws: int, asked: float, of: str) -> tuple[list[str], bool]:
    """A row of the table, and whether the answer is right and the memory enough."""
    schedule = listed(sample, runs)
    begun = time.perf_counter()
    (found,) = under_jitter([schedule], Jitter(0.1, of, draws))
    wall = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (still,) = under_jitter([schedule], Jitter(0.0, of, 2))
    cells = draws * len(schedule.start)
    row = [sample, of, f"{len(schedule.start):,}", f"{draws:,}", f"{wall:.2f}", f"{wall / asked:.2f}"]
    row += [f"{wall / cells * 1e9:.0f}", f"{peak / 1e6:.2f}", f"{found.p50 / found.nominal:.4f}"]
    row += [f"{found.p95 / found.nominal:.4f}"]
    return row, still.p50 == still.p95 == still.nominal and peak <= _KILOBYTES_ASKED


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--small", action="store_true", help="1,000 runs only")
    sizes = SIZES[:1] if parser.parse_args().small else SIZES
    table = Table(
        "plan", "jitter of", "runs", "draws", "s", "of asked", "ns each", "peak, GB", "p50 / plain", "p95 / plain"
    )
    good = True
    for sample in SAMPLES:
        for size in sizes:
            for of in (RUN, DEVICE):
                with ProcessPoolExecutor(1, get_context("spawn")) as alone:
                    row, right = alone.submit(measured, sample, *size, of).result()
                table.add_row(*row)
                good &= right
    Console(width=120).print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
