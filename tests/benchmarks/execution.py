"""Whether ranks can hang, found out in how long; and schedules that run: equality, predictions, overhead.

    python tests/benchmarks/execution.py            # 100,000 actions, and what runs
    python tests/benchmarks/execution.py --small    # what CI runs
    python tests/benchmarks/execution.py --only equal|predicted|overhead|hang

Orders are derived from 1F1B on a V, from all-device blocks (1F1B+ on an M), and from the same 1F1B as PyTorch's CSV.
Spoiled ones have one rank receive, in the middle, before it sends what the other waits for.  The exit status is 1 where
a verdict is not the one that is known, or ranks and one process compute different numbers; times (medians over
`--runs`) are shown and never judged.  What runs needs the extra [torch], and a quiet machine for the times.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import TypeVar

from rich.console import Console
from rich.table import Table
from torch_steps import Steps, step_seconds

from tessel_core.deadlock import (
    ActionKind,
    Channels,
    RankActions,
    Verdict,
    check_channels,
    csv_actions,
    schedule_actions,
)
from tessel_core.execution.ranks import Ranks
from tessel_core.execution.schedule_run import RunConfig, run_schedule
from tessel_core.execution.stand_ins import SLEEP
from tessel_core.exports import EXPORTS
from tessel_core.formats.pytorch_csv import read_pytorch_csv
from tessel_core.model import MicroBatchPlan, Schedule
from tessel_core.networks import SHAPES, build_shape
from tessel_core.scheduling import SCHEDULERS, solve_schedule
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.torch_extra import why_no_torch
from tessel_core.workbench.running import run_and_report

REACH_S = 1.0
"""For the check of 100,000 actions."""
DEVICES = 8
MICRO_BATCHES = 8
SLOW = ("time-optimal", "list-scheduling")
SLEEPERS = (
    *(("v-shape", "1f1b"), ("split-v", "zb-h1"), ("zb-v", "zb-v"), ("x-shape", "chimera"), ("loop", "interleaved")),
    *(("m-shape", "1f1b+"), ("m-shape", "tessel"), ("k-shape", "tessel"), ("nn-shape", "tessel")),
)
OVERHEADS = (("v-shape", "1f1b"), ("split-v", "zb-h1"), ("zb-v", "zb-v"), ("m-shape", "1f1b+"), ("k-shape", "tessel"))
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


def scheduled(plan: MicroBatchPlan, scheduler: str, micro_batches: int) -> Schedule:
    config = TesselConfig(time_limit=2.0, polish=0.5) if scheduler == "tessel" else SCHEDULERS[scheduler].config()
    report = solve_schedule(scheduler, plan, micro_batches, config)
    assert report.solution is not None
    return report.solution


def equal_rows(ranks: Ranks) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Per shape, the schedulers that ran, and how far the worst of them is from one process."""
    for name, shape in SHAPES.items():
        for training in (True, False):
            parameters = replace(shape.defaults, devices=ranks.count, training=training)
            plan = build_shape(name, parameters).with_capacity(None)
            names = [each.name for each in SCHEDULERS.values() if each.name not in SLOW and not each.objection(plan)]
            ran = [run_schedule(scheduled(plan, each, MICRO_BATCHES), RunConfig(), ranks) for each in names]
            tensors, worst = (
                max(each.equality or (0, 0.0) for each in ran)[0],
                max(each.run.difference or 0 for each in ran),
            )
            yield (plan.name, ", ".join(names), str(tensors), f"{worst:.1e}"), all(each.run.equal for each in ran)


