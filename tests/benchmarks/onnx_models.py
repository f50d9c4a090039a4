"""How fast ONNX files are read, as graphs and as programs, and in how much memory: transformers of many operators.

    python tests/benchmarks/onnx_models.py

The exit status is 1 where a figure of the answer is not that of the model; seconds and megabytes are shown and
never judged.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from helpers.onnx_models import transformer

from tessel_core.costs.meshes import find_mesh
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.networks.programs.program_file import read_program_file
from tessel_core.simulation import simulate

# (layers, hidden size): 27 operators per layer, 48 hidden² bytes of weights
SIZES = ((1, 64), (60, 64), (580, 16), (40, 1024))


@dataclass(frozen=True)
class Measured:
    """One file read in a process of its own."""

    operators: int
    flops: float
    wall_s: float
    cpu_s: float
    mega_bytes: float
    """How much the process grew."""


def measure(path: Path) -> Measured:
    """The first reading of a process, the other process that it starts included."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    graph = read_graph_file(path).graph
    wall = time.perf_counter() - start
    inner = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = time.process_time() + inner.ru_utime + inner.ru_stime
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    flops = sum(each.flops or 0 for each in graph.operators if each.kind == "matmul")
    return Measured(len(graph.operators), flops, wall, cpu, grown)


def measure_program(path: Path) -> tuple[int, float]:
    """Operations of the program, and CPU seconds until it is simulated, the other process included."""
    found = read_program_file(path.read_bytes(), path.name).program
    simulate(found, find_mesh("h200-1"))
    inner = resource.getrusage(resource.RUSAGE_CHILDREN)
    return len(found.ops), time.process_time() + inner.ru_utime + inner.ru_stime


def main() -> int:
    """Measure every size and print the table."""
    heads = (
        "layers",
        "hidden",
        "file MB",
        "operators",
        "seconds",
        "CPU s",
        "MB grown",
        "operations",
        "CPU s, simulated",
    )
    table = Table(*heads, box=None)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for layers, hidden in SIZES:
            path = Path(folder) / "model.onnx"
            path.write_bytes(transformer(layers, hidden, length=64).SerializeToString())
            found = pool.apply(measure, (path,))
            operations, simulated = pool.apply(measure_program, (path,))
            rows = 2 * 64
            expected = layers * (24 * rows * hidden**2 + 4 * rows * 64 * hidden) + 2 * rows * hidden * 50
            wrong += found.flops != expected or found.operators != 4 + 27 * layers
            wrong += operations != 4 + 31 * layers  # four of each layer are views
            size = path.stat().st_size / 1e6
            shown = (
                f"{size:.1f}",
                found.operators,
                f"{found.wall_s:.2f}",
                f"{found.cpu_s:.2f}",
                f"{found.mega_bytes:.0f}",
                operations,
                f"{simulated:.2f}",
            )
            table.add_row(*map(str, (layers, hidden, *shown)))
    Console().print(table)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
