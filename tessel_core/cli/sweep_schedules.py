"""`tessel sweep schedules`: search placement and schedule for every combination, on this machine or on a cluster."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from tessel_core.cli import options
from tessel_core.cli.output import Json, config_of, console, print_json, print_notes, table
from tessel_core.cli.problem import find_mesh_file
from tessel_core.cli.solving import solve
from tessel_core.costs.meshes import MESHES
from tessel_core.errors import InputError
from tessel_core.formats import write_file
from tessel_core.formats.files import check_place
from tessel_core.model.in_flight import ONE_F_ONE_B
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.placement import PLACERS
from tessel_core.samples import sample_or_file
from tessel_core.scheduling import DEFAULT_SCHEDULER, SCHEDULERS
from tessel_core.sweeps.pools import PROCESSES, open_pool
from tessel_core.sweeps.running import SweepCounts, run_sweep
from tessel_core.sweeps.solving import PointStatus
from tessel_core.sweeps.store import COLUMNS, SweepRow, SweepStore, rows_csv
from tessel_core.sweeps.sweep import SolverSweep, SweepTerms
from tessel_core.units import show_memory, show_time
from tessel_core.workbench.messages.idle import percent

T = TypeVar("T")

_SQLITE, _CSV = (".sqlite", ".sqlite3", ".db"), ".csv"
_LIST = "one value, or a list with commas"
_MAX_ROWS = 10
_MAX_REASONS = 5

_QUESTION: dict[str, Callable[[SweepRow], str]] = {
    "graph": lambda row: row.graph,
    "mesh": lambda row: row.mesh,
    "memory": lambda row: "" if row.memory is None else show_memory(row.memory, "B"),
    "placer": lambda row: row.placer,
    "samples": lambda row: str(row.micro_batch_size),
    "in\nflight": lambda row: row.in_flight,
    "scheduler": lambda row: row.scheduler,
    "micro-\nbatches": lambda row: str(row.micro_batches),
}
"""Columns of the table that describe a combination, by heading.

