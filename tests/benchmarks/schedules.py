"""Benchmark of the schedule searches: one table per kind of question, with the target beside each figure.

    python tests/benchmarks/schedules.py              # everything, some minutes on two cores
    python tests/benchmarks/schedules.py --small      # what CI runs
    python tests/benchmarks/schedules.py --peer DIR [--peer-python PYTHON]

`DIR` is a checkout of the published Tessel code, whose Python needs z3-solver and more_itertools. With `--peer`, its
search times are compared with ours, run by run. Seconds are medians over `--runs`. The exit status is 1 if an answer (a
period, a makespan, a proof) is worse than its target. Seconds are shown and never judged.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from tessel_core.control import Control
from tessel_core.cpsat import Effort
from tessel_core.model import PERIOD, MicroBatchPlan, ScheduleReport, Status
from tessel_core.networks import SHAPES, build_shape
from tessel_core.samples import list_samples, load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.search.capacity import least_capacity
from tessel_core.scheduling.tessel import TesselConfig

MICRO_BATCHES = 32
SHORT = {
    "V": "v-shape",
    "X": "x-shape",
    "M": "m-shape",
    "NN": "nn-shape",
    "NN-eager": "nn-eager",
    "K": "k-shape",
    "finetune": "finetune",
    "AlphaFold": "alphafold",
    "split V": "split-v",
    "ZB-V": "zb-v",
}
# (shape, devices, capacity, target for the makespan of 32 micro-batches)
MAKESPANS = (
    ("V", 4, 4, 140),
    ("X", 4, 4, 262),
    ("M", 4, 6, 204),
    ("NN", 4, 6, 268),
    ("NN-eager", 4, 5, 268),
    ("K", 4, 3, 196),
    ("finetune", 4, 5, 137),
    ("AlphaFold", 4, 6, 134),
    ("split V", 4, 4, 99),
    ("ZB-V", 4, 16, 195),
    ("V", 8, 8, 156),
    ("M", 8, 12, 220),
    ("NN", 8, 12, 284),
    ("K", 8, 8, 204),
    ("split V", 8, 8, 103),
    ("ZB-V", 8, 32, 199),
    ("X", 8, 8, 274),
)
LARGE = (("V", 16, 16), ("V", 32, 32), ("V", 64, 64), ("ZB-V", 16, 64))
# (shape, devices, capacity, target for the period per micro-batch). The last three have an infimum that no repetend
# attains, so their targets are those of repetends of about 100 micro-batches.
TIGHT = (
    ("V", 4, 3, Fraction(16, 3)),
    ("V", 4, 2, Fraction(8)),
    ("V", 8, 5, Fraction(32, 5)),
    ("V", 8, 6, Fraction(16, 3)),
    ("finetune", 4, 3, Fraction(5)),
    ("AlphaFold", 4, 3, Fraction(4)),
    ("NN", 4, 5, Fraction(17, 2)),
    ("NN", 4, 4, Fraction(9)),
    ("V", 8, 7, Fraction(32, 7)),
    ("M", 4, 4, Fraction(301, 50)),
    ("M", 4, 3, Fraction(727, 99)),
    ("finetune", 4, 4, Fraction(401, 100)),
)
# (shape, capacity, micro-batches of the lazy search or None for the fast one, name of the shape in the published code)
PEER = (
    ("V", 4, 4, "vshape"),
    ("X", 4, 3, "xshape"),
    ("K", 6, 3, "kshape"),
    ("finetune", 6, 6, "finetune"),
    ("V", 20, None, "vshape"),
    ("X", 20, None, "xshape"),
    ("M", 20, None, "mshape"),
    ("NN", 20, None, "nnshape"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: its cells, and whether the answer reaches its target."""

    cells: tuple[str, ...]
    good: bool


def plan_of(short: str, devices: int, capacity: int) -> MicroBatchPlan:
    """Return a shape with its published times on a number of devices with a capacity."""
    shape = SHAPES[SHORT[short]]
    return build_shape(shape.name, replace(shape.defaults, devices=devices, capacity=capacity))


def solved(plan: MicroBatchPlan, runs: int, **options: float) -> tuple[ScheduleReport, float, float]:
    """Solve the plan `runs` times. Return the last report and the median seconds of phase 1 and of the whole search."""
    config = TesselConfig(objective=PERIOD, **options)  # type: ignore[arg-type]
    reports = [solve_schedule("tessel", plan, MICRO_BATCHES, config) for _ in range(runs)]
    repetend_s = median(report.repetend_s or 0.0 for report in reports)
    return reports[-1], repetend_s, median(report.wall_s for report in reports)


