"""How fast schedules are written: the Chrome trace beside a plain one, and every other export that needs no browser.

    python tests/benchmarks/exports.py            # 100,000 runs
    python tests/benchmarks/exports.py --small    # what CI runs

The plain trace is what one writes first: a dict an event, and `json.dumps` of them all.  The exit status is 1 where the
two traces differ; seconds (medians over `--runs`, the two in turn) and memory are shown and never judged.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median

from rich.console import Console
from rich.table import Table

from tessel_core.exports import EXPORTS, export_schedule
from tessel_core.exports.chrome_trace import chrome_trace
from tessel_core.model import MemoryProfile, Schedule, ScheduleReport
from tessel_core.networks import SHAPES, build_shape
from tessel_core.scheduling import solve_schedule

REACH_S = 2.0
"""For the trace of 100,000 runs."""
KINDS = {
    "forward": "thread_state_runnable",
    "backward": "thread_state_iowait",
    "weight": "thread_state_running",
    "other": "thread_state_uninterruptible",
}


def answered(runs: int, unit: str) -> tuple[Schedule, ScheduleReport]:
    """1F1B on a V of eight devices, with as many runs."""
    shape = SHAPES["v-shape"]
    plan = replace(build_shape("v-shape", replace(shape.defaults, devices=8, capacity=8)), time_unit=unit)
    report = solve_schedule("1f1b", plan, runs // len(plan.blocks))
    assert report.solution is not None
    assert len(report.solution.phase), "known before the clock starts, as in the app"
    return report.solution, report


def plain_events(schedule: Schedule, ns: int) -> Iterator[dict[str, object]]:
    """The slices, counters and arrows of the trace as dicts; a tick lasts `ns` nanoseconds."""
    plan, profile, starts = schedule.plan, MemoryProfile.of(schedule), schedule.starts
    for d in range(len(plan.devices)):
        for row, after in zip(schedule.runs_on(d), profile.after_runs(schedule, d), strict=True):
            block, m = plan.blocks[schedule.block[row]], int(schedule.micro_batch[row])
            yield {
                "ph": "X",
                "pid": d + 1,
                "tid": d + 1,
                "ts": int(schedule.start[row]) * ns / 1000,
                "dur": block.duration * ns / 1000,
                "name": f"{block.name} #{m}",
                "cat": str(block.kind),
                "cname": KINDS[block.kind],
                "args": {
                    "block": block.name,
                    "memory": block.memory,
                    "micro_batch": m,
                    "phase": str(schedule.phase[row]),
                    "memory_after": int(after),
                },
            }
    for d in range(len(plan.devices)):
        for tick, level in zip(profile.times[d], profile.levels[d], strict=True):
            arguments = {f"{plan.memory_unit}s": int(level)}
            ts = int(tick) * ns / 1000
            yield {"ph": "C", "pid": d + 1, "tid": d + 1, "ts": ts, "name": "memory", "args": arguments}
    flow = 0
    for before, after, _ in plan.arcs:
        one, other = plan.blocks[before], plan.blocks[after]
        for receiver in [d for d in other.devices if d not in one.devices]:
            for m in range(schedule.micro_batches):
                flow += 1
                named = {"id": flow, "cat": "dependency", "name": f"{one.name} to {other.name}"}
                left = ((int(starts[m, before]) + one.duration) * ns - 1) / 1000
                sender = one.devices[0] + 1
                yield {"ph": "s", "pid": sender, "tid": sender, "ts": left, **named}
                entered = {"pid": receiver + 1, "tid": receiver + 1, "ts": int(starts[m, after]) * ns / 1000}
                yield {"ph": "f", "bp": "e", **entered, **named}


def plain_trace(schedule: Schedule, ns: int) -> bytes:
    return json.dumps({"traceEvents": list(plain_events(schedule, ns))}).encode()


def timed(call: Callable[[], bytes]) -> tuple[float, bytes]:
    began = time.perf_counter()
    data = call()
    return time.perf_counter() - began, data


def peak_share(call: Callable[[], bytes]) -> float:
    """Most memory held while the file is made, as a multiple of the file."""
    tracemalloc.start()
    data = call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / len(data)


def traces(size: int, runs: int) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Ours and the plain one, in steps and in nanoseconds."""
    for unit, ns in (("step", 1000), ("ns", 1)):
        schedule, report = answered(size, unit)
        ours_s, plain_s, same = [], [], True
        for _ in range(runs):
            seconds, ours = timed(lambda schedule=schedule, report=report: chrome_trace(schedule, report))
            ours_s.append(seconds)
            seconds, plain = timed(lambda schedule=schedule, ns=ns: plain_trace(schedule, ns))
            plain_s.append(seconds)
        events = [each for each in json.loads(ours)["traceEvents"] if each["ph"] != "M"]
        same = events == json.loads(plain)["traceEvents"]
        one, other = median(ours_s), median(plain_s)
        yield (
            (
                f"{len(schedule.start):,} runs, in {unit}",
                f"{len(events):,}",
                f"{len(ours) / 1e6:.1f}",
                f"{one:.2f}",
                f"{REACH_S:.0f}" if size == 100_000 else "",
                f"{other:.2f}",
                f"{other / one:.1f}×",
                f"{peak_share(lambda schedule=schedule, report=report: chrome_trace(schedule, report)):.2f}×",
                f"{peak_share(lambda schedule=schedule, ns=ns: plain_trace(schedule, ns)):.2f}×",
            ),
            same,
        )


def others(size: int) -> Iterator[tuple[str, ...]]:
    """Every export but pictures, once."""
    schedule, report = answered(size, "step")
    for name, export in EXPORTS.items():
        if export.is_text and not export.objection(schedule) and name != "svg":
            seconds, data = timed(lambda name=name: export_schedule(name, schedule, report))
            yield name, f"{len(schedule.start):,}", f"{len(data) / 1e6:.1f}", f"{seconds:.2f}"


def main() -> int:
    """Print the tables; 1 where the traces differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    size, runs = (10_000, 1) if arguments.small else (100_000, arguments.runs)
    console = Console(width=130)
    names = ("schedule", "events", "MB", "s", "reach s", "plain s", "ratio", "memory / file", "plain", "")
    table = Table(*names, title="Chrome trace", title_justify="left", box=None, header_style="bold")
    worse = 0
    for cells, same in traces(size, runs):
        worse += not same
        table.add_row(*cells, "ok" if same else "[red]DIFFERS[/red]")
    console.print(table, "")
    table = Table("export", "runs", "MB", "s", title="All", title_justify="left", box=None, header_style="bold")
    for row in others(size):
        table.add_row(*row)
    console.print(table, "")
    console.print("the traces hold the same events" if not worse else "the traces differ")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
