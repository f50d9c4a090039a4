"""Exported schedules on PyTorch's own pipelining runtime, gradients and losses beside those of one process.

    python tests/benchmarks/torch_runtime.py            # 2 and 4 processes, 8 micro-batches
    python tests/benchmarks/torch_runtime.py --small    # 2 processes

V, split V, loop and ZB-V under each published schedule that suits them and under the search go through the export
`pytorch-csv` to `_PipelineScheduleRuntime` on gloo, in float64.  The exit status is 1 where a gradient or a loss is
further from one process than rounding takes it.  Without the extra torch nothing runs, which is said.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # helpers are not installed

from helpers.torch_pipelines import every_export, run_on_torch  # noqa: E402

from tessel_core.torch_extra import why_no_torch  # noqa: E402

REACH = 1e-14
"""Largest difference, relative to the largest entry of a tensor; float64 rounds at 1.1e-16."""
MICRO_BATCHES = 8


def main() -> int:
    """Print the table; 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    if missing := why_no_torch():
        Console().print(f"Exports on PyTorch's runtime: {missing}")
        return 0
    names = ("processes", "form.schedule", "makespan", "gradient", "loss", "reach", "")
    table = Table(*names, title="Exports on PyTorch's runtime", title_justify="left", box=None, header_style="bold")
    wrong = 0
    for ranks in (2,) if small else (2, 4):
        schedules = dict(every_export(ranks, MICRO_BATCHES))
        with tempfile.TemporaryDirectory() as folder:
            found = run_on_torch(schedules, Path(folder))
        for name, apart in found.items():
            right = max(apart.values()) <= REACH
            wrong += not right
            numbers = (f"{apart['gradient']:.1e}", f"{apart['loss']:.1e}", f"{REACH:.0e}")
            verdict = "ok" if right else "[red]WRONG[/red]"
            table.add_row(str(ranks), name, str(schedules[name].makespan), *numbers, verdict)
    Console(width=130).print(table)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
