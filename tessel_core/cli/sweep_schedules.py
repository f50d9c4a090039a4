"""`tessel sweep schedules`: placement and schedule searched for every combination, here or on a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from tessel_core.cli.output import print_notes
from tessel_core.cli.problem import CommunicationOption, Dtype, Optimizer, find_mesh_file
from tessel_core.cli.solving import solving
from tessel_core.cli.sweep_output import print_sweep
from tessel_core.costs.meshes import MESHES
from tessel_core.errors import InputError
from tessel_core.formats import check_place, read_graph_file, write_file
from tessel_core.options import config_from
from tessel_core.placement import PLACERS
from tessel_core.samples import sample_or_file
from tessel_core.scheduling import DEFAULT_SCHEDULER, SCHEDULERS
from tessel_core.sweeps import SolverSweep, SweepStore, SweepTerms, open_pool, run_sweep
from tessel_core.sweeps.pools import PROCESSES
from tessel_core.sweeps.store import COLUMNS, rows_csv

T = TypeVar("T")

_SQLITE, _CSV = (".sqlite", ".sqlite3", ".db"), ".csv"
_MANY = "one, or several with commas between"


def schedules(
    graph: Annotated[list[str], typer.Option(help="A sample's name, a tessel-graph or an ONNX file; repeatable.")],
    mesh: Annotated[list[str], typer.Option(help=f"File, sample or preset, such as {next(iter(MESHES))}; repeatable.")],
    out: Annotated[
        Path, typer.Option(help="Results: .sqlite, filled as they come, or .csv, beside which one is kept.")
    ],
    memory: Annotated[
        str | None, typer.Option(help=f"Bytes of a device, {_MANY}; as the mesh says if not said.")
    ] = None,
    placer: Annotated[str, typer.Option(help=f"Of {', '.join(PLACERS)}; {_MANY}.")] = next(iter(PLACERS)),
    scheduler: Annotated[str, typer.Option(help=f"Of {', '.join(SCHEDULERS)}; {_MANY}.")] = DEFAULT_SCHEDULER,
    micro_batches: Annotated[str, typer.Option(help=f"How many; {_MANY}.")] = "32",
    micro_batch_size: Annotated[str | None, typer.Option(help=f"Samples; {_MANY}. The graph's if not said.")] = None,
    in_flight: Annotated[str, typer.Option(help=f"Micro-batches that a placement has room for; {_MANY}.")] = "1",
    communication: CommunicationOption = None,
    dtype: Dtype = None,
    optimizer: Optimizer = None,
    split_weights: Annotated[
        bool, typer.Option("--split-weights", help="Weight gradients as blocks of their own, where the graph has them.")
    ] = False,
    time_limit: Annotated[float, typer.Option(help="Wall seconds for one point.")] = SweepTerms().time_limit,
    seed: Annotated[int, typer.Option(help="Of the solvers' random choices.")] = 0,
    executor: Annotated[str, typer.Option(help="processes, or a Dask cluster: dask://HOST:PORT.")] = PROCESSES,
    workers: Annotated[int | None, typer.Option(help="Processes; as many as there are cores if not said.")] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Solve again what failed before; points with an answer stay.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Search placement and schedule for every combination; the same command goes on where it was stopped."""
    given = {"dtype": dtype, "optimizer": optimizer, "communication": communication and str(communication)}
    known = {name: value for name, value in given.items() if value is not None}
    terms = {**known, "split_weights": split_weights, "time_limit": time_limit, "seed": seed}
    kept = _place_of_store(out)
    files = [read_graph_file(sample_or_file(each)) for each in graph]
    swept = SolverSweep(
        tuple(files),
        tuple(find_mesh_file(each) for each in mesh),
        _listed("--memory", memory, _whole) if memory is not None else (None,),
        _listed("--placer", placer, str),
        _listed("--micro-batch-size", micro_batch_size, int) if micro_batch_size is not None else (None,),
        _listed("--in-flight", in_flight, int),
        _listed("--scheduler", scheduler, str),
        _listed("--micro-batches", micro_batches, int),
        config_from(SweepTerms, terms),
    )
    with open_pool(executor, workers) as pool, SweepStore(kept, swept) as store:
        if retry_failed:
            store.forget_failed()
        with solving("ns", math.inf) as solve:
            counts = solve(lambda control: run_sweep(swept, pool, store, control))
        rows = store.rows()
    if out != kept:
        write_file(out, rows_csv(rows))
    for words, file in zip(graph, files, strict=True):
        print_notes(words, file.warnings)
    print_sweep(swept, counts, rows, out, as_json=json)
    raise typer.Exit(0 if any(row.samples_per_s is not None for row in rows) else 1)


def _place_of_store(out: Path) -> Path:
    """Where the results are kept as they come: `out`, or beside a CSV, which must be one of ours to be replaced."""
    check_place(out)
    if out.suffix in _SQLITE:
        return out
    if out.suffix != _CSV:
        raise InputError(str(out), f"must end in {', '.join(_SQLITE)} or {_CSV}")
    kept = out.with_suffix(_SQLITE[0])
    if out.exists() and not (kept.exists() and _first_line(out) == ",".join(COLUMNS)):
        raise InputError(str(out), f"exists, and is not the table of {kept.name}; choose another name")
    return kept


def _first_line(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline(10_000).rstrip("\n")


def _listed(option: str, words: str, kind: Callable[[str], T]) -> tuple[T, ...]:
    """Values with commas between."""
    try:
        return tuple(kind(each.strip()) for each in words.split(",") if each.strip())
    except (ValueError, OverflowError):
        raise InputError(option, f"must be whole numbers with commas between, got {words!r}") from None


def _whole(words: str) -> int:
    """A number of bytes, 8e10 as well."""
    found = float(words)
    if not found.is_integer():
        raise ValueError(words)
    return int(words) if words.isdecimal() else int(found)
