"""Describe a run of a schedule in sentences, key numbers and table rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from tessel_core.execution.schedule_run import BLOCKS
from tessel_core.execution.share import Timed
from tessel_core.units import counted, show_memory, show_time
from tessel_core.workbench.messages.schedule import KeyNumber
from tessel_core.workbench.messages.timeline import PLACE, About
from tessel_core.workbench.running import RunQuestion, RunReport

WORST = 5
"""Number of blocks in the table of the largest differences."""
PREDICTED = "Predicted"
"""First word of the headings of columns that are empty without a prediction."""
DEVICE_COLUMNS = ("Device", "Idle", f"{PREDICTED} idle", "Peak memory", f"{PREDICTED} peak")
BLOCK_COLUMNS = ("Block", "Lasts", PREDICTED)


def progress_sentence(question: RunQuestion, parts: Collection[tuple[int, Sequence[Timed]]]) -> str:
    """Return a sentence on the progress of a run. It counts the blocks whose results have arrived."""
    if not parts:
        return "Starting the processes"
    done, total = len(question.latest(parts)), sum(map(len, question.schedule.plan.blocks_on))
    rounds = "" if not question.measure else f", round {question.round_of(parts) + 1} of 3"
    return f"{done:,} of {total * question.schedule.micro_batches:,} blocks ran{rounds}"


def run_title(report: RunReport) -> str:
    """Return a title for a run with its plan, its size and the kind of its blocks."""
    schedule = report.run.schedule
    batches, ranks = counted(schedule.micro_batches, "micro-batch"), counted(len(schedule.plan.devices), "rank")
    return f"{schedule.plan.name}: {batches} on {ranks}, {BLOCKS[report.run.engine]}"


def equality_sentence(report: RunReport) -> str:
    """Return a sentence on whether the ranks compute the same values as one process.

    Empty for stand-ins, which compute nothing.
    """
    found, equal = report.equality, report.run.equal
    if equal is None:
        return ""
    what = "All losses and gradients" if report.run.losses else "All outputs"
    verdict = f"{what} {'equal' if equal else 'do NOT equal'} those of one process"
    if report.run.difference is None:
        return f"{verdict}: there is {found.worst}." if found else f"{verdict}: some are missing."
    off = f"the largest difference is {report.run.difference:.1e} of the largest number"
    where = f", in the {found.worst} ({found.tensors} tensors compared)" if found else ""
    return f"{verdict}: {off}{where}."


def makespan_sentence(report: RunReport) -> str:
    """Return the measured makespan, compared with the predicted one."""
    lasted = f"It took {show_time(report.run.makespan_ns, 'ns')}"
    if report.prediction is None or report.ratio is None:
        return f"{lasted}."
    predicted = f"{show_time(report.prediction.makespan_ns, 'ns')} predicted from {report.prediction.source}"
    return f"{lasted}, {report.ratio:.3f} times the {predicted}."


def again_sentence(first: RunReport, second: RunReport) -> str:
    """Return a sentence that compares the makespan before and after a second search with measured durations."""
    before, after = first.run.makespan_ns, second.run.makespan_ns
    lasted = f"{show_time(after, 'ns')} instead of {show_time(before, 'ns')}, {after / before:.3f} times as long"
    return f"After a second search with measured durations it takes {lasted}."


def device_rows(report: RunReport) -> list[tuple[str, ...]]:
    """Return one row per device, with the cells of `DEVICE_COLUMNS`. Predicted cells are empty without a prediction."""
    run, prediction = report.run, report.prediction
    rows = list[tuple[str, ...]]()
    for d, device in enumerate(run.schedule.plan.devices):
        idle = _percent(prediction.idle[d]) if prediction else ""
        peak = show_memory(prediction.peak_bytes[d], "B") if prediction else ""
        rows.append((device.name, _percent(run.idle[d]), idle, show_memory(run.peak_bytes[d], "B"), peak))
    return rows


def block_rows(report: RunReport) -> list[tuple[str, ...]]:
    """Return one row per block, with the cells of `BLOCK_COLUMNS`, largest difference from the prediction first."""
    names = [block.name for block in report.run.schedule.plan.blocks]
    found = report.worst_blocks or [(name, None, ns) for name, ns in zip(names, report.run.block_ns, strict=True)]
    return [
        (name, show_time(measured, "ns"), "" if predicted is None else show_time(predicted, "ns"))
        for name, predicted, measured in found
    ]


def run_numbers(report: RunReport) -> tuple[KeyNumber, ...]:
    """Return the key numbers of a run."""
    run, prediction = report.run, report.prediction
    idle, peak = sum(run.idle) / len(run.idle), max(run.peak_bytes)
    fullest = run.schedule.plan.devices[run.peak_bytes.index(peak)].name
    beside = {"makespan": "", "idle": ""}
    if prediction is not None:
        beside["makespan"] = f"predicted {show_time(prediction.makespan_ns, 'ns')}"
        beside["idle"] = f"predicted {_percent(sum(prediction.idle) / len(prediction.idle))}"
    found = [
        KeyNumber("Makespan", show_time(run.makespan_ns, "ns"), beside["makespan"], _MAKESPAN),
        KeyNumber("Idle", _percent(idle), beside["idle"], _IDLE),
        KeyNumber("Fullest device", show_memory(peak, "B"), f"on {fullest}", _FULLEST),
    ]
    if prediction is not None:
        found.insert(1, KeyNumber("Measured / predicted", f"{report.ratio:.3f}", f"from {prediction.source}", _RATIO))
    if run.losses:
        mean = sum(run.losses) / len(run.losses)
        found.append(KeyNumber("Loss", f"{mean:.4g}", f"mean of {len(run.losses):,}", _LOSS))
    return tuple(found)


_MAKESPAN = "Time from the common start to the last end."
_IDLE = "Share of the time in which a device runs no block, mean over devices."
_FULLEST = "Largest memory that the blocks of a device held at one time."
_RATIO = "Measured makespan / predicted makespan."
_LOSS = "Mean loss of the micro-batches, before any update of the weights."


def about_run(report: RunReport, of_measured: bool, place: str) -> About:
    """Explain how the run of a block differs from its prediction. Empty if the place is not a run."""
    match, prediction = re.fullmatch(PLACE, place), report.prediction
    if match is None or match["block"] is None or prediction is None or not of_measured:
        return About()
    row, device = int(match["block"]), int(match["micro_batch"])
    run = report.run
    if row >= len(run.schedule.start):
        return About()
    b, m = int(run.schedule.block[row]), int(run.schedule.micro_batch[row])
    block = run.schedule.plan.blocks[b]
    if device not in block.devices:
        return About()
    at = block.devices.index(device)
    began, lasted = run.start_ns[row][at], run.end_ns[row][at] - run.start_ns[row][at]
    wanted, lasting = prediction.start_of(b, m), prediction.block_ns[b]
    late = f"{show_time(abs(began - wanted), 'ns')} {'later' if began > wanted else 'earlier'} than predicted."
    return About((("Began", (late,)), ("Lasted", (f"{lasted / lasting:.3f} times as long as predicted.",))))


def _percent(share: float) -> str:
    return f"{share:.1%}"
