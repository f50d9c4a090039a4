"""Compare simulations with DistIR's published numbers, and measure their speed.

    python tests/benchmarks/simulation.py           # a minute, 1 GB
    python tests/benchmarks/simulation.py --small   # without the program of 741,568 operations

Devices are those of DistIR's experiments.  The exit status is 1 if numbers differ.  Seconds of CPU are shown beside
their limits, and count for the exit status only with --judge.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from tessel_core.costs.meshes import find_mesh
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.simulation import Trace, simulate
from tessel_core.strategies.evaluation import evaluate
from tessel_core.strategies.families import find_family
from tessel_core.strategies.grid import Grid, doubling, ranges
from tessel_core.strategies.strategy import Semantics, Strategy, build_program, equal_devices, simulate_strategy
from tessel_core.workbench.messages.strategy import explain

Answer = TypeVar("Answer")

MLP = find_family("mlp")
MESH = equal_devices(64, 1.4e13, 9e11, 25)

AGREEMENT = [
    ((8, 512), (1, 1, 1, 1), 256, "fp16", 0.0006876542638730161, 9699332),
    ((8, 512), (2, 1, 1, 1), 256, "fp16", 0.0019062566542222229, 9437188),
    ((8, 512), (1, 2, 1, 1), 256, "fp16", 0.0012343316500317463, 6291460),
    ((8, 512), (1, 1, 2, 2), 256, "fp16", 0.0011279201056507945, 6684676),
    ((8, 512), (2, 2, 2, 4), 256, "fp16", 0.001980968673523809, 3244032),
    ((8, 512), (1, 1, 8, 16), 256, "fp16", 0.002247285902222225, 2637828),
    ((8, 512), (1, 4, 2, 8), 256, "fp32", 0.003923417622349205, 4194304),
    ((16, 8192), (1, 1, 1, 1), 8192, "fp16", 3.792823284250416, 6979321860),
    ((16, 8192), (16, 1, 1, 1), 8192, "fp16", 1.5310778074961273, 4462739460),
    ((16, 8192), (1, 16, 1, 1), 8192, "fp16", 1.5345096469475559, 2952790020),
    ((16, 8192), (1, 1, 16, 128), 8192, "fp16", 0.5469675088944764, 806354948),
    ((16, 8192), (2, 2, 4, 32), 8192, "fp16", 0.5752897288126989, 861929472),
    ((64, 16384), (2, 2, 4, 16), 8192, "fp16", 7.225899764526734, 10678697984),
    ((96, 32768), (1, 4, 4, 8), 1024, "fp16", 5.667519726919165, 28613541888),
    ((96, 32768), (2, 8, 2, 4), 2048, "fp32", 16.94428313113809, 58082721792),
]
"""Layers and width, D/H/P/K, batch and format, with the seconds and peak bytes of DistIR's code."""

DEGREES = {"data": doubling(16), "tensor": doubling(16), "pipeline": doubling(8), "micro_batches": doubling(32)}
GRIDS = {
    1263: Grid(ranges(layers=(8,), width=(512, 4096), batch=(1024,), dtype=("fp16", "fp32")), **DEGREES),
    12142: Grid(ranges(layers=(8, 16), width=(512, 2048, 8192), batch=(1024, 4096, 16384), dtype=("fp16", "fp32")),
                **DEGREES),
}  # fmt: skip
"""Grids by the number of configurations to time.  These have at most 16 devices and are spread evenly over the grid."""
PER_SECOND = 2000
"""Smallest number of configurations of a grid to time per second of CPU, with an empty cache of blocks."""
GPT_MODES = {"training": {}, "prefill": {"context": (1024,)}, "decode": {"context": (1023,)}}
GPT_SIZES = {"size": ("gpt2-xl", "gpt3-6.7b"), "batch": (64, 128, 512), "dtype": ("bf16", "fp32")}
GPT_COUNT = 1000
GPT_MIXED = {"size": ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "gpt3-6.7b", "gpt3-13b", "gpt3-175b"),
             "batch": (64, 128, 512), "dtype": ("bf16", "fp32")}  # fmt: skip
LARGE = ((68, 8192), (4, 4, 4, 128), 8192)
LEAST_OPERATIONS, LARGE_SECONDS, LARGE_MB, MICROSECONDS, ONE_MS = 741_568, 10.0, 1200, 8.0, 20.0


def agreement(console: Console) -> bool:
    """Print simulations under DistIR's semantics beside its published numbers, and return whether they agree."""
    table = Table("layers x width", "D/H/P/K", "latency s", "peak B", "error", box=None)
    good = True
    for (layers, width), degrees, batch, dtype, latency, peak in AGREEMENT:
        spec, strategy = MLP.spec(layers, width, batch, dtype), Strategy(*degrees)
        trace = simulate_strategy(MLP, spec, strategy, MESH, Semantics.DISTIR).trace
        error, exact = abs(trace.latency / latency - 1), max(trace.peak_memory) == peak
        good &= exact and error < 1e-9
        told = f"{error:.1e}{'' if exact else ' bytes differ'}"
        table.add_row(f"{layers} x {width}", "/".join(map(str, degrees)), f"{latency:.9g}", f"{peak:,}", told)
    console.print(table)
    return good


