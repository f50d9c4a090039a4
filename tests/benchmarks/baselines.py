"""Benchmark of the published schedules: idle time and memory, compared with the publications and with our searches.

    python tests/benchmarks/baselines.py              # half an hour on two cores, most of it searching
    python tests/benchmarks/baselines.py --no-search  # seconds
    python tests/benchmarks/baselines.py --peer DIR   # DIR: a checkout of the published zero-bubble generators

Bubbles are shares of the makespan and of the steady state, as docs/reference/numbers.md defines them. Without `--peer`,
the figures of the published generators are those of an earlier measurement. With it, their orders are generated again
and timed on the same plan. The searches get the peak memory of the published schedule. The exit status is 1 if a
schedule idles or holds more than its publication says. Results of the searches are shown and not judged.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tessel_core.model import MicroBatchPlan, Schedule, ScheduleReport
from tessel_core.networks import SHAPES, build_shape
from tessel_core.scheduling import SCHEDULERS, solve_schedule
from tessel_core.scheduling.order import Run, merge_device_orders, run_in_order
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.scheduling.time_optimal import TimeOptimalConfig

DEVICES = (4, 8)
MICRO_BATCHES = (8, 16, 32)


@dataclass(frozen=True, slots=True)
class Times:
    """Times of the passes of one stage, and of a hop from one device to another."""

    forward: int
    backward: int
    weight: int
    hop: int


UNIT = Times(1, 1, 1, 0)
MEASURED = Times(18_522, 18_086, 9_337, 601)
"""Times in microseconds that were profiled and published with the zero-bubble schedules."""


@dataclass(frozen=True, slots=True)
class Case:
    """A published schedule on its shape, with p devices and n micro-batches."""

    name: str
    shape: str
    most_idle: Callable[[int, int], Fraction | int] | None
    """Published idle time (makespan - n x work) in unit times, or None if none is published."""
    most_held: Callable[[int, int], Fraction | int]
    """Published peak of the fullest device in slots."""

    def plan(self, devices: int, times: Times) -> MicroBatchPlan:
        """Build the plan with ample memory. A backward pass that is not split takes the time of both halves."""
        shape = SHAPES[self.shape]
        split = "weight" not in shape.unused
        backward = times.backward if split else times.backward + times.weight
        parameters = replace(
            shape.defaults,
            devices=devices,
            forward=times.forward,
            backward=backward,
            weight=times.weight,
            capacity=10**6,
        )
        plan = build_shape(shape.name, parameters)
        place = {block.name: block.devices for block in plan.blocks}
        hops = tuple(
            replace(dep, lag=times.hop if place[dep.predecessor] != place[dep.successor] else 0)
            for dep in plan.dependencies
        )
        return replace(plan, dependencies=hops)


CASES = (
    Case("sequential", "v-shape", None, lambda p, n: 1),
    Case("gpipe", "v-shape", lambda p, n: 3 * (p - 1), lambda p, n: n),
    Case("1f1b", "v-shape", lambda p, n: 3 * (p - 1), lambda p, n: p),
    Case("1f1b+", "m-shape", None, lambda p, n: p),
    Case("interleaved", "loop", lambda p, n: 3 * (p - 1), lambda p, n: 2 * p + p - 1),
    Case("chimera", "x-shape", lambda p, n: (p - 2) * (2 * n // p + 1), lambda p, n: p),
    Case("dualpipe", "split-x", lambda p, n: p - 2, lambda p, n: p + 1),
    Case("zb-h1", "split-v", lambda p, n: p - 1, lambda p, n: p),
    Case("zb-h2", "split-v", lambda p, n: p - 1, lambda p, n: 2 * p - 1),
    Case("zb-v", "zb-v", lambda p, n: p - 1, lambda p, n: 4 * p),
    Case("v-half", "zb-v", lambda p, n: 3 * (p - 1), lambda p, n: 4 * ((p + 2) // 2)),
    Case("v-min", "zb-v", lambda p, n: 4 * (p - 1), lambda p, n: 4 * ((p + 4) // 3)),
)

# Measured bubbles (shares of the makespan) of the published generators. ZB-1p and ZB-2p stand for ZB-H1 and ZB-H2.
KNOWN = {
    (UNIT, 4, 8): {"1f1b": 0.273, "zb-h1": 0.111, "zb-h2": 0.111, "zb-v": 0.059},
    (UNIT, 4, 32): {"1f1b": 0.086, "zb-h1": 0.030, "zb-h2": 0.030, "zb-v": 0.015},
    (UNIT, 8, 16): {"1f1b": 0.304, "zb-h1": 0.127, "zb-h2": 0.127, "zb-v": 0.068},
    (UNIT, 8, 32): {"1f1b": 0.180, "zb-h1": 0.068, "zb-h2": 0.068, "zb-v": 0.035},
    (MEASURED, 8, 32): {"1f1b": 0.198, "zb-h1": 0.124, "zb-h2": 0.083, "zb-v": 0.055},
}
PEERS = ("1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min")

# Runs a published generator unchanged and prints the order of each device. Two packages of which it only uses types
# are replaced by stand-ins.
_GENERATE = """
import contextlib, importlib, io, json, sys, types
folder, name, p, n, forward, backward, weight, hop = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
package = ""
for part in "megatron.core.pipeline_parallel.zerobubble.scheduler".split("."):
    package, folder = f"{package}.{part}".lstrip("."), f"{folder}/{part}"
    sys.modules[package] = types.ModuleType(package)
    sys.modules[package].__path__ = [folder]