A column is shown if its values differ between combinations.
"""
_ANSWER: dict[str, Callable[[SweepRow], str]] = {
    "samples/s": lambda row: "" if row.samples_per_s is None else f"{row.samples_per_s:.4g}",
    "time per\nmicro-batch": lambda row: (
        "" if row.time_per_micro_batch_ns is None else show_time(row.time_per_micro_batch_ns, "ns")
    ),
    "idle": lambda row: _percent(row.idle_rate),
    "peak": lambda row: "" if row.peak_memory is None else show_memory(row.peak_memory, "B"),
    "answer": lambda row: "proved" if row.status is PointStatus.PROVED_OPTIMAL else "found",
}
_WIDE_ANSWER: dict[str, Callable[[SweepRow], str]] = {
    "imbalance": lambda row: _percent(row.imbalance_rate),
    "bubble": lambda row: _percent(row.bubble_rate),
    "devices": lambda row: str(row.devices),
}
_WIDE_COLUMNS = 100
"""Width of a terminal, in characters, from which the table has the columns of `_WIDE_ANSWER`."""


def schedules(
    graph: Annotated[
        list[str],
        typer.Option(help="Operator graph: the name of a sample, a tessel-graph file or an ONNX file. Repeatable."),
    ],
    mesh: Annotated[
        list[str], typer.Option(help=f"Mesh: a file, a sample or a preset such as {next(iter(MESHES))}. Repeatable.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="File for the results. .sqlite: filled while the sweep runs; .csv: written at the end, with an "
            ".sqlite file of that name beside it. The same command with the same file continues a stopped sweep."
        ),
    ],
    per_node: options.PerNode = None,
    memory: Annotated[
        str | None, typer.Option(help=f"Memory per device in bytes: {_LIST}. Default: as in the mesh.")
    ] = None,
    placer: Annotated[str, typer.Option(help=f"Placement algorithm: {_LIST} of {', '.join(PLACERS)}.")] = next(
        iter(PLACERS)
    ),
    scheduler: Annotated[str, typer.Option(help=f"Scheduler: {_LIST} of {', '.join(SCHEDULERS)}.")] = DEFAULT_SCHEDULER,
    micro_batches: Annotated[str, typer.Option(help=f"Micro-batches to schedule: {_LIST}.")] = "32",
    micro_batch_size: Annotated[
        str | None, typer.Option(help=f"Samples per micro-batch: {_LIST}. Default: as in the graph.")
    ] = None,
    in_flight: Annotated[
        str, typer.Option(help=f"Micro-batches whose activations a stage holds: {_LIST} of 1f1b, gpipe or a number.")
    ] = ONE_F_ONE_B,
    communication: options.Transfers = None,
    dtype: options.Dtype = None,
    optimizer: options.Optimizer = None,
    split_weights: options.SplitWeights = False,
    time_limit: Annotated[
        float, typer.Option(help="Time limit per combination in seconds. Raising it can improve answers.")
    ] = SweepTerms().time_limit,
    seed: Annotated[int, typer.Option(help="Seed of random choices.")] = 0,
    executor: Annotated[
        str,
        typer.Option(
            help="Where combinations are solved: processes (of this machine), or a Dask cluster dask://HOST:PORT."
        ),
    ] = PROCESSES,
    workers: Annotated[int | None, typer.Option(help="Number of processes. Default: the number of cores.")] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Also solve combinations again that failed before. Answers are kept.")
    ] = False,
    json: Json = False,
) -> None:
    """Search placement and schedule for every combination. The same command continues a stopped sweep."""
    terms: dict[str, object] = {"dtype": dtype, "optimizer": optimizer, "split_weights": split_weights}
    terms |= {"communication": communication and str(communication), "time_limit": time_limit, "seed": seed}
    store_file = _place_of_store(out)
    files = [read_graph_file(sample_or_file(each), each) for each in graph]
    swept = SolverSweep(
        tuple(files),
        tuple(find_mesh_file(each, per_node) for each in mesh),
        _listed("--memory", memory, _whole) if memory is not None else (None,),
        _listed("--placer", placer, str),
        _listed("--micro-batch-size", micro_batch_size, int) if micro_batch_size is not None else (None,),
        _listed("--in-flight", in_flight, lambda each: int(each) if each.isdecimal() else each),
        _listed("--scheduler", scheduler, str),
        _listed("--micro-batches", micro_batches, int),
        config_of(SweepTerms, terms),
    )
    with open_pool(executor, workers) as pool, _store_at(store_file, out, swept) as store:
        if retry_failed:
            store.forget_failed()
        counts = solve(lambda control: run_sweep(swept, pool, store, control), "ns", math.inf)
        rows = store.rows()
    if out != store_file:
        write_file(out, rows_csv(rows))
    for name, file in zip(graph, files, strict=True):
        print_notes(name, file.warnings)
    _show(swept, counts, rows, out, as_json=json)
    raise typer.Exit(0 if any(row.samples_per_s is not None for row in rows) else 1)


def _place_of_store(out: Path) -> Path:
    """Return the file that stores results during the sweep: `out`, or an SQLite file beside a CSV.

    Raises InputError if a CSV exists that no sweep with this store has written.
    """
    check_place(out)
    if out.suffix in _SQLITE:
        return out
    if out.suffix != _CSV:
        raise InputError(str(out), f"must end in {', '.join(_SQLITE)} or {_CSV}")
    store_file = out.with_suffix(_SQLITE[0])
    if out.exists() and not (store_file.exists() and _first_line(out) == ",".join(COLUMNS)):
        raise InputError(str(out), f"exists and was not written from {store_file.name}; choose another name")
    return store_file


def _store_at(store_file: Path, out: Path, swept: SolverSweep) -> SweepStore:
    """Open the file of stored results.

    If this fails for a CSV file, the error names the CSV file that the user typed.
    """
    try:
        return SweepStore(store_file, swept)
    except InputError as error:
        if out == store_file:
            raise
        raise InputError(str(out), f"stores its results in {store_file.name}, which {error.why}") from None


def _first_line(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline(10_000).rstrip("\n")


def _listed(flag: str, text: str, kind: Callable[[str], T]) -> tuple[T, ...]:
    """Split a list at commas and parse its values. Raises InputError if a value is invalid."""
    try:
        return tuple(kind(each.strip()) for each in text.split(",") if each.strip())
    except (ValueError, OverflowError):
        raise InputError(flag, f"must be whole numbers separated by commas, got {text!r}") from None


def _whole(text: str) -> int:
    """Parse a whole number, also in the form 8e10."""
    found = float(text)
    if not found.is_integer():
        raise ValueError(text)
    return int(text) if text.isdecimal() else int(found)


def _show(swept: SolverSweep, counts: SweepCounts, rows: Sequence[SweepRow], out: Path, *, as_json: bool) -> None:
    """Print the answers as text or JSON. A note counts the combinations without an answer."""
    ranked = sorted(rows, key=lambda row: (-(row.samples_per_s or 0.0), row.number))
    best = [row for row in ranked[:_MAX_ROWS] if row.samples_per_s is not None]
    if counts.done < counts.size:
        sys.stderr.write(f"note: stopped at {counts.done:,} of {counts.size:,} points; the same command continues\n")
    if as_json:
        print_json(_document(counts, rows, best, out))
        return
    screen = console(swept.title)
    before = f", {counts.kept:,} of them by an earlier run" if counts.kept else ""
    screen.print(
        f"{counts.done:,} of {counts.size:,} points answered{before}; all answers are in {out}", soft_wrap=True
    )
    varied = {heading: cell for heading, cell in _QUESTION.items() if len({cell(row) for row in rows}) > 1}
    shown = {**varied, **_ANSWER, **(_WIDE_ANSWER if screen.width >= _WIDE_COLUMNS else {})}
    points = table(*shown, gap=1)
    for row in best:
        points.add_row(*(cell(row) for cell in shown.values()))
    if best:
        screen.print(points)
    for reason, count in Counter(row.reason for row in ranked if row.samples_per_s is None).most_common(_MAX_REASONS):
        screen.print(f"{count:,} without a schedule: {reason}", soft_wrap=True)


def _percent(share: float | None) -> str:
    return "" if share is None else percent(Fraction(share))


def _document(counts: SweepCounts, rows: Sequence[SweepRow], best: Sequence[SweepRow], out: Path) -> dict[str, object]:
    """Return the `--json` document. Unknown values are null, times are in ns, memory is in bytes."""
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
