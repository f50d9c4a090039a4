"""How fast a schedule answers: a table over plans, for about as many runs as are asked for.

    python tests/benchmarks/inspection.py [--runs 200000]

Seconds are of this process's work, shown and never judged; the exit status is 1 where the parts do not sum to idle.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from tessel_core.inspection import Holes, IdleSplit, Obstacles, OrderGraph, idle_causes
from tessel_core.model import Schedule
from tessel_core.samples import load_sample
from tessel_core.scheduling.search.list_search import ListSearch

SAMPLES = ("gpt-6.7b-v-16", "gpt-13b-split-v-16", "gpt-1m-vocab-m-8", "m-shape-8", "nn-shape-8")
T = TypeVar("T")


def listed(sample: str, runs: int) -> Schedule:
    """A list schedule of a sample."""
    plan = load_sample(sample)
    search = ListSearch(plan, plan.topological_order, max(1, runs // len(plan.blocks)), "backward", 1)
    search.restart(1)
    return Schedule.from_starts(plan, search.starts)


def timed(work: Callable[[], T]) -> tuple[T, str]:
    """What the work gives, and its seconds."""
    begun = time.process_time()
    return work(), f"{time.process_time() - begun:.3f}"


def measured(sample: str, runs: int) -> tuple[list[str], bool]:
    """A row of the table, and whether the parts sum to idle."""
    schedule = listed(sample, runs)
    _ = schedule.starts, schedule.end
    causes, for_causes = timed(lambda: idle_causes(schedule))
    obstacles, for_obstacles = timed(lambda: Obstacles.of(schedule))
    chain, for_chain = timed(lambda: obstacles.chain(len(schedule.start) - 1))
    _, for_path = timed(obstacles.critical_path)
    graph = OrderGraph.of(schedule)
    _, for_slack = timed(lambda: graph.slack)
    _, for_savings = timed(graph.savings)
    lengths = [sum(hole.length for hole in Holes(schedule, causes).on(d)) for d in range(causes.devices)]
    exact = sum(causes.shares.values()) == IdleSplit.of(schedule).idle
    counts = f"{len(schedule.start):,}", f"{len(chain):,}"
    row = [sample, counts[0], for_causes, for_obstacles, for_chain, counts[1], for_path, for_slack, for_savings]
    return row, exact and lengths == causes.table.sum(axis=1).tolist()


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=200_000)
    runs: int = parser.parse_args().runs
    table = Table(
        "plan", "runs", "idle causes", "obstacles", "a chain", "links", "critical path", "slack", "10 % faster"
    )
    exact = True
    for sample in SAMPLES:
        row, sums = measured(sample, runs)
        table.add_row(*row)
        exact &= sums
    Console().print(table)
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
