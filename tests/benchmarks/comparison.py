"""The searched schedule against list scheduling and each published order that applies to the same plan and fits.

    python tests/benchmarks/comparison.py                     # all samples; some tens of minutes on two cores
    python tests/benchmarks/comparison.py v-shape-4 zb-v-8 --micro-batches 8,32

One row a sample and number of micro-batches: period and makespan of `tessel`, of the best published schedule or list
(200 restarts) for each, and the ratios.  Where one second of polish is not enough, ten are used.  The exit status is 1
where the searched period or makespan is above a published one or a list.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from fractions import Fraction

from rich.console import Console
from rich.table import Table

from tessel_core.model import MicroBatchPlan, ScheduleReport
from tessel_core.samples import list_samples, load_sample
from tessel_core.scheduling import BASELINES, solve_schedule
from tessel_core.scheduling.list_scheduling import LIST_SCHEDULING
from tessel_core.scheduling.tessel import TesselConfig

POLISH_S = (1.0, 10.0)


@dataclass(frozen=True, slots=True)
class Best:
    """The least of something over the published schedules, and whose it is."""

    amount: Fraction
    scheduler: str


def published(plan: MicroBatchPlan, micro_batches: int) -> list[ScheduleReport]:
    """The reports of every published schedule that applies and fits, and of list scheduling."""
    names = [each.name for each in (LIST_SCHEDULING, *BASELINES.values()) if not each.why_not(plan, micro_batches)]
    reports = [solve_schedule(name, plan, micro_batches) for name in names]
    return [report for report in reports if report.solution is not None]


def best_of(reports: list[ScheduleReport], what: str) -> Best | None:
    """The least `what` among the reports."""
    found = [Best(Fraction(getattr(r, what)), r.solver) for r in reports if getattr(r, what) is not None]
    return min(found, key=lambda best: best.amount, default=None)


def not_above(report: ScheduleReport, makespan: Best | None, period: Best | None) -> bool:
    """Whether neither of the searched amounts is worse."""
    if report.makespan is None or report.period_per_micro_batch is None:
        return makespan is None
    return (makespan is None or report.makespan <= makespan.amount) and (
        period is None or report.period_per_micro_batch <= period.amount
    )


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", nargs="*", help="all by default")
    parser.add_argument("--micro-batches", default="8,32,128")
    parser.add_argument("--seconds", type=float, default=20.0, help="wall time of each search, 20 by default")
    arguments = parser.parse_args()
    console = Console(width=150, highlight=False)
    table = Table("sample", "N", "period", "best published", "makespan", "best published", "ratio", "took, s", "")
    worse = 0
    for name in arguments.samples or [sample.name for sample in list_samples()]:
        plan = load_sample(name)
        for count in map(int, arguments.micro_batches.split(",")):
            reports = published(plan, count)
            makespan, period = best_of(reports, "makespan"), best_of(reports, "period_per_micro_batch")
            for polish in POLISH_S:
                report = solve_schedule(
                    "tessel", plan, count, TesselConfig(polish=polish, time_limit=arguments.seconds + polish)
                )
                good = not_above(report, makespan, period)
                if good:
                    break
            worse += not good
            table.add_row(*row(name, count, report, period, makespan), "" if good else "WORSE")
            sys.stderr.write("." if good else f"\n{name} {count} worse\n")
            sys.stderr.flush()
    console.print(table)
    console.print(f"{worse} worse than a published schedule or a list")
    return 1 if worse else 0


def row(name: str, count: int, report: ScheduleReport, period: Best | None, makespan: Best | None) -> tuple[str, ...]:
    """The cells of one question."""

    def told(best: Best | None) -> str:
        return "none" if best is None else f"{float(best.amount):.8g} ({best.scheduler})"

    ratio = "" if makespan is None or not report.makespan else f"{float(makespan.amount / report.makespan):.3f}"
    searched = "none" if report.period_per_micro_batch is None else f"{float(report.period_per_micro_batch):.8g}"
    took = f"{report.wall_s:.1f}"
    return name, str(count), searched, told(period), str(report.makespan), told(makespan), ratio, took


if __name__ == "__main__":
    sys.exit(main())
