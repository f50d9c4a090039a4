"""What is printed of a sweep: the best of what is known, and why the others have no schedule."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tessel_core.cli.output import print_json
from tessel_core.sweeps import PointStatus, SolverSweep, SweepCounts, SweepRow
from tessel_core.sweeps.store import COLUMNS
from tessel_core.units import show_memory, show_time

_SHOWN = 10
_REASONS_SHOWN = 5

_ASKED: dict[str, Callable[[SweepRow], str]] = {
    "graph": lambda row: row.graph,
    "mesh": lambda row: row.mesh,
    "memory": lambda row: "" if row.memory is None else show_memory(row.memory, "B"),
    "placer": lambda row: row.placer,
    "samples": lambda row: str(row.micro_batch_size),
    "in\nflight": lambda row: str(row.in_flight),
    "scheduler": lambda row: row.scheduler,
    "micro-\nbatches": lambda row: str(row.micro_batches),
}
"""What may differ between points, by heading."""
_ANSWERED: dict[str, Callable[[SweepRow], str]] = {
    "samples/s": lambda row: "" if row.samples_per_s is None else f"{row.samples_per_s:.4g}",
    "period": lambda row: "" if row.period_ns is None else show_time(row.period_ns, "ns"),
    "bubble": lambda row: "" if row.bubble_rate is None else f"{row.bubble_rate:.1%}",
    "peak": lambda row: "" if row.peak_memory is None else show_memory(row.peak_memory, "B"),
    "answer": lambda row: "proved" if row.status is PointStatus.PROVED_OPTIMAL else "found",
}
_WIDE = 100
"""Columns of a terminal from which the number of devices is shown too."""


def print_sweep(swept: SolverSweep, counts: SweepCounts, rows: Sequence[SweepRow], out: Path, *, as_json: bool) -> None:
    """For people, or as one JSON document; on stderr, what is missing."""
    ranked = sorted(rows, key=lambda row: (-(row.samples_per_s or 0.0), row.number))
    best = [row for row in ranked[:_SHOWN] if row.samples_per_s is not None]
    if counts.done < counts.size:
        sys.stderr.write(f"note: stopped at {counts.done:,} of {counts.size:,} points; the same command goes on\n")
    if as_json:
        print_json(_document(counts, rows, best, out))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(swept.title, style="bold")
    before = f", {counts.kept:,} of them before" if counts.kept else ""
    console.print(f"{counts.done:,} done{before}; all in {out}", soft_wrap=True)
    asked = {heading: cell for heading, cell in _ASKED.items() if len({cell(row) for row in rows}) > 1}
    shown = {**asked, **_ANSWERED}
    if console.width >= _WIDE:
        shown["devices"] = lambda row: str(row.devices)
    table = Table(*shown, box=None, padding=(0, 1, 0, 0))
    for row in best:
        table.add_row(*(cell(row) for cell in shown.values()))
    if best:
        console.print(table)
    for reason, count in Counter(row.reason for row in ranked if row.samples_per_s is None).most_common(_REASONS_SHOWN):
        console.print(f"{count:,} without a schedule: {reason}", soft_wrap=True)


def _document(counts: SweepCounts, rows: Sequence[SweepRow], best: Sequence[SweepRow], out: Path) -> dict[str, object]:
    """The `--json` of `tessel sweep schedules`; unknown values are null, times in ns, memory in bytes."""
    statuses = Counter(row.status for row in rows)
    return {
        "points": counts.size,
        "done": counts.done,
        "done_before": counts.kept,
        "statuses": {str(status): statuses[status] for status in PointStatus if statuses[status]},
        "wall_s": counts.wall_s,
        "out": str(out),
        "best": [{name: getattr(row, name) for name in COLUMNS} for row in best],
    }