def grids(console: Console) -> bool:
    """Time grids of MLPs, and return whether all are fast enough.  The process has already loaded all kernels."""
    table = Table("configurations", "CPU s", "a CPU s", "reach", box=None)
    fast = True
    evaluate(MLP, Grid(ranges(width=(256,), batch=(1024,)), **DEGREES).configurations(MLP, 16), MESH)
    for count, grid in GRIDS.items():
        every = grid.configurations(MLP, 16)
        some = [every[i * len(every) // count] for i in range(count)]
        seconds, _ = timed(lambda some=some: evaluate(MLP, some, MESH))
        fast &= count / seconds >= PER_SECOND
        table.add_row(f"{len(some):,}", f"{seconds:.2f}", f"{count / seconds:,.0f}", f"{PER_SECOND:,}")
    console.print(table)
    return fast


def gpt_grids(console: Console) -> bool:
    """Time grids of GPT-2 and GPT-3 on 16 H200s, each with an empty cache, and return whether all are fast enough."""
    table = Table("GPT configurations", "mode", "simulated", "CPU s", "a CPU s", "reach", box=None)
    family, mesh, fast = find_family("gpt"), find_mesh("h200-16"), True
    grids = {mode: Grid(ranges(**GPT_SIZES, mode=(mode,), **more), **DEGREES) for mode, more in GPT_MODES.items()}
    both = {"recompute": (Recompute.NONE, Recompute.FULL), "zero": (0, 1)}
    grids["training, 7 sizes, recomputing and ZeRO or not"] = Grid(ranges(**GPT_MIXED), **DEGREES, **both)
    for mode, grid in grids.items():
        every = grid.configurations(family, 16)
        some = [every[i * len(every) // GPT_COUNT] for i in range(GPT_COUNT)]
        seconds, found = timed(lambda some=some: evaluate(family, some, mesh))
        fast &= len(some) / seconds >= PER_SECOND
        simulated = sum(bool(outcome.peaks) for outcome in found)
        rate = f"{len(some) / seconds:,.0f}"
        table.add_row(f"{len(some):,}", mode, f"{simulated:,}", f"{seconds:.2f}", rate, f"{PER_SECOND:,}")
    console.print(table)
    return fast


def one_by_one(console: Console, large: bool) -> bool:
    """Time the simulator and the explanation of single strategies, and return whether all are fast enough."""
    table = Table("D/H/P/K", "operations", "what", "CPU s", "µs an op", "MB", "reach", box=None)
    cases = [((8, 512), (2, 2, 2, 4), 256), ((16, 1024), (2, 2, 4, 32), 2048), *([LARGE] if large else [])]
    fast = True
    for (layers, width), degrees, batch in cases:
        spec, strategy = MLP.spec(layers, width, batch, "fp16"), Strategy(*degrees)
        built, program = timed(lambda spec=spec, strategy=strategy: build_program(MLP, spec, strategy).program)
        count, name = len(program.ops), "/".join(map(str, degrees))
        table.add_row(name, f"{count:,}", "build", *shown(built, count), "")
        ways: dict[str, Callable[[], Trace]] = {
            "distir": lambda program=program: simulate(program, MESH, compat="distir"),
            "default": lambda program=program: simulate(program, MESH),
        }
        for way, run in ways.items():
            seconds, trace = timed(run)
            reach = ONE_MS / 1e3 if count < 1000 else MICROSECONDS * 1e-6 * count
            reach = min(reach, LARGE_SECONDS)
            fast &= seconds <= reach
            table.add_row(name, "", way, *shown(seconds, count), f"{reach:.2g} s")
            if count < 1000:
                ranks = strategy.ranks(Semantics.DEFAULT)
                table.add_row(name, "", "explain", *shown(timed(lambda: explain(trace, ranks, MESH))[0], count), "")  # noqa: B023
        fast &= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 <= LARGE_MB
        assert not large or degrees != LARGE[1] or count >= LEAST_OPERATIONS
    console.print(table)
    return fast


def shown(seconds: float, count: int) -> tuple[str, str, str]:
    mega_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{seconds:.3f}", f"{seconds / count * 1e6:.1f}", f"{mega_bytes:,.0f}"


def timed(call: Callable[[], Answer]) -> tuple[float, Answer]:
    begin = time.process_time()
    answer = call()
    return time.process_time() - begin, answer


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="without the largest program")
    parser.add_argument("--judge", action="store_true", help="exit 1 as well where something is too slow")
    options = parser.parse_args(arguments)
    console = Console(width=120)
    good = agreement(console)
    fast = [grids(console), gpt_grids(console), one_by_one(console, not options.small)]
    return 0 if good and (all(fast) or not options.judge) else 1


if __name__ == "__main__":
    sys.exit(main())
