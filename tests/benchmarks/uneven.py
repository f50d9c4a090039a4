"""Benchmark on realistic plans, with uneven stages and tight memory: the search against list scheduling.

    python tests/benchmarks/uneven.py                             # three tables, about an hour on two cores
    python tests/benchmarks/uneven.py --table random --plans 8    # the first 8 of the 40 random plans
    python tests/benchmarks/uneven.py --table samples gpt-13b-v-16 evoformer-16
    python tests/benchmarks/uneven.py --table plans               # describes the random plans and solves nothing
    python tests/benchmarks/uneven.py --small                     # what CI runs, within a minute

The table `samples` has the samples on which list scheduling was better in the past, and `random` has random plans. Both
compare the search with the competitor of `list_peer.py`, which gets the same wall time and one core, in turn. The table
`real` shows how far all samples of real networks are above their bounds. The exit status is 1 if an answer misses its
target. Seconds are shown and never judged.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from statistics import median
from typing import NamedTuple

from list_peer import ListPeer
from rich.console import Console
from rich.table import Table

from tessel_core.model import MicroBatchPlan, ScheduleReport
from tessel_core.networks import SHAPES, build_shape
from tessel_core.samples import list_samples, load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.units import show_time

MICRO_BATCHES = 32
LONG = 500
"""Micro-batches of a long list schedule. Its makespan divided by this number serves as the period."""

SAMPLES = (
    "gpt-175b-split-v-16",
    "gpt-175b-split-v-8",
    "evoformer-16",
    "gpt-175b-v-16",
    "gpt-6.7b-split-v-8",
    "gpt-13b-split-v-8",
    "gpt-13b-v-16",
    "evoformer-8",
    "alphafold-8",
    "gpt-6.7b-v-8",
    "gpt-6.7b-split-v-16",
    "gpt-13b-v-8",
    "gpt-6.7b-v-16",
    "gpt-175b-v-8",
)
CLEARLY, AT_LEAST = 0.01, 3
"""The search must be better than list scheduling by this share, on this many samples."""
MEDIAN, LARGEST = 0.03, 0.15
"""Targets for the median and largest distance of real samples from their bounds, as shares."""

PLANS = 40
UNEVEN_SHAPES = ("v-shape", "split-v", "m-shape", "k-shape", "zb-v")
SIZES = (8, 12, 16, 24, 32, 48, 64)
MAX_RUNS = 12_500
# Grain -> (ticks of a forward block at a factor of 1, time unit).
GRAINS = {"steps": (1_000, "step"), "fine": (1_000_000, "ns"), "coarse": (2, "step")}
SMALL_SAMPLES = ("alphafold-8", "gpt-175b-v-8")
SMALL_REAL = ("gpt-13b-v-4", "evoformer-4", "flava-4")
SMALL_RANDOM, SMALL_S = 3, 3.0


class Question(NamedTuple):
    """A plan and a number of micro-batches."""

    plan: MicroBatchPlan
    micro_batches: int


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: its cells, and whether the answer reaches its target, or None without a target."""

    cells: tuple[str, ...]
    good: bool | None = None