def predicted_rows(ranks: Ranks, runs: int) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Per schedule, its makespan with blocks that sleep for 5 ms and more, over those predicted."""
    lengths = dict[tuple[str, str], tuple[float, float, float]]()
    for shape, scheduler in SLEEPERS:
        plan = build_shape(shape, replace(SHAPES[shape].defaults, devices=ranks.count))
        schedule = scheduled(plan, scheduler, MICRO_BATCHES)
        reports = [run_and_report(schedule, RunConfig(blocks=SLEEP), ranks, measure=True) for _ in range(runs)]
        by_run = median(each.ratio or 0.0 for each in reports)
        by_plan = median(each.run.makespan_ns / schedule.makespan / (each.run.tick_ns or 1) for each in reports)
        longest = median(each.run.makespan_ns for each in reports) / 1e6
        yield (plan.name, scheduler, f"{longest:.1f}", f"{by_plan:.3f}", f"{by_run:.3f}", "1.05"), True
        predicted = (each.prediction.makespan_ns for each in reports if each.prediction)
        lengths[shape, scheduler] = longest, schedule.makespan, median(predicted)
    ours, theirs = lengths["m-shape", "tessel"], lengths["m-shape", "1f1b+"]
    measured, by_plan, by_run = (mine / other for mine, other in zip(ours, theirs, strict=True))
    ratios = f"{measured:.3f}", f"{measured / by_plan:.3f}", f"{measured / by_run:.3f}"
    yield ("m-shape", "tessel : 1f1b+", *ratios, "1.03"), True


def overhead_rows(ranks: Ranks, runs: int) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Per schedule, how long a rank takes per block beside the time in which its layers compute."""
    for shape, scheduler in OVERHEADS:
        plan = build_shape(shape, replace(SHAPES[shape].defaults, devices=ranks.count))
        schedule = scheduled(plan, scheduler, 100)
        ran = [run_schedule(schedule, RunConfig(), ranks).run for _ in range(runs + 1)][1:]
        blocks = max(len(schedule.runs_on(d)) for d in range(ranks.count))
        whole = median(each.makespan_ns for each in ran) / blocks / 1e6
        inside = median(each.makespan_ns * (1 - min(each.idle)) for each in ran) / blocks / 1e6
        torchs = torch_block_ms(schedule, ranks, runs, blocks)
        beside = ("", "") if torchs is None else (f"{torchs:.3f}", f"{whole / torchs:.2f}")
        yield (plan.name, scheduler, f"{whole:.3f}", f"{inside:.3f}", f"{whole - inside:.3f}", "1", *beside), True


def torch_block_ms(schedule: Schedule, ranks: Ranks, runs: int, blocks: int) -> float | None:
    """The same blocks on PyTorch's own runtime, layers as large; None where it cannot say the schedule."""
    export, size = EXPORTS["pytorch-csv"], RunConfig()
    if export.objection(schedule):
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "schedule.csv")
        file.write_bytes(export.made(schedule, None))
        asked = Steps(str(file), schedule.micro_batches, size.width, size.samples, runs)
        return (
            median(max(each) for each in zip(*ranks.run(step_seconds, [asked] * ranks.count), strict=True))
            / blocks
            * 1e3
        )


def main() -> int:
    """Print the table; 1 where a verdict is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", choices=TABLES)
    arguments = parser.parse_args()
    size, runs = (10_000, 1) if arguments.small else (100_000, arguments.runs)
    wrong = 0
    for name, (title, columns) in TABLES.items():
        if arguments.only not in (None, name):
            continue
        if name != "hang" and why_no_torch():
            print(f"{title}: {why_no_torch()}")
            continue
        for devices in RANKS[name][: 1 if arguments.small else None]:
            table = Table(
                *columns, "", title=title.format(devices), title_justify="left", box=None, header_style="bold"
            )
            for cells, right in found(name, devices, size, runs):
                wrong += not right
                table.add_row(*cells, "ok" if right else "[red]WRONG[/red]")
            Console(width=150).print(table)
    return 1 if wrong else 0


TABLES = {
    "hang": (
        "Hang certificate",
        ("order", "actions", "channels", "capacity", "derive s", "check s", "reach s", "verdict"),
    ),
    "equal": ("Losses and gradients on {} processes", ("plan", "schedulers", "tensors", "largest difference")),
    "predicted": (
        "Blocks that sleep on {} processes",
        ("plan", "scheduler", "ms", "over the plan's", "over a first run's", "reach"),
    ),
    "overhead": (
        "A block on {} processes, ms",
        ("plan", "scheduler", "all", "computing", "overhead", "reach", "torch's all", "ours : torch"),
    ),
}
RANKS = {"hang": (0,), "equal": (2, 4), "predicted": (4,), "overhead": (2,)}


def found(name: str, devices: int, size: int, runs: int) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The rows of a table."""
    if name == "hang":
        yield from rows(size, runs)
        return
    with Ranks(devices) as ranks:
        if name == "equal":
            yield from equal_rows(ranks)
        elif name == "predicted":
            yield from predicted_rows(ranks, runs)
        else:
            yield from overhead_rows(ranks, runs)


if __name__ == "__main__":
    sys.exit(main())
