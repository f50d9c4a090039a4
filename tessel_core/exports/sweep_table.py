"""Write a sweep as CSV, as JSON, and as the rows of a table."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence

from tessel_core.ir.operators.formats import FP8
from tessel_core.strategies.evaluation import Configuration
from tessel_core.strategies.families import Value
from tessel_core.strategies.grid import OBJECTIVES, GridResult
from tessel_core.strategies.ranks import DEFAULT_RANK_ORDER, rank_order_words
from tessel_core.strategies.strategy import Strategy

_STRATEGY = (
    *("data", "tensor", "pipeline", "micro_batches", "micro_batch_size", "schedule", "recompute", "zero"),
    *("stages_per_device", "rank_order"),
)
_COLUMN_OF_FIELD = {"context": "context_parallel", "expert": "expert_parallel"}
"""Columns that do not have the name of their field. In a network, `context` already means tokens."""
_RESULT_COLUMNS = (
    *("devices", "latency_s", "throughput_per_s", "peak_memory", "stage_peak_memory", "on_front", "reason"),
    "by_blocks",
)
"""Columns for the result of a configuration.

`by_blocks` says whether the result was computed from blocks of layers instead of every single operation.
"""


def sweep_rows(sweep: GridResult, numbers: Sequence[int]) -> list[dict[str, object]]:
    """Return one row per configuration.

    Times are in seconds, throughput in samples/s, memory in bytes. Unknown is None.
    """
    front = set(sweep.front)
    latency, throughput = sweep.columns["latency"], sweep.columns["throughput"]
    found = list[dict[str, object]]()
    for i in numbers:
        strategy, outcome = sweep.configurations[i].strategy, sweep.outcomes[i]
        degrees = (strategy.data, strategy.tensor, strategy.pipeline, *_micro_batches(sweep.configurations[i]))
        ranks = ",".join(strategy.ranks(sweep.semantics).order)
        how = (strategy.schedule, str(strategy.recompute), strategy.zero, strategy.stages_per_device, ranks)
        known = not math.isnan(latency[i])
        times = (float(latency[i]), float(throughput[i])) if known else (None, None)
        peaks = (max(outcome.peaks), list(outcome.peaks)) if outcome.peaks else (None, None)
        chosen = {_COLUMN_OF_FIELD.get(name, name): getattr(strategy, name) for name in sweep.unusual}
        more = {name: None if value == "" else value for name, value in chosen.items()}
        came = (strategy.devices, *times, *peaks, i in front, outcome.reason or None, outcome.by_blocks)
        ways = dict(zip(_STRATEGY, (*degrees, *how), strict=True)) | more
        found.append({**_sizes(sweep, i), **ways, **dict(zip(_RESULT_COLUMNS, came, strict=True))})
    return found


def _sizes(sweep: GridResult, i: int) -> dict[str, Value]:
    """Return the sizes of the network. The dtype is "fp8" if the linear layers compute in FP8."""
    spec, strategy = sweep.configurations[i].spec, sweep.configurations[i].strategy
    return {**sweep.family.sizes_of(spec)} | ({"dtype": FP8} if strategy.fp8 else {})


def _micro_batches(each: Configuration) -> tuple[int | None, int | None]:
    """Return the number and the size of micro-batches. A value is None if the batch does not divide evenly."""
    if each.micro_batch_size is not None:
        return None if each.objection else each.strategy.micro_batches, each.micro_batch_size
    size, rest = divmod(each.spec.batch, each.strategy.data * each.strategy.micro_batches)
    return each.strategy.micro_batches, None if rest else size


def shown_rows(sweep: GridResult, numbers: Sequence[int]) -> list[dict[str, object]]:
    """Return rows for display, with units in the headings.

    Columns that are unknown or equal in all rows are left out.
    """
    latency, throughput, peak = (sweep.columns[name] for name in ("latency", "throughput", "peak_memory"))
    varying = _varying(sweep)
    found = list[dict[str, object]]()
    for i in numbers:
        strategy = sweep.configurations[i].strategy
        how, more = _choices(strategy), {_HEADINGS[name]: getattr(strategy, name) for name in sweep.unusual}
        sizes = {_heading(name): value for name, value in _sizes(sweep, i).items()}
        row: dict[str, object] = {
            "D": strategy.data,
            "H": strategy.tensor,
            "P": strategy.pipeline,
            **more,
            **dict(zip(("K", "Micro-batch size"), _micro_batches(sweep.configurations[i]), strict=True)),
            "Devices": strategy.devices,
            **{name: value for name, value in {**how, **sizes}.items() if name in varying},
        }
        if not math.isnan(latency[i]):
            row |= {"Step (ms)": latency[i] * 1e3, "Samples/s": throughput[i], "Peak memory (GB)": peak[i] / 1e9}
        found.append(row | ({"Why not": sweep.outcomes[i].reason} if sweep.outcomes[i].reason else {}))
    return found


_HEADINGS = {
    "context": "C",
    "expert": "E",
    "context_method": "Context method",
    "sequence_parallel": "Sequence parallel",
    "grad_dtype": "Gradients",
    "attention": "Attention",
    "compiled": "Compiled",
}


def _heading(size: str) -> str:
    return "Tokens before" if size == "context" else size.capitalize()


def _choices(strategy: Strategy) -> dict[str, object]:
    """Return the choices of a strategy other than its degrees of parallelism, by heading."""
    return {
        "Order": strategy.schedule,
        "Recomputes": str(strategy.recompute),
        "ZeRO": strategy.zero,
        "Stages per device": strategy.stages_per_device,
        "Ranks": rank_order_words(strategy.rank_order or DEFAULT_RANK_ORDER),
    }


def _varying(sweep: GridResult) -> set[str]:
    """Return the headings of columns that differ between configurations."""
    networks = {(each.spec, each.strategy.fp8): i for i, each in enumerate(sweep.configurations)}
    values: dict[str, set[object]] = {}
    for i in networks.values():
        for name, value in _sizes(sweep, i).items():
            values.setdefault(_heading(name), set()).add(value)
    for each in sweep.configurations:
        for name, choice in _choices(each.strategy).items():
            values.setdefault(name, set()).add(choice)
    return {name for name, found in values.items() if len(found) > 1}


def sweep_csv(sweep: GridResult) -> str:
    """Return all configurations as CSV. An infeasible one has its reason. Peaks of stages are separated by spaces."""
    text = io.StringIO()
    rows = sweep_rows(sweep, range(len(sweep)))
    writer = csv.DictWriter(text, list(rows[0]) if rows else (), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        peaks = row["stage_peak_memory"]
        assert peaks is None or isinstance(peaks, list)
        writer.writerow({**row, "stage_peak_memory": " ".join(map(str, peaks or ()))})
    return text.getvalue()


def sweep_document(sweep: GridResult) -> dict[str, object]:
    """Return the counts, the best row for each objective, the Pareto front, and the reasons for infeasibility."""
    ranked = {name: sweep.ranked(name)[:1] for name in OBJECTIVES}
    best = {name: sweep_rows(sweep, found)[0] if found else None for name, found in ranked.items()}
    return {
        "mesh": sweep.mesh.name,
        "configurations": len(sweep),
        "too_large": sweep.too_large,
        "feasible": int(sweep.feasible.sum()),
        "best": best,
        "front": sweep_rows(sweep, sweep.front),
        "reasons": sweep.reasons,
    }


def sweep_json(sweep: GridResult) -> str:
    """Return `sweep_document` with one further row for every configuration, as JSON."""
    rows = sweep_rows(sweep, range(len(sweep)))
    return json.dumps({**sweep_document(sweep), "rows": rows}, ensure_ascii=False) + "\n"