def uneven(number: int) -> Question:
    """Return the random plan with a number: a shape whose devices are 0.5 to 2 times as slow. It is always the same.

    The memory is between half of what 1F1B needs and all of it.
    """
    chance = random.Random(f"uneven {number}")
    shape = SHAPES[UNEVEN_SHAPES[number % len(UNEVEN_SHAPES)]]
    grain = list(GRAINS)[number % len(GRAINS)]
    unit, time_unit = GRAINS[grain]
    # Every shape occurs with every size, and the first few plans differ in both.
    devices = SIZES[(3 * (number % len(UNEVEN_SHAPES)) + number // len(UNEVEN_SHAPES)) % len(SIZES)]
    share = chance.choice((0.5, chance.uniform(0.5, 1.0), chance.uniform(0.5, 1.0)))
    # In ZB-V, each of the two chunks of a device holds 2 slots per micro-batch.
    capacity = round(share * devices * (4 if shape.name == "zb-v" else 1))
    parameters = replace(
        shape.defaults, devices=devices, backward=2 - ("weight" not in shape.unused), capacity=capacity
    )
    even = build_shape(shape.name, parameters)
    factors = [chance.uniform(0.5, 2.0) for _ in range(devices)]
    together = chance.uniform(0.5, 2.0)
    most_lag = chance.choice((0.0, 0.3))
    blocks = []
    for block in even.blocks:
        factor = factors[block.devices[0]] if len(block.devices) == 1 else together
        blocks.append(replace(block, duration=max(1, round(block.duration * unit * factor))))
    homes = {block.name: block.devices for block in blocks}
    lags = tuple(
        replace(arc, lag=round(unit * chance.uniform(0, most_lag)))
        if homes[arc.predecessor] != homes[arc.successor]
        else arc
        for arc in even.dependencies
    )
    count = chance.choice([n for n in (32, 64, 128) if n * len(blocks) <= MAX_RUNS])
    name = f"{number:02d} {shape.name} {devices} @{capacity} {grain}{' lags' if most_lag else ''}"
    return Question(replace(even, name=name, blocks=tuple(blocks), dependencies=lags, time_unit=time_unit), count)


@cache
def sample_report(name: str, seconds: float) -> ScheduleReport:
    """Solve a sample, once for all tables."""
    return solve_schedule("tessel", load_sample(name), MICRO_BATCHES, TesselConfig(time_limit=seconds))


def above(report: ScheduleReport) -> float:
    """Return how far the makespan is above its bound, as a share. Infinite without a schedule."""
    return float("inf") if report.makespan is None else report.makespan / report.makespan_bound - 1


def samples(names: list[str], seconds: float) -> Iterator[Row]:
    """Yield rows that compare the search with list scheduling of the same wall time, on samples."""
    clearly = 0
    for name in names:
        plan, report = load_sample(name), sample_report(name, seconds)
        reach = ListPeer(plan).evolve(MICRO_BATCHES, seconds).schedule.makespan
        now = float("inf") if report.makespan is None else report.makespan
        clearly += now <= reach * (1 - CLEARLY)
        shown = "none" if report.makespan is None else show_time(report.makespan, plan.time_unit)
        cells = (name, show_time(reach, plan.time_unit), shown, f"{now / reach:.4f}", f"{above(report):.1%}")
        yield Row((*cells, f"{report.wall_s:.1f}"), now <= reach)
    if len(names) == len(SAMPLES):
        yield Row((f"better by {CLEARLY:.0%}", str(AT_LEAST), str(clearly), "", "", ""), clearly >= AT_LEAST)


def random_plans(numbers: list[int], seconds: float) -> Iterator[Row]:
    """Yield rows that compare the search with list scheduling of the same wall time, on random uneven plans."""
    for number in numbers:
        plan, count = uneven(number)
        report = solve_schedule("tessel", plan, count, TesselConfig(time_limit=seconds))
        peer = ListPeer(plan, seed=number)
        answer = peer.evolve(count, seconds)
        theirs, steady = answer.schedule.makespan, Fraction(peer.long_makespan(answer, LONG, seconds), LONG)
        ours = float("inf") if report.makespan is None else report.makespan
        period = report.period_per_micro_batch
        shown = ("none", "") if period is None else (f"{float(period):,.2f}", f"{float(period / steady):.3f}")
        yield Row(
            (
                plan.name,
                str(count),
                f"{ours:,}",
                f"{theirs:,}",
                f"{ours / theirs:.3f}",
                f"{above(report):.1%}",
                shown[0],
                f"{float(steady):,.2f}",
                shown[1],
                f"{float(report.period_bound):,.2f}",
                f"{report.wall_s:.0f} + {answer.wall_s:.0f}",
            ),
            ours <= theirs and period is not None and period <= steady,
        )


def real(names: list[str], seconds: float) -> Iterator[Row]:
    """Yield rows about the distance of real samples from their bounds."""
    distances = []
    for name in names:
        report = sample_report(name, seconds)
        distances.append(above(report))
        makespan = "none" if report.makespan is None else f"{report.makespan / 1e9:.3f}"
        bound = f"{report.makespan_bound / 1e9:.3f}"
        yield Row((name, makespan, bound, f"{distances[-1]:.1%}", "", f"{report.wall_s:.1f}"))
    yield Row(("median", "", "", f"{median(distances):.1%}", f"{MEDIAN:.0%}", ""), median(distances) <= MEDIAN)
    yield Row(("largest", "", "", f"{max(distances):.1%}", f"{LARGEST:.0%}", ""), max(distances) <= LARGEST)


def plans(numbers: list[int], seconds: float) -> Iterator[Row]:
    """Yield rows that describe the random plans."""
    for number in numbers:
        plan, count = uneven(number)
        longest = max(block.duration for block in plan.blocks)
        shortest = min(block.duration for block in plan.blocks)
        cells = (str(len(plan.devices)), str(len(plan.blocks)), str(count), str(len(plan.blocks) * count))
        mean = sum(plan.work) / len(plan.work)
        yield Row((plan.name, *cells, f"{shortest:,} … {longest:,}", f"{plan.busiest_work / mean:.2f}"))


@dataclass(frozen=True, slots=True)
class Kind:
    """A table: its title, its columns, and a function from names or numbers and seconds per search to rows."""

    title: str
    columns: tuple[str, ...]
    rows: Callable[[list[str], float], Iterator[Row]] | Callable[[list[int], float], Iterator[Row]]


TABLES = {
    "samples": Kind(
        "Samples on which list scheduling was better in the past: makespan of 32 micro-batches",
        ("sample", "list", "makespan", "ratio", "over bound", "s"),
        samples,
    ),
    "random": Kind(
        f"Random uneven plans against list scheduling with evolved priorities; period against {LONG} micro-batches",
        ("plan", "N", "makespan", "list", "ratio", "over bound", "period", "list", "ratio", "bound", "s"),
        random_plans,
    ),
    "real": Kind(
        "All samples of real networks: makespan of 32 micro-batches over its bound",
        ("sample", "makespan, s", "bound", "over bound", "reach", "s"),
        real,
    ),
    "plans": Kind(
        "The random uneven plans",
        ("plan", "devices", "blocks", "N", "runs", "durations", "busiest / mean work"),
        plans,
    ),
}


def contents(arguments: argparse.Namespace) -> dict[str, list[str] | list[int]]:
    """Return the samples or random plans of each table to print."""
    measured = [sample.name for sample in list_samples() if load_sample(sample.name).time_unit == "ns"]
    count = min(arguments.plans or (SMALL_RANDOM if arguments.small else PLANS), PLANS)
    numbers = list(range(count))
    if arguments.small and not arguments.plans:
        numbers = sorted(range(PLANS), key=lambda number: len(uneven(number).plan.blocks))[:count]
    named = arguments.samples
    every: dict[str, list[str] | list[int]] = {
        "samples": [n for n in SAMPLES if n in (named or (SMALL_SAMPLES if arguments.small else SAMPLES))],
        "random": numbers,
        "real": [n for n in measured if n in (named or (SMALL_REAL if arguments.small else measured))],
        "plans": numbers,
    }
    return {name: every[name] for name in arguments.table or ("samples", "random", "real")}


def main() -> int:
    """Print the tables. Return 1 if an answer misses its target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", nargs="*", help="samples for the tables of samples (default: all)")
    parser.add_argument("--table", action="append", choices=TABLES, help="may be repeated (default: all that solve)")
    parser.add_argument("--plans", type=int, metavar="K", help=f"only the first K of the {PLANS} random plans")
    parser.add_argument("--seconds", type=float, help="wall time of each search, 20 by default")
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    seconds = arguments.seconds or (SMALL_S if arguments.small else 20.0)
    solve_schedule("tessel", build_shape("v-shape"), 2)  # imports the solver before anything is timed
    console = Console(width=160, highlight=False)
    judged = worse = 0
    for name, what in contents(arguments).items():
        kind = TABLES[name]
        table = Table(*kind.columns, "", title=kind.title, title_justify="left", box=None, header_style="bold")
        for row in kind.rows(what, seconds):  # type: ignore[arg-type]
            judged += row.good is not None
            worse += row.good is False
            table.add_row(*row.cells, {True: "ok", False: "[red]WORSE[/red]", None: ""}[row.good])
            sys.stderr.write(f"{' · '.join(row.cells)}{' WORSE' if row.good is False else ''}\n")
            sys.stderr.flush()
        console.print(table, "")
    if judged:
        console.print("all targets reached" if not worse else f"{worse} answers miss their targets")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
