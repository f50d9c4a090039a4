"""A run in sentences and rows, the same on every surface."""

from __future__ import annotations

import math

from tessel_core.execution.schedule_run import BLOCKS
from tessel_core.units import show_memory, show_time
from tessel_core.workbench.running import RunReport

WORST = 5
"""Blocks that are named."""
DEVICE_COLUMNS = ("Device", "Idle", "predicted", "Peak", "predicted")
BLOCK_COLUMNS = ("Block", "Lasts", "predicted")


def run_title(report: RunReport) -> str:
    """What ran."""
    schedule, plural = report.run.schedule, "" if report.run.schedule.micro_batches == 1 else "es"
    ranks = len(schedule.plan.devices)
    batches = f"{schedule.micro_batches} micro-batch{plural}"
    return f"{schedule.plan.name}: {batches} on {ranks} rank{'' if ranks == 1 else 's'}, {BLOCKS[report.run.engine]}"


def equality_sentence(report: RunReport) -> str:
    """Whether ranks and one process compute the same; empty of stand-ins."""
    found, equal = report.equality, report.run.equal
    if found is None:
        return ""
    what = "All losses and gradients" if report.run.losses else "All outputs"
    if not math.isfinite(found.difference):
        return f"{what} were to equal those of one process, and there is {found.worst}."
    off = f"the largest difference is {found.difference:.1e} of the largest number, in the {found.worst}"
    return (
        f"{what} {'equal' if equal else 'do NOT equal'} those of one process: {off} ({found.tensors} tensors compared)."
    )


def makespan_sentence(report: RunReport) -> str:
    """How long it took, beside what was predicted."""
    lasted = f"It took {show_time(report.run.makespan_ns, 'ns')}"
    if report.prediction is None or report.ratio is None:
        return f"{lasted}."
    predicted = f"{show_time(report.prediction.makespan_ns, 'ns')} predicted from {report.prediction.source}"
    return f"{lasted}, {report.ratio:.3f} times the {predicted}."


def device_rows(report: RunReport) -> list[tuple[str, ...]]:
    """Per device, under `DEVICE_COLUMNS`; empty where nothing was predicted."""
    run, prediction = report.run, report.prediction
    rows = list[tuple[str, ...]]()
    for d, device in enumerate(run.schedule.plan.devices):
        idle = _percent(prediction.idle[d]) if prediction else ""
        peak = show_memory(prediction.peak_bytes[d], "B") if prediction else ""
        rows.append((device.name, _percent(run.idle[d]), idle, show_memory(run.peak_bytes[d], "B"), peak))
    return rows


def block_rows(report: RunReport) -> list[tuple[str, ...]]:
    """The blocks that differ most from what was predicted, under `BLOCK_COLUMNS`."""
    return [
        (name, show_time(measured, "ns"), show_time(predicted, "ns"))
        for name, predicted, measured in report.worst_blocks[:WORST]
    ]


def _percent(share: float) -> str:
    return f"{share:.1%}"
