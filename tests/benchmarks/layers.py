"""One layer of Llama 3 and its products as measured on one H100, beside what the cost model says of them.

    python tests/benchmarks/layers.py   # some seconds

`h100.csv` beside this file was written by `tools/measure_h100.py` on one NVIDIA H100 80GB HBM3 with PyTorch 2.11 and
CUDA 13: forward and backward of a layer of 8B and of 70B, 8,192 tokens a sample, in eager mode, compiled, and compiled
with FP8 products.  The predicted layer is what one more layer adds to the simulated pass.  No parameter is fitted to
the layers; FP8's share of its peak is (`_FP8_SHARE` in `costs/fit.py`), and from rows of attention by two kernels how
much longer one of them takes (`FLASH2_TIMES`).  The exit status is 1 where the median error of layers is above `REACH`.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from tessel_core.costs.meshes import find_mesh
from tessel_core.strategies.families import find_family
from tessel_core.strategies.strategy import Strategy, simulate_places

ROWS = Path(__file__).with_name("h100.csv")
REACH = 0.10


def predicted(size: str, samples: int, mode: str) -> float:
    """Seconds of the forward and backward pass that one more layer adds."""
    family, mesh = find_family("llama"), find_mesh("h100-1")
    strategy = Strategy(fp8="fp8" in mode, compiled="compiled" in mode)
    seconds = []
    for layers in (2, 3):
        trace = simulate_places(family, family.spec(size=size, layers=layers, batch=samples), strategy, mesh)
        update = {i for i, op in enumerate(trace.program.ops) if op.tag.phase == "update"}
        pairs = zip(trace.op.tolist(), trace.seconds.tolist(), strict=True)
        seconds.append(sum(span for op, span in pairs if op not in update))
    return seconds[1] - seconds[0]


def measured() -> dict[tuple[str, int, str], float]:
    """Seconds of forward and backward together, by size, samples and mode."""
    found: dict[tuple[str, int, str], float] = {}
    with ROWS.open(encoding="ascii", newline="") as file:
        for row in csv.DictReader(file):
            if row["op"] in ("layer_forward", "layer_backward"):
                size, samples, _ = row["shape"].split(", ")
                mode = row["extra"].split(";")[0].removeprefix("mode=")
                key = size.replace("llama3-", "llama-3-").lower(), int(samples.removeprefix("samples=")), mode
                found[key] = found.get(key, 0.0) + float(row["us"]) * 1e-6
    return found


def main() -> int:
    console = Console(width=120)
    table, errors = Table("layer", "samples", "mode", "measured ms", "predicted ms", "error", box=None), []
    for (size, samples, mode), seconds in measured().items():
        said = predicted(size, samples, mode)
        errors.append(abs(said / seconds - 1))
        cells = f"{seconds * 1e3:.1f}", f"{said * 1e3:.1f}", f"{said / seconds - 1:+.1%}"
        table.add_row(size, str(samples), mode, *cells)
    console.print(table)
    console.print(f"median error {median(errors):.1%}, largest {max(errors):.1%} (reach of the median {REACH:.0%})")
    return int(median(errors) > REACH)


if __name__ == "__main__":
    sys.exit(main())
