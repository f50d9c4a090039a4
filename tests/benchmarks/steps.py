"""Compare measured training steps of Llama on one H100 with simulated steps.

    python tests/benchmarks/steps.py   # some seconds

`h100_steps.csv` beside this file was written by `tools/measure_steps.py` on one NVIDIA H100 80GB HBM3 with PyTorch 2.11
and CUDA 13.  No parameter is fitted to these rows.  Norms are single kernels there, as in torchtitan.  With norms
written in Python a step takes 14 % longer in eager mode.  The simplest competitor assumes 45 % of the peak rate.  The
exit status is 1 if the median error of the step time is above `TIME_REACH`, or that of the memory above `MEMORY_REACH`.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from tessel_core.costs.meshes import find_mesh
from tessel_core.ir.transforms.attention import AttentionKernel
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.strategies.families import find_family
from tessel_core.strategies.rates import model_flops
from tessel_core.strategies.strategy import Strategy, simulate_places

ROWS = Path(__file__).with_name("h100_steps.csv")
TIME_REACH, MEMORY_REACH = 0.04, 0.02
KERNELS = {"cudnn": AttentionKernel.FUSED, "flash": AttentionKernel.FLASH2}


def predicted(row: dict[str, str]) -> tuple[float, int, float]:
    """Return the simulated seconds and peak bytes of a row's step, and the seconds at 45 % of the peak rate."""
    family, mesh = find_family("llama"), find_mesh("h100-1")
    micro_batches = int(row["micro_batches"])
    sizes = {"layers": int(row["layers"]), "sequence": int(row["sequence"])}
    spec = family.spec(size=row["preset"], batch=int(row["samples"]) * micro_batches, **sizes)
    strategy = Strategy(
        micro_batches=micro_batches,
        recompute=Recompute(row["recompute"]),
        attention=KERNELS[row["attention"]],
        grad_dtype="fp32",
        compiled=row["mode"] == "compiled",
        eager_loss=True,
    )
    trace = simulate_places(family, spec, strategy, mesh)
    peak_rate = mesh.devices[0].peak("bf16")
    assert peak_rate is not None
    return trace.latency, max(trace.peak_memory), model_flops(family, spec) / (0.45 * peak_rate)


def main() -> int:
    """Print the comparison, and return 1 if a median error is above its limit."""
    console, found = Console(width=150), []
    columns = "network", "tokens", "micro-batches", "recompute", "mode", "attention"
    table = Table(
        *columns, "measured s", "simulated s", "error", "45 % of peak", "memory GB", "simulated", "error", box=None
    )
    with ROWS.open(encoding="ascii", newline="") as file:
        for row in csv.DictReader(file):
            seconds, peak = float(row["seconds"]), int(row["peak_bytes"])
            latency, held, dumb = predicted(row)
            errors = latency / seconds - 1, dumb / seconds - 1, held / peak - 1
            found.append([abs(error) for error in errors])
            table.add_row(
                f"{row['preset']}, {row['layers']} layers",
                f"{row['samples']} x {row['sequence']}",
                *(row[name] for name in ("micro_batches", "recompute", "mode", "attention")),
                *(f"{seconds:.3f}", f"{latency:.3f}", f"{errors[0]:+.1%}", f"{errors[1]:+.1%}"),
                *(f"{peak / 1e9:.1f}", f"{held / 1e9:.1f}", f"{errors[2]:+.1%}"),
            )
    console.print(table)
    time, dumb, memory = (median(column) for column in zip(*found, strict=True))
    console.print(f"median errors: time {time:.1%} (45 % of the peak: {dumb:.1%}), memory {memory:.1%}")
    return int(time > TIME_REACH or memory > MEMORY_REACH)


if __name__ == "__main__":
    sys.exit(main())