def makespans(runs: int, small: bool) -> Iterator[Row]:
    """Yield rows about period and makespan. Both must be proved, by a schedule that keeps the repetend."""
    for short, devices, capacity, reach in MAKESPANS:
        if small and devices > 4:
            continue
        report, repetend_s, wall_s = solved(plan_of(short, devices, capacity), runs, polish=5.0)
        assert report.solution is not None
        good = (
            report.status is Status.PROVED_OPTIMAL
            and report.solution.makespan <= reach
            and report.solution.makespan == report.makespan_bound
            and report.solution.repetend is not None
        )
        yield Row(
            (
                f"{short} {devices} @{capacity}",
                f"{report.period_per_micro_batch} ({report.period_bound})",
                f"{repetend_s:.2f}",
                f"{report.makespan} ({report.makespan_bound})",
                str(reach),
                f"{wall_s:.2f}",
                "2" if devices == 4 else "10",
            ),
            good,
        )


def large(runs: int, small: bool) -> Iterator[Row]:
    """Yield rows about the least period on many devices, with proof."""
    for short, devices, capacity in LARGE[: 1 if small else None]:
        report, repetend_s, _ = solved(plan_of(short, devices, capacity), runs, polish=0.0)
        reach = {16: "2", 32: "2", 64: "10"}[devices]
        proved = report.status is Status.PROVED_OPTIMAL
        yield Row((f"{short} {devices} @{capacity}", str(report.period), f"{repetend_s:.2f}", reach), proved)


def tight(runs: int, small: bool) -> Iterator[Row]:
    """Yield rows about the period per micro-batch if memory is tight.

    It must be proved optimal, or no repetend may attain the bound.
    """
    for short, devices, capacity, reach in TIGHT[: 6 if small else None]:
        plan = plan_of(short, devices, capacity)
        report, repetend_s, _ = solved(plan, runs, polish=0.0)
        period = report.period_per_micro_batch
        assert period is not None
        settled = report.status is Status.PROVED_OPTIMAL or report.period_infimum is not None
        yield Row(
            (
                f"{short} {devices} @{capacity}",
                str(period),
                str(reach),
                str(report.period_bound),
                f"{float(1 - report.period_bound / period):.1%}",
                str(report.unroll),
                f"{repetend_s:.2f}",
                "5",
            ),
            settled and period <= reach,
        )


def with_fine_costs(plan: MicroBatchPlan, seed: int, stretch: int) -> MicroBatchPlan:
    """Return the plan in nanoseconds: a step is a millisecond ±15 %, and lags are up to a fifth of a step."""
    chance = random.Random(seed)
    blocks = tuple(
        replace(block, duration=round(block.duration * 1e6 * chance.uniform(0.85, 1.15)) * stretch)
        for block in plan.blocks
    )
    lags = tuple(replace(dep, lag=round(1e6 * chance.uniform(0, 0.2)) * stretch) for dep in plan.dependencies)
    return replace(plan, blocks=blocks, dependencies=lags, time_unit="ns")


def fine(runs: int, small: bool) -> Iterator[Row]:
    """Yield rows about fine costs and ample memory, where the period must equal the busiest device's work."""
    for short in list(SHORT)[: 3 if small else None]:
        for stretch in (1, 100):
            plan = with_fine_costs(plan_of(short, 8, 1000), seed=8, stretch=stretch)
            report, repetend_s, _ = solved(plan, runs, polish=0.0)
            exact = report.period_per_micro_batch == plan.busiest_work
            cells = (
                f"{short} 8, spans ×{stretch}",
                str(report.period),
                str(plan.busiest_work),
                f"{repetend_s:.2f}",
                "3",
            )
            yield Row(cells, exact and report.status is Status.PROVED_OPTIMAL)


def capacities(runs: int, small: bool) -> Iterator[Row]:
    """Yield rows about the least capacity at which a schedule exists, for the slowest samples."""
    measured = []
    for sample in list_samples():
        plan, times = load_sample(sample.name), []
        for _ in range(runs):
            began = time.perf_counter()
            least = least_capacity(plan, Effort(5, 2, 0), Control(5))
            times.append(time.perf_counter() - began)
        measured.append((median(times), sample.name, least))
    for seconds, name, least in sorted(measured, reverse=True)[:5]:
        yield Row((name, str(least), f"{seconds:.3f}", "0.5"), least is not None)


def time_optimal(runs: int, small: bool) -> Iterator[Row]:
    """Yield rows about the time-optimal scheduler on four devices with four micro-batches."""
    for short in ("V", "M", "K", "NN", "X"):
        plan = plan_of(short, 4, SHAPES[SHORT[short]].defaults.capacity)
        reports = [solve_schedule("time-optimal", plan, 4) for _ in range(runs)]
        last = reports[-1]
        cells = (plan.name, f"{last.makespan} ({last.makespan_bound})", f"{median(r.wall_s for r in reports):.2f}", "5")
        yield Row(cells, last.status is Status.PROVED_OPTIMAL)