sys.modules["torch"] = types.SimpleNamespace(Tensor=object)
sys.modules["pulp"] = types.SimpleNamespace(value=lambda number: number)
load = lambda module: importlib.import_module(f"{package}.{module}")
costs = [float(forward), float(backward), float(weight), float(hop)]

def config(chunks, limit=None):
    held = dict(mem_f=[1] * p, mem_b=[0] * p, mem_w=[-1] * p, max_mem=limit and [limit] * p)
    times = dict(cost_f=[costs[0]] * p, cost_b=[costs[1]] * p, cost_w=[costs[2]] * p, cost_comm=costs[3])
    return load("graph").GraphConfig(**held, **times, max_chunks=chunks, n_stages=p, n_micro=n)

made = {
    "1f1b": lambda: load("basic1f1b").create_schedule(config(1)),
    "interleaved": lambda: load("vpp").create_schedule(config(2)),
    "zb-h1": lambda: load("zb").create_schedule(config(1, p)),
    "zb-h2": lambda: load("zb").create_schedule(config(1, 2 * p - 1)),
    "zb-v": lambda: load("zbv").PipelineGraph(p, n, *costs, 2, -1, -1).create_schedule(config(2)),
    "v-half": lambda: load("zbv_greedy").PipelineGraph(p, n, "half", *costs).create_schedule(config(2)),
    "v-min": lambda: load("zbv_greedy").PipelineGraph(p, n, "min", *costs).create_schedule(config(2)),
}
with contextlib.redirect_stdout(io.StringIO()):
    orders = made[name]()
print(json.dumps([[(node.type.value[0], node.layer_group_idx, node.microbatch) for node in line] for line in orders]))
"""


def published_bubble(case: Case, plan: MicroBatchPlan, micro_batches: int, times: Times, directory: Path | None) -> str:
    """Return the bubble of the published generator, or '' if there is none."""
    if directory is None:
        known = KNOWN.get((times, len(plan.devices), micro_batches), {}).get(case.name)
        return "" if known is None else f"{known:.3f}"
    if case.name not in PEERS:
        return ""
    numbers = (len(plan.devices), micro_batches, times.forward, times.backward, times.weight, times.hop)
    command = [sys.executable, "-c", _GENERATE, str(directory), case.name, *map(str, numbers)]
    output = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
    orders: list[list[Run]] = [
        [(plan.block_index(f"{kind}{stage}"), m) for kind, stage, m in line] for line in json.loads(output)
    ]
    starts = run_in_order(plan, micro_batches, merge_device_orders(plan, orders))
    return f"{Schedule.from_starts(plan, starts).bubble_rate:.3f}"


def searched(plan: MicroBatchPlan, micro_batches: int, published: ScheduleReport) -> Iterator[str]:
    """Yield the makespan of each search within the published schedule's memory, and by how much it is longer."""
    assert published.peak_memory is not None
    assert published.makespan is not None
    limited = plan.with_capacity(max(published.peak_memory))
    for name, config in (("tessel", TesselConfig(polish=10.0)), ("time-optimal", TimeOptimalConfig(time_limit=10.0))):
        makespan = solve_schedule(name, limited, micro_batches, config).makespan
        assert makespan is not None
        yield f"{makespan}" + (f" (+{makespan - published.makespan})" if makespan > published.makespan else "")


def rows(
    times: Times, devices: tuple[int, ...], counts: tuple[int, ...], arguments: argparse.Namespace
) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield a row for each case, number of devices and number of micro-batches."""
    for case in CASES:
        for p in devices:
            for n in counts:
                plan = case.plan(p, times)
                if SCHEDULERS[case.name].why_not(plan, n):
                    continue
                yield row(case, plan, n, times, arguments)


def row(
    case: Case, plan: MicroBatchPlan, n: int, times: Times, arguments: argparse.Namespace
) -> tuple[tuple[str, ...], bool]:
    """Return the cells of one row, and whether the schedule is as good as published."""
    p = len(plan.devices)
    report = solve_schedule(case.name, plan, n)
    schedule, steady = report.solution, report.steady_bubble_rate
    assert schedule is not None
    assert report.peak_memory is not None
    held = max(report.peak_memory)
    idle = schedule.makespan - n * plan.busiest_work
    good = held <= case.most_held(p, n)
    if times == UNIT and case.most_idle is not None:
        good = good and idle <= case.most_idle(p, n)
    cells = (
        case.name,
        f"{plan.name} × {n}",
        str(schedule.makespan),
        f"{schedule.bubble_rate:.3f}",
        "" if steady is None else f"{steady:.3f}",
        f"{held} of {case.most_held(p, n)}",
        published_bubble(case, plan, n, times, arguments.peer),
        *(searched(plan, n, report) if arguments.search else ()),
    )
    return cells, good


def main() -> int:
    """Print the tables. Return 1 if a schedule is worse than its publication says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--search", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    columns = ["schedule", "plan", "makespan", "bubble", "steady", "held", "theirs"]
    columns += ["tessel", "time-optimal"] if arguments.search else []
    tables = (
        ("Unit times: a stage's forward pass, input half and weight half last 1 each", UNIT, DEVICES, MICRO_BATCHES),
        ("Measured times: 18.522, 18.086, 9.337 ms and 0.601 ms a hop", MEASURED, (8,), (32,)),
    )
    console = Console(width=120)
    failures = 0
    for title, times, devices, counts in tables:
        table = Table(*columns, "", title=title, title_justify="left", box=None, header_style="bold")
        for cells, good in rows(times, devices, counts, arguments):
            failures += not good
            table.add_row(*cells, "ok" if good else "[red]BROKEN[/red]")
        console.print(table, "")
    console.print("all as published" if not failures else f"{failures} are worse than published")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
