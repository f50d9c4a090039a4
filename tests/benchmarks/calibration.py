"""How far calibrated devices are from measured layers that they did not see.

    python tests/benchmarks/calibration.py [SEED]

The layers of an H200 are split by hidden size, half to fit on and half to predict; products with the weights of the
latter are left out as well.  Two calibrations: three parameters from the data sheet (share of the peak, share of the
bandwidth, launch), and the cost model's kernels, measured alone, with what only whole layers show.  The last line says
the worst of all splits.  The exit status is 1 where a figure of `REACH` is missed.
"""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tools are no package that is installed

from rich.console import Console
from rich.table import Table

from tessel_core.costs.fit import CostFit, KernelFit, Launches, kind_fit
from tools.calibrate import Accuracy, calibrated, held_out, run_seconds
from tools.cost_fitting import OVERLAP, fit_all, layer_runs
from tools.cost_rows import LONG, RATES, hidden_sizes
from tools.gpt_layer import GptLayer
from tools.h200_rows import rows

REACH, REACH_BYTES = 0.10, 0.03
"""Largest median errors of layers of 500 µs and more, and of activation bytes."""


def data_sheet() -> CostFit:
    """Every class of kernels at the peaks, launched in 10 µs."""
    products = ("matmul", "attention", "attention_backward")
    kernels = (
        KernelFit(each.name, 1e-5, 1.0, 1.0 if each.name in products else None) for each in kind_fit("h200").kernels
    )
    return CostFit(OVERLAP, 1.0, Launches(1, 1, 1), tuple(kernels))


def judged(fit: CostFit, unseen: frozenset[object], *, long: bool) -> Accuracy:
    """On the passes of the sizes held out, from 500 µs or shorter."""
    runs = [run for run in layer_runs() if run.group in unseen and (run.seconds >= LONG) == long]
    return Accuracy.of(run_seconds(fit, runs, RATES), [run.seconds for run in runs])


def by_model(unseen: frozenset[object]) -> CostFit:
    """The cost model, fitted anew without these hidden sizes."""
    return fit_all(tuple(size for size in hidden_sizes() if size in unseen))


def activations(unseen: frozenset[object]) -> Accuracy:
    """Of the bytes that layers of the sizes held out keep for the backward; nothing of them is fitted."""
    measured = [row for row in rows("layer_fwd").values() if row.shape[2] in unseen]
    kept = [float(GptLayer(*row.shape).activation_bytes) for row in measured]
    return Accuracy.of(kept, [float(row.activation_bytes) for row in measured])


def main() -> int:
    console, seed = Console(width=120), int(sys.argv[1]) if len(sys.argv) > 1 else 0
    unseen = held_out(hidden_sizes(), seed)
    known = [run for run in layer_runs() if run.group not in unseen]
    sheet, model = calibrated(data_sheet(), known, RATES), by_model(unseen)
    table = Table("", "rows", "mean %", "median %", "largest %", "correlation", title=f"Held out: {sorted(unseen)}")
    lines = {
        "three parameters, ≥ 500 µs": judged(sheet, unseen, long=True),
        "three parameters, shorter": judged(sheet, unseen, long=False),
        "cost model, ≥ 500 µs": judged(model, unseen, long=True),
        "cost model, shorter": judged(model, unseen, long=False),
        "activation bytes": activations(unseen),
    }
    for name, found in lines.items():
        errors = (f"{100 * each:.2f}" for each in (found.mean, found.median, found.largest))
        table.add_row(name, str(found.rows), *errors, f"{found.correlation:.4f}")
    console.print(table)
    splits = [frozenset[object](each) for each in combinations(hidden_sizes(), len(unseen))]
    worst = max(judged(by_model(each), each, long=True).median for each in splits)
    console.print(
        f"cost model, ≥ 500 µs, worst median of all {len(splits)} splits: {worst:.1%}, at most {REACH:.0%} asked"
    )
    kept = lines["activation bytes"].largest
    console.print(f"activation bytes: largest error {kept:.2%}, at most {REACH_BYTES:.0%} asked")
    return 0 if worst <= REACH and kept <= REACH_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