def against_peer(directory: Path, python: str, runs: int) -> Iterator[Row]:
    """Yield rows about the search times of the published code and of ours, measured in turn."""
    for short, capacity, micro_batches, theirs in PEER:
        plan = plan_of(short, 4, capacity)
        ratios, their_s, our_s = [], [], []
        for _ in range(runs):
            seconds, period, makespan = run_peer(directory, python, theirs, capacity, micro_batches)
            report = solve_schedule("tessel", plan, MICRO_BATCHES)
            their_s.append(seconds)
            our_s.append((report.repetend_s or 0) + (report.completion_s or 0))
            ratios.append(their_s[-1] / our_s[-1])
        assert report.period_per_micro_batch is not None
        assert report.makespan is not None
        good = report.period_per_micro_batch <= period and report.makespan <= makespan
        yield Row(
            (
                f"{short} 4 @{capacity}, {'fast' if micro_batches is None else 'lazy'}",
                f"{median(their_s):.2f}",
                f"{median(our_s):.3f}",
                f"{median(ratios):.0f}×",
                "10×" if micro_batches is None else "50×",
                f"{period} → {report.period_per_micro_batch}",
                f"{makespan} → {report.makespan}",
            ),
            good,
        )


def run_peer(
    directory: Path, python: str, placement: str, memory: int, micro_batches: int | None
) -> tuple[float, int, int]:
    """Return search seconds, period, and makespan of 32 micro-batches of the published code within ten minutes."""
    command = [python, "examples/simulator/cases_tessel.py", f"--placement={placement}", "--ndevs=4"]
    command += [f"--memory={memory}"]
    command += ["--fast-search"] if micro_batches is None else [f"--nmicros={micro_batches}"]
    script = _UNROLL.format(argv=command[1:], micro_batches=MICRO_BATCHES)
    output = subprocess.run(
        [python, "-c", script],
        cwd=directory,
        env={"PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    ).stdout
    seconds = float(re.findall(r"search e2e : ([\d.]+) ms", output)[-1]) / 1000
    period, makespan = re.findall(r"MEASURED (\d+) (\d+)", output)[-1]
    return seconds, int(period), int(makespan)


# Runs the published script unchanged. Then prints two figures of its schedule: the length that one more micro-batch
# adds, and the length of 32 micro-batches.
_UNROLL = """
import runpy, sys
sys.argv = {argv!r}
schedule = runpy.run_path(sys.argv[0], run_name="__main__")["schedule"]
least = max(block.mid for block in schedule.all_blocks()) + 1
lengths = [schedule.unroll(n).nsteps for n in (least + 8, least + 9, {micro_batches})]
print("MEASURED", lengths[1] - lengths[0], lengths[2])
"""


TABLES: tuple[tuple[str, tuple[str, ...], Callable[[int, bool], Iterator[Row]]], ...] = (
    (
        "Period and makespan of 32 micro-batches, proven, repetend kept",
        ("plan @capacity", "period (bound)", "repetend s", "makespan (bound)", "reach", "all s", "reach s"),
        makespans,
    ),
    ("Least period on many devices", ("plan", "period", "repetend s", "reach s"), large),
    (
        "Tight memory, per micro-batch",
        ("plan @capacity", "period", "reach", "bound", "gap", "unroll", "repetend s", "reach s"),
        tight,
    ),
    ("Fine costs, in nanoseconds", ("plan", "period", "busiest work", "repetend s", "reach s"), fine),
    ("Least feasible capacity, slowest samples", ("sample", "capacity", "s", "reach s"), capacities),
    ("Time-optimal, 4 micro-batches", ("plan", "makespan (bound)", "s", "reach s"), time_optimal),
)


def main() -> int:
    """Print the tables. Return 1 if an answer misses its target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--only-peer", action="store_true")
    arguments = parser.parse_args()
    runs = 1 if arguments.small else arguments.runs
    solve_schedule("tessel", plan_of("V", 4, 4), 2)  # imports the solver before anything is timed
    tables = [(title, columns, rows(runs, arguments.small)) for title, columns, rows in TABLES]
    if arguments.peer is not None:
        columns = ("plan @capacity", "theirs s", "ours s", "ratio", "reach", "period", "makespan")
        peer = ("Against the published code", columns, against_peer(arguments.peer, arguments.peer_python, runs))
        tables = [peer] if arguments.only_peer else [*tables, peer]
    console = Console(width=120)
    failures = 0
    for title, columns, rows in tables:
        table = Table(*columns, "", title=title, title_justify="left", box=None, header_style="bold")
        for row in rows:
            failures += not row.good
            table.add_row(*row.cells, "ok" if row.good else "[red]WORSE[/red]")
        console.print(table, "")
    console.print("all targets reached" if not failures else f"{failures} answers miss their targets")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
