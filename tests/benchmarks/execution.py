"""How long it takes to find out whether ranks can hang, of 100,000 actions.

    python tests/benchmarks/execution.py            # 100,000 actions
    python tests/benchmarks/execution.py --small    # what CI runs

Orders are derived from 1F1B on a V, from all-device blocks (1F1B+ on an M), and from the same 1F1B as PyTorch's CSV.
Spoiled ones have one rank receive, in the middle, before it sends what the other waits for.  The exit status is 1 where
a verdict is not the one that is known; seconds (medians over `--runs`) are shown and never judged.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import median
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from tessel_core.execution import (
    ActionKind,
    Channels,
    RankActions,
    Verdict,
    check_channels,
    csv_actions,
    schedule_actions,
)
from tessel_core.formats.pytorch_csv import read_pytorch_csv
from tessel_core.model import Schedule
from tessel_core.networks import SHAPES, build_shape
from tessel_core.scheduling import solve_schedule

REACH_S = 1.0
"""For the check of 100,000 actions."""
DEVICES = 8
T = TypeVar("T")


def answered(shape: str, scheduler: str, actions: int) -> Schedule:
    """A schedule of so many actions at least, roughly."""
    plan = build_shape(shape, replace(SHAPES[shape].defaults, devices=DEVICES, capacity=DEVICES))
    fewer = solve_schedule(scheduler, plan, 8).solution
    assert fewer is not None
    each = sum(map(len, schedule_actions(fewer).values())) / 8
    report = solve_schedule(scheduler, plan, int(actions / each) + 1)
    assert report.solution is not None
    return report.solution


def as_csv(schedule: Schedule) -> bytes:
    """A V's schedule in PyTorch's words, with sends and receives where ours are."""
    rows = []
    for mine in schedule_actions(schedule).values():
        cells = []
        for action in mine:
            block, m = re.findall(r"([FB]\d+) #(\d+)", action.text)[0]
            way, stage = block[0], int(block[1:])
            if action.kind is ActionKind.LOCAL:
                cells.append(f"{stage}{way}{m}")
            elif action.kind is ActionKind.SEND:
                cells.append(f"{stage}SEND_{way}{m}")
            else:
                cells.append(f"{stage + (1 if way == 'F' else -1)}RECV_{way}{m}")
        rows.append(",".join(cells))
    return "\n".join(rows).encode()


def spoiled(actions: RankActions) -> RankActions:
    """Past the middle, a rank receives a tensor before it sends the one that its maker waits for."""
    found = {rank: list(mine) for rank, mine in actions.items()}
    mine = found[DEVICES // 2]
    at = next(
        i
        for i in range(len(mine) // 2, len(mine))
        if mine[i].kind is ActionKind.SEND and mine[i].ranks == (DEVICES // 2 + 1,)
    )
    back = next(
        i for i in range(at, len(mine)) if mine[i].kind is ActionKind.RECEIVE and mine[i].ranks == (DEVICES // 2 + 1,)
    )
    mine.insert(at, mine.pop(back))
    return found


def timed(call: Callable[[], T], runs: int) -> tuple[float, T]:
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        found = call()
        seconds.append(time.perf_counter() - began)
    return median(seconds), found


def orders(size: int, runs: int) -> Iterator[tuple[str, float, RankActions, int]]:
    """Name, seconds to derive, actions, and of how many the shortest circle is."""
    pipeline, sharded = answered("v-shape", "1f1b", size), answered("m-shape", "1f1b+", size)
    text = as_csv(pipeline)
    seconds, actions = timed(lambda: schedule_actions(pipeline), runs)
    yield "1F1B on a V", seconds, actions, 0
    yield "1F1B on a V, spoiled", seconds, spoiled(actions), 2
    seconds, actions = timed(lambda: schedule_actions(sharded), runs)
    yield "1F1B+ on an M", seconds, actions, 0
    seconds, actions = timed(lambda: csv_actions(read_pytorch_csv(text, "1f1b.csv")), runs)
    yield "1F1B as CSV", seconds, actions, 0
    yield "1F1B as CSV, spoiled", seconds, spoiled(actions), 2


def rows(size: int, runs: int) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Per order, kind of channels and capacity, what is found and how long it takes."""
    reach = f"{REACH_S:.0f}" if size == 100_000 else ""
    for name, derive_s, actions, circle in orders(size, runs):
        count = f"{sum(map(len, actions.values())):,}"
        for channels, capacity in product(Channels, (0, 2)):
            check_s, found = timed(partial(check_channels, actions, channels, capacity), runs)
            seconds = f"{derive_s:.2f}", f"{check_s:.2f}"
            right = found.verdict is Verdict.CIRCLE if circle else found.proceeds
            cells = name, count, channels, str(capacity), *seconds, reach, found.verdict
            yield cells, right and len(found.places) == circle


def main() -> int:
    """Print the table; 1 where a verdict is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    names = ("order", "actions", "channels", "capacity", "derive s", "check s", "reach s", "verdict", "")
    table = Table(*names, title="Hang certificate", title_justify="left", box=None, header_style="bold")
    wrong = 0
    size, runs = (10_000, 1) if arguments.small else (100_000, arguments.runs)
    for cells, right in rows(size, runs):
        wrong += not right
        table.add_row(*cells, "ok" if right else "[red]WRONG[/red]")
    Console(width=130).print(table)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
