"""What the command line prints: tables for people, one JSON document for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from tessel_core.control import Progress
from tessel_core.formats.schedule_file import plain_number
from tessel_core.model import MemoryProfile, MicroBatchPlan, ScheduleReport
from tessel_core.rules import Violation
from tessel_core.samples import Sample
from tessel_core.scheduling import Answer, Comparison, Question, Row, compare
from tessel_core.units import show_time
from tessel_core.workbench.messages.comparison import WHY_NOT, comparison_columns
from tessel_core.workbench.messages.schedule import key_numbers, verdict

if TYPE_CHECKING:
    from types import TracebackType


def print_json(document: object) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


def print_notes(where: str, notes: Sequence[str]) -> None:
    """What a reader should know beside the answer, a line each on stderr."""
    for note in notes:
        sys.stderr.write(f"note: {where}: {' '.join(note.split())}\n")


def schedule_document(report: ScheduleReport) -> dict[str, object]:
    """The `--json` of `tessel schedule`; unknown values are null, times and memory in the plan's units."""
    return {
        "status": str(report.status),
        "objective_name": report.objective_name,
        "period": report.period,
        "unroll": report.unroll,
        "period_per_micro_batch": plain_number(report.period_per_micro_batch),
        "bound_per_micro_batch": plain_number(report.period_bound),
        "objective": plain_number(report.objective),
        "bound": plain_number(report.bound),
        "makespan": report.makespan,
        "makespan_bound": report.makespan_bound,
        "repetend_makespan": report.repetend_makespan,
        "steady": _steady(report),
        "bubble_rate": report.bubble_rate,
        "steady_bubble_rate": report.steady_bubble_rate,
        "peak_memory": None if report.peak_memory is None else list(report.peak_memory),
        "wall_s": report.wall_s,
        "phases": None
        if report.repetend_s is None
        else {"repetend_s": report.repetend_s, "completion_s": report.completion_s},
        "reason": report.reason,
        "least_capacity": report.least_capacity,
        "excess": _excess(report),
    }


def _excess(report: ScheduleReport) -> list[int] | None:
    if report.relaxed_solution is None:
        return None
    return list(MemoryProfile.of(report.relaxed_solution).excess)


def print_schedule(plan: MicroBatchPlan, report: ScheduleReport, *, as_json: bool) -> None:
    """A schedule report for people, or as JSON."""
    if as_json:
        print_json(schedule_document(report))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"{plan.name}, {report.solver}", style="bold")
    console.print(verdict(report, plan), soft_wrap=True)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for number in key_numbers(report):
        table.add_row(number.label, number.value, f"[dim]{number.beside}[/dim]")
    Console(highlight=False, width=max(console.width, _LONG_LINE)).print(table)


def _steady(report: ScheduleReport) -> dict[str, object] | None:
    """The steady schedule, and the period that it keeps: the least one may need more micro-batches."""
    if report.steady is None or report.steady.repetend is None:
        return None
    kept = report.steady.repetend
    return {"period": kept.period, "unroll": kept.unroll, "makespan": report.steady.makespan}


def print_comparison(comparison: Comparison, answers: Sequence[Answer], *, as_json: bool) -> None:
    """All pairs in one table, numbered as `--reference` counts them, or as a JSON list."""
    rows = compare(comparison, answers)
    if as_json:
        print_json([_pair_document(*each) for each in zip(comparison.pairs, answers, rows, strict=True)])
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    columns = comparison_columns(rows, comparison.pairs[0].plan.time_unit)
    shown = [each for each in columns if each.brief or (console.width >= _WIDE and each.heading != WHY_NOT)]
    table = Table("#", box=None, padding=(0, 1, 0, 0), header_style="bold")
    for column in shown:
        longest = max(len(word) for i in range(len(rows)) for word in [*column.heading.split(), column.shown(i)])
        narrow = None if column is shown[0] else longest
        side: Literal["left", "right"] = "right" if column.format else "left"
        table.add_column(column.heading, justify=side, width=narrow, overflow="fold")
    for i in range(len(rows)):
        table.add_row(str(i + 1), *(column.shown(i) for column in shown))
    plural = "" if comparison.micro_batches == 1 else "es"
    console.print(f"{comparison.micro_batches} micro-batch{plural}", style="bold")
    console.print(table)
    for i, row in enumerate(rows):
        if row.why_none:
            console.print(f"{i + 1}: {row.why_none}", soft_wrap=True)


def _pair_document(pair: Question, answer: Answer, row: Row) -> dict[str, object]:
    """What `tessel schedule --json` says of the pair, and how it compares."""
    return {
        "plan": pair.plan.name,
        "scheduler": pair.scheduler,
        "micro_batches": pair.micro_batches,
        "reference": row.is_reference,
        "makespan_ratio": row.makespan_ratio,
        "period_ratio": row.period_ratio,
        **({"status": None} if answer.report is None else schedule_document(answer.report)),
        "reason": row.why_none,
    }


def print_samples(kinds: Mapping[str, Sequence[Sample]], *, as_json: bool) -> None:
    """The catalogue for people, under a heading a kind of file, or as one JSON list."""
    if as_json:
        rows = [
            {**asdict(each), "path": str(each.path), "kind": kind} for kind, found in kinds.items() for each in found
        ]
        print_json(rows)
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for kind, found in kinds.items():
        table = Table(kind, "what it is", box=None, padding=(0, 2, 0, 0), header_style="bold")
        for sample in found:
            table.add_row(sample.name, sample.title)
        console.print(table)


def print_verdicts(verdicts: Sequence[tuple[str, Sequence[Violation]]], *, as_json: bool) -> None:
    """What the referee says of each file."""
    if as_json:
        print_json(
            [
                {"file": name, "valid": not violations, "violations": [asdict(violation) for violation in violations]}
                for name, violations in verdicts
            ]
        )
        return
    for name, violations in verdicts:
        sys.stdout.write(f"{name}: {'valid' if not violations else f'not valid, {len(violations)} violation(s)'}\n")
        for violation in violations[:_MOST_SHOWN]:
            sys.stdout.write(f"  {violation}\n")
        if len(violations) > _MOST_SHOWN:
            sys.stdout.write(f"  … and {len(violations) - _MOST_SHOWN} more\n")


_MOST_SHOWN = 20
_LONG_LINE = 100
"""Columns of the longest line of key numbers: a terminal breaks it better than a table does."""
_WIDE = 160
"""Columns of a terminal in which a whole comparison fits."""


class ProgressLine:
    """A live line on stderr while a search runs; silent where stderr is not a terminal."""

    def __init__(self, time_unit: str) -> None:
        self._unit = time_unit
        self._live = sys.stderr.isatty()

    def __enter__(self) -> ProgressLine:
        if self._live:
            from rich.console import Console
            from rich.status import Status as Spinner

            self._spinner = Spinner("searching", console=Console(stderr=True))
            self._spinner.start()
        return self

    def show(self, news: Progress) -> None:
        """Show the incumbent, the bound and the gap."""
        if not self._live:
            return
        parts = [f"{news.phase} {news.wall_s:.1f} s"]
        if news.objective is not None:
            parts.append(f"best {show_time(float(news.objective), self._unit)}")
        if news.bound is not None:
            parts.append(f"bound {show_time(float(news.bound), self._unit)}")
        if news.gap is not None:
            parts.append(f"gap {news.gap:.2%}")
        self._spinner.update("  ".join(parts))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._spinner.stop()
