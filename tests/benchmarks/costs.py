"""How close the cost model is to the measured rows of an H200, beside simpler models, and how fast it answers.

    python tests/benchmarks/costs.py          # half a minute: it fits anew for all that is left out

The peers are the data sheet's roofline and the curve through measured layers that `tools/h200_rows.py` uses for hidden
sizes that were not measured.  The exit status is 1 where a figure of `REACH` is missed; seconds are shown and never
judged.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tools are no package that is installed

from rich.console import Console
from rich.table import Table

from tessel_core.costs.costed import timed
from tessel_core.costs.devices import H200
from tessel_core.costs.fit import kind_fit
from tessel_core.model import Operator, OperatorGraph
from tools.cost_figures import (
    Figures,
    activation_errors,
    hidden_table,
    kernels_table,
    layers_table,
    peers_table,
    unseen_hidden,
    unseen_kernels_table,
)
from tools.cost_rows import predicted

REACH = {"layers of 500 µs and more": 0.08, "shorter layers": 0.20}
"""Largest median errors, of what was fitted and of hidden sizes left out."""
REACH_BYTES = 0.03
"""Largest error of the activation bytes of any layer."""
OPERATORS = 20_000


def shown(table: Figures) -> Table:
    """A table of errors in per cent."""
    columns = (f"{column}\n{what}" for column in table.columns for what in ("rows", "median %", "90th %"))
    drawn = Table("", *columns, title=table.title)
    for name, errors in table.lines:
        drawn.add_row(name, *(cell for each in errors for cell in str(each).split(" | ")))
    return drawn


def answer_time() -> float:
    """CPU seconds to time a graph of as many operators as a graph may have."""
    kinds = ("matmul", "attention", "layer_norm", "gelu", "add", "unheard of")
    operators = (Operator(f"o{i}", kinds[i % len(kinds)], flops=1e9 + i, bytes=1e6 + i) for i in range(OPERATORS))
    graph = OperatorGraph("large", tuple(operators))
    began = time.process_time()
    timed(graph, [H200.device("gpu0")])
    return time.process_time() - began


def main() -> int:
    console, fit = Console(width=140), kind_fit("h200")
    unseen = unseen_hidden()
    layers, left_out = layers_table(predicted(fit), "fitted"), layers_table(unseen, "left out")
    tables = (kernels_table(fit), unseen_kernels_table(fit), layers, left_out, hidden_table(fit, unseen))
    for table in (*tables, peers_table(fit, unseen)):
        console.print(shown(table))
    console.print(f"{OPERATORS:,} operators are timed in {answer_time():.2f} s of CPU")
    kept = activation_errors()
    worst = max(map(abs, kept.each))
    good = worst <= REACH_BYTES
    console.print(f"activation bytes: largest error {worst:.1%}, at most {REACH_BYTES:.0%} asked")
    for what, together in (("fitted", layers.lines[-1][1]), ("hidden size left out", left_out.lines[-1][1])):
        for (name, most), errors in zip(REACH.items(), together, strict=True):
            reached = errors.median <= most
            good &= reached
            verdict = "reached" if reached else "[red]missed[/red]"
            console.print(f"{name}, {what}: median error {errors.median:.1%}, at most {most:.0%} asked: {verdict}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
