"""`tessel run SCHEDULE`: run a schedule in processes on this machine."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path

from tessel_core.cli.output import console, print_json, print_notes, table
from tessel_core.cli.solving import solve
from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.execution.ranks import RankError, Ranks
from tessel_core.execution.schedule_run import TOY, RunConfig, check_runnable
from tessel_core.execution.share import Timed
from tessel_core.formats import ScheduleFile, WorkspaceFile, write_file
from tessel_core.formats.files import check_place, contents_of, read_any
from tessel_core.formats.pytorch_csv import PyTorchCsv
from tessel_core.formats.run_file import run_file, run_text
from tessel_core.formats.schedule_file import schedule_file
from tessel_core.model import MicroBatchPlan, Schedule
from tessel_core.samples import sample_or_file
from tessel_core.scheduling import DEFAULT_SCHEDULER, Question, find_scheduler
from tessel_core.scheduling.reports import evaluate
from tessel_core.units import counted, show_time
from tessel_core.workbench.as_written import hang_of
from tessel_core.workbench.messages.running import (
    BLOCK_COLUMNS,
    DEVICE_COLUMNS,
    PREDICTED,
    WORST,
    again_sentence,
    block_rows,
    device_rows,
    equality_sentence,
    makespan_sentence,
    run_title,
)
from tessel_core.workbench.running import RunReport, in_the_order_of, measured_plan, run_and_report

_TIME_LIMIT_S = 7 * 86_400.0
_MIN_NOTED_NS = 20e9


class Rounds(Enum):
    """Number of times that a schedule runs."""

    ONCE = 1
    MEASURED = 3
    """Three runs. The last run is compared with the prediction from the run before it."""
    AGAIN = 6
    """Six runs.

    The first three are those of `MEASURED`. Then a search with the measured durations finds a second schedule, which
    runs three times.
    """


def run_schedule_file(
    file: ScheduleFile,
    config: RunConfig,
    rounds: Rounds = Rounds.ONCE,
    *,
    out: Path | None = None,
    source: Path | None = None,
    as_json: bool = False,
) -> int:
    """Run a schedule that was read from `source`, show the result, and write it to `out`.

    If a second schedule was searched, its run is written.  Returns the exit code: 1 if ranks and one process compute
    different numbers, a rank ends early or Ctrl-C stops the run.  Raises InputError if the schedule cannot run.
    """
    schedule = file.schedule
    check_place(out, source)
    check_runnable(schedule, config)
    if config.blocks != TOY:
        _note_length(schedule, config, rounds)

    try:
        report = _run(schedule, config, rounds)
        found = None if rounds is not Rounds.AGAIN else _searched_again(report)
        again = None if found is None else _run(found.schedule, config, rounds)
    except RankError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    last_file, last = found or file, again or report
    if out is not None:
        write_file(out, run_text(run_file(last.run, last_file)))
    if as_json:
        more = {} if again is None else {"searched_again": _document(last_file, again)}
        print_json(_document(file, report) | more)
    else:
        _show(report)
        if again is not None:
            _show(again)
            sys.stdout.write(f"{again_sentence(report, again)}\n")
    return 1 if False in (report.run.equal, last.run.equal) else 0


def _run(schedule: Schedule, config: RunConfig, rounds: Rounds) -> RunReport:
    """Run the schedule in new processes, with a progress line in the terminal."""

    def call(control: Control) -> RunReport:
        with Ranks(len(schedule.plan.devices)) as ranks:
            news = _progress(control, len(schedule.start))
            return run_and_report(schedule, config, ranks, control, news, measure=rounds is not Rounds.ONCE)

    return solve(call, "ns", _TIME_LIMIT_S, what=schedule.plan.name)


def _note_length(schedule: Schedule, config: RunConfig, rounds: Rounds) -> None:
    """Print a note if stand-ins will run for long."""
    lasts = float(config.scale_for(schedule).time * schedule.makespan * rounds.value)
    if lasts > _MIN_NOTED_NS:
        print_notes(schedule.plan.name, [f"will sleep or compute for about {show_time(lasts, 'ns')}"])


def _searched_again(report: RunReport) -> ScheduleFile:
    """Return a schedule of the same plan in the order that a search with the measured durations finds."""
    was = report.run.schedule
    plan = measured_plan(report.run)
    question = Question(DEFAULT_SCHEDULER, plan, was.micro_batches, find_scheduler(DEFAULT_SCHEDULER).config())
    answer = solve(question.solve, plan.time_unit)
    if answer.solution is None:
        raise InputError("--search-again", f"found no schedule with the measured durations: {answer.reason}")
    found = evaluate(in_the_order_of(answer.solution, was.plan), DEFAULT_SCHEDULER)
    assert found.solution is not None
    return schedule_file(found.solution, found)


def schedule_or_plan(what: str) -> ScheduleFile | MicroBatchPlan:
    """Read the schedule or plan of a file or sample.

    A workspace gives its schedule if it has one, or else its plan. Raises InputError for other files, and for a PyTorch
    CSV whose sends and receives hang.
    """
    known = read_any(sample_or_file(what), what)
    found = contents_of(known, what)
    if isinstance(known, PyTorchCsv) and isinstance(found, ScheduleFile):
        hang = hang_of(known, found.schedule.plan)
        if hang is not None:
            raise InputError(what, f"{hang.sentence[0].lower()}{hang.sentence[1:]}")
    return (found.opened or found.plan) if isinstance(found, WorkspaceFile) else found


def scheduled(plan: MicroBatchPlan, what: str, scheduler: str, micro_batches: int) -> ScheduleFile:
    """Schedule a plan. Raises InputError about `what` if the scheduler finds no schedule."""
    question = Question(scheduler, plan, micro_batches, find_scheduler(scheduler).config())
    report = solve(question.solve, plan.time_unit)
    if report.solution is None:
        many = counted(micro_batches, "micro-batch")
        raise InputError(what, f"{scheduler} found no schedule of {many}: {report.reason}")
    return schedule_file(report.solution, report)


def _progress(control: Control, runs: int) -> Callable[[int, Sequence[Timed]], None]:
    done = 0

    def count(rank: int, timed: Sequence[Timed]) -> None:
        nonlocal done
        done += len(timed)
        control.report(f"{done:,} of {runs:,} blocks ran, counted on each of their ranks;", None, None)

    return count


def _document(file: ScheduleFile, report: RunReport) -> dict[str, object]:
    """Return the `--json` document: times in ns, memory in bytes, idle time as shares.

    Values are null if nothing was compared or predicted.
    """
    run, found, prediction = report.run, report.equality, report.prediction
    return {
        "plan": run.schedule.plan.name,
        "scheduler": file.scheduler,
        "micro_batches": run.schedule.micro_batches,
        "ranks": len(run.schedule.plan.devices),
        "blocks": run.engine,
        "equal": run.equal,
        "difference": run.difference,
        "worst": None if found is None else found.worst,
        "tensors": None if found is None else found.tensors,
        "losses": list(run.losses),
        "makespan_ns": run.makespan_ns,
        "idle": list(run.idle),
        "peak_bytes": list(run.peak_bytes),
        "predicted": None
        if prediction is None
        else {
            "makespan_ns": math.ceil(prediction.makespan_ns),
            "ratio": report.ratio,
            "idle": list(prediction.idle),
            "peak_bytes": list(prediction.peak_bytes),
            "blocks": [
                {"block": name, "predicted_ns": predicted, "measured_ns": measured}
                for name, predicted, measured in report.worst_blocks
            ],
        },
    }


def _show(report: RunReport) -> None:
    screen = console(run_title(report))
    for sentence in (equality_sentence(report), makespan_sentence(report)):
        if sentence:
            screen.print(sentence, soft_wrap=True, markup=False)
    predicted = report.prediction is not None
    columns = [i for i, name in enumerate(DEVICE_COLUMNS) if predicted or not name.startswith(PREDICTED)]
    devices = table(*(DEVICE_COLUMNS[i] for i in columns), header_style="bold")
    for row in device_rows(report):
        devices.add_row(*(row[i] for i in columns))
    screen.print(devices)
    if predicted:
        blocks = table(*BLOCK_COLUMNS, header_style="bold")
        for row in block_rows(report)[:WORST]:
            blocks.add_row(*row)
        screen.print("Blocks that differ most from the prediction:", style="dim")
        screen.print(blocks)
