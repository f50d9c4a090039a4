"""Small sweeps, their answers in a plain loop, and functions that kill their worker."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path

from tessel_core.costs.meshes import find_mesh
from tessel_core.formats import GraphFile, MeshFile, graph_text, read_graph
from tessel_core.model import Edge, Operator, OperatorGraph
from tessel_core.sweeps.pools import ProcessPool
from tessel_core.sweeps.solving import PointResult, solve_point
from tessel_core.sweeps.store import SweepRow
from tessel_core.sweeps.sweep import SolverSweep, SweepPoint

LAYERS = 4
NETWORK = OperatorGraph(
    "network",
    tuple(
        Operator(f"{way}{i}", "matmul", flops=cost, bytes=1e8, output_bytes=10**6, **more)  # type: ignore[arg-type]
        for i in range(LAYERS)
        for way, cost, more in (
            ("f", 1e12, {"weight_bytes": 10**9, "activation_bytes": 10**9}),
            ("b", 2e12, {"backward": True, "forward_of": f"f{i}"}),
        )
    ),
    tuple(
        Edge(*ends)
        for i in range(LAYERS)
        for ends in (
            [(f"f{i}", f"b{i}")] + ([(f"f{i}", f"f{i + 1}"), (f"b{i + 1}", f"b{i}")] if i + 1 < LAYERS else [])
        )
    ),
)
"""Training graph of a chain: a layer needs 16 GB for weights and their state, and 1 GB per micro-batch."""
GRAPH: GraphFile = read_graph(graph_text(NETWORK).encode())
PAIR, OTHER = (MeshFile.of(find_mesh(name)) for name in ("h200-2", "a100-2"))
DEADLY = 3
"""Number of micro-batches of the points that kill their worker."""


def small_sweep(counts: Iterable[int] = (2, 3, 4), order: str = "gpipe") -> SolverSweep:
    """Return a sweep with points that are solved, that do not fit, and that are invalid. A search takes longer."""
    return SolverSweep(
        (GRAPH,),
        (PAIR, OTHER),
        memories=(10**9, 40 * 10**9),
        schedulers=(order, "1f1b", "zb-v"),
        micro_batches=tuple(counts),
    )


class StandingPool(ProcessPool):
    """A pool that stays open after a sweep."""

    def close(self) -> None:
        """Do nothing: its processes end with the process that started them."""


@cache
def standing_pool() -> StandingPool:
    """Return a pool of one process for all sweeps in which no worker dies."""
    return StandingPool(1)


def answers(rows: Iterable[SweepRow]) -> dict[str, dict[str, object]]:
    """Return the columns that do not depend on the machine, by key."""
    found: dict[str, dict[str, object]] = {}
    for row in rows:
        assert row.key not in found
        found[row.key] = {**asdict(row), "wall_s": None}
    return found


def in_a_loop(sweep: SolverSweep) -> dict[str, dict[str, object]]:
    """Return the answers, computed without pool, store or process."""
    return answers(SweepRow.joined(i, point, solve_point(point)) for i, point in enumerate(sweep.points))


def die_once(words: Path, victim: Callable[[], int], point: SweepPoint) -> PointResult:
    """Solve a point, but the first worker with a deadly point writes a file and kills a process."""
    word = words / point.key
    if point.micro_batches == DEADLY and not word.exists():
        word.touch()
        os.kill(victim(), signal.SIGKILL)
    return solve_point(point)


def die_always(point: SweepPoint) -> PointResult:
    """Solve a point, but every worker with a deadly point dies."""
    if point.micro_batches == DEADLY:
        os._exit(1)
    return solve_point(point)


def break_down(point: SweepPoint) -> PointResult:
    """Solve a point, but raise an error for deadly points."""
    if point.micro_batches == DEADLY:
        raise AssertionError("two\nlines")
    return solve_point(point)


def die_at_once(point: SweepPoint) -> PointResult:
    """Kill the worker for every point."""
    os._exit(1)


def begun() -> tuple[int, bool]:
    """Return the parent process, and whether it had imported the modules that solve points."""
    return os.getppid(), "ortools.sat.python.cp_model" in sys.modules


def offspring(pid: int) -> list[int]:
    """Return the living descendants of a process [proc(5)]."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def alive(pid: int) -> bool:
    """Whether a process is alive and not a zombie."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
