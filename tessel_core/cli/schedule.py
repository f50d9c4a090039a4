"""`tessel schedule` and `tessel compare`: schedule a plan, or compare schedules."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tessel_core.cli.options import with_options
from tessel_core.cli.output import Json, Out, config_of, console, print_json, print_notes, table
from tessel_core.cli.solving import solve
from tessel_core.control import Control
from tessel_core.deadlock.as_written import timed_as_written
from tessel_core.errors import InputError
from tessel_core.formats import ScheduleFile, WorkspaceFile, read_file, schedule_text, write_file
from tessel_core.formats.files import a_kind, check_place, read_any
from tessel_core.formats.pytorch_csv import PyTorchCsv
from tessel_core.formats.pytorch_schedule import ASSUMED
from tessel_core.formats.schedule_file import plain_number
from tessel_core.inspection import IdleSplit, Jitter, idle_causes, steadiest, steady_idle_causes
from tessel_core.inspection.jitter import USUAL_DRAWS
from tessel_core.model import MemoryProfile, MicroBatchPlan, ScheduleReport
from tessel_core.model.receives import Receives
from tessel_core.networks.forms import NETWORKS, Terms
from tessel_core.options import options_of
from tessel_core.samples import sample_or_file
from tessel_core.scheduling import (
    DEFAULT_SCHEDULER,
    SCHEDULERS,
    Answer,
    Comparison,
    Question,
    Row,
    check_micro_batches,
    find_scheduler,
)
from tessel_core.scheduling import compare as compare_rows
from tessel_core.scheduling.comparison import Pair, drawable_of
from tessel_core.scheduling.forms import line_up
from tessel_core.scheduling.reports import evaluate
from tessel_core.units import counted
from tessel_core.workbench.messages.as_written import READINGS, wait_sentences
from tessel_core.workbench.messages.comparison import WHY_NOT, comparison_columns, work_notes
from tessel_core.workbench.messages.jitter import jitter_sentences
from tessel_core.workbench.messages.schedule import key_numbers, verdict

MICRO_BATCHES = 32

_KNOWN = ", ".join(SCHEDULERS)
_Plan = Annotated[
    str,
    typer.Argument(
        help="Plan: the name of a sample, a tessel-plan file, or a schedule whose plan is used. With --receives: a "
        "PyTorch CSV file."
    ),
]
_Plans = Annotated[
    list[str] | None,
    typer.Argument(help="Plans: names of samples, tessel-plan files, or schedules whose plans are used."),
]
_Scheduler = Annotated[str, typer.Option(help=f"Scheduler: {_KNOWN}.")]
_Schedulers = Annotated[
    list[str] | None,
    typer.Option(
        help=f"Schedulers, with commas between: {_KNOWN}. Default: all that apply to a "
        f"plan, except the slow time-optimal."
    ),
]
_Network = Annotated[
    str | None,
    typer.Option(
        help=f"Network to compare in place of plans: {', '.join(NETWORKS)}. Each published schedule runs on the "
        "pipeline shape that it needs, and the search on every shape."
    ),
]
_TERMS = {name: option for name, (option, _) in options_of(Terms).items()}
_Devices = Annotated[int | None, typer.Option(help=f"With --network: {_TERMS['devices'].help}")]
_MicroBatchSize = Annotated[int | None, typer.Option(help=f"With --network: {_TERMS['micro_batch'].help}")]
_Reference = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Row of the table that ratios refer to, counted from 1. Default: the first row by 1F1B, "
        "else by 1F1B+, else sequential.",
    ),
]
_JITTER = options_of(Jitter)
_Spread = Annotated[
    float | None,
    typer.Option(
        metavar="SPREAD",
        help=f"Draw random durations and compare the makespans. {_JITTER['spread'][0].help} For example, 0.1.",
    ),
]
_JitterOf = Annotated[str | None, typer.Option(help=f"With --jitter: {_JITTER['of'][0].help} [dim](default run)[/dim]")]
_Draws = Annotated[
    int | None,
    typer.Option(
        help=f"With --jitter: {_JITTER['draws'][0].help} Default: {USUAL_DRAWS:,}; fewer for schedules with "
        f"very many runs."
    ),
]
_MicroBatches = Annotated[int, typer.Option(help="Micro-batches to schedule.")]
_Receives = Annotated[
    Receives | None,
    typer.Option(
        help="For a PyTorch CSV file: search nothing, and time the order of the file. stream: each receive waits on a "
        "stream of its own; in-order: the rank computes nothing until the tensor has arrived."
    ),
]
_Memory = Annotated[
    int | None,
    typer.Option(
        help="Memory capacity of every device, in the memory unit of the plan "
        "(bytes with --network). Lowering it can lengthen schedules. Default: as in the plan."
    ),
]
_MIN_NUMBERS_COLUMNS = 100
"""Width of a terminal, in characters, from which key numbers are a table.

In a narrower terminal they are lines of text, which are easier to read.
"""
_FULL_TABLE_COLUMNS = 160
"""Width of a terminal that fits all columns of a comparison."""
_NARROW_JITTER_HEADINGS = "Pair", "Outcome", "Makespan (", "p50", "p95", "Chance"
"""First words of the column headings that a narrower terminal shows with `--jitter`."""


@with_options(SCHEDULERS.values())
def schedule(
    plan: _Plan,
    scheduler: _Scheduler = DEFAULT_SCHEDULER,
    out: Out = None,
    micro_batches: _MicroBatches = MICRO_BATCHES,
    memory: _Memory = None,
    receives: _Receives = None,
    json: Json = False,
    **given: Any,
) -> None:
    """Search or build a schedule of a plan, or time the order of a PyTorch CSV file."""
    if out is not None:
        check_place(out, sample_or_file(plan))
    if receives is not None:
        asked = {"--scheduler": scheduler != DEFAULT_SCHEDULER, "--micro-batches": micro_batches != MICRO_BATCHES}
        asked |= {f"--{name.replace('_', '-')}": said is not None for name, said in {"memory": memory, **given}.items()}
        if any(asked.values()):
            words = next(words for words, said in asked.items() if said)
            raise InputError(words, "has no effect with --receives, which times the order of the file")
        _as_written(plan, receives, out, as_json=json)
        return
    problem = _plan_in(plan, memory)
    question = Question(scheduler, problem, micro_batches, _config(scheduler, given))
    report = solve(question.solve, problem.time_unit)
    if out is not None and report.solution is not None:
        write_file(out, schedule_text(report.solution, report))
    _show(problem, report, as_json=json)
    raise typer.Exit(0 if report.solution is not None else 1)


@with_options(SCHEDULERS.values())
def compare(
    plans: _Plans = None,
    network: _Network = None,
    devices: _Devices = None,
    micro_batch_size: _MicroBatchSize = None,
    schedulers: _Schedulers = None,
    reference: _Reference = None,
    jitter: _Spread = None,
    jitter_of: _JitterOf = None,
    draws: _Draws = None,
    micro_batches: _MicroBatches = MICRO_BATCHES,
    memory: _Memory = None,
    json: Json = False,
    **given: Any,
) -> None:
    """Compare schedules in one table, with one row per plan and scheduler."""
    varied = _jitter(jitter, of=jitter_of, draws=draws, seed=given["seed"])
    if bool(plans) == bool(network):
        raise InputError("compare", "needs either plans or --network")
    for words, value in (("--devices", devices), ("--micro-batch-size", micro_batch_size)):
        if network is None and value is not None:
            raise InputError(words, "needs --network")
    if network is None:
        comparison = _pairs(plans or [], schedulers, micro_batches, memory, given)
    else:
        asked = {"devices": devices, "micro_batch": micro_batch_size, "capacity": _gigabytes(memory)}
        comparison = _one_model(network, asked, schedulers, micro_batches, given)
    if reference is not None:
        comparison = Comparison(comparison.pairs, reference - 1)
    answers: list[Answer] = []
    for number, pair in enumerate(comparison.pairs, start=1):
        place = f"{number} of {len(comparison.pairs)}: {pair.title}, {pair.plan.name}"
        answer, cancelled = solve(partial(_answer, pair), pair.plan.time_unit, what=place)
        answers.append(answer)
        if cancelled:
            break
    not_begun = Answer(complaint="cancelled before it began", begun=False)
    answers += [not_begun] * (len(comparison.pairs) - len(answers))
    if varied is not None and draws is None:
        varied = varied.affordable(drawable_of(answers))
    _show_comparison(comparison, answers, varied, as_json=json)
    raise typer.Exit(0 if any(answer.report and answer.report.solution for answer in answers) else 1)


def _as_written(name: str, receives: Receives, out: Path | None, *, as_json: bool) -> None:
    """Compute start times from the order of a PyTorch CSV file, and print which receives cause idle time."""
    found = read_any(sample_or_file(name), name)
    if not isinstance(found, PyTorchCsv):
        raise InputError(name, f"is {a_kind(found)}, but --receives needs a PyTorch CSV file")
    try:
        made = timed_as_written(found, receives)
    except InputError as error:
        raise error.within(name) from None
    report = evaluate(made.schedule, f"as written, receives {READINGS[receives]}")
    if out is not None:
        write_file(out, schedule_text(made.schedule, report))
    print_notes(name, [ASSUMED] if found.communicates else [ASSUMED, "the file contains no sends and receives"])
    if as_json:
        waits = [asdict(wait) for wait in made.waits]
        print_json({**_document(report), "receives": str(receives), "receive_waits": waits})
        return
    _show(made.schedule.plan, report, as_json=False)
    for sentence in wait_sentences(made.waits, made.schedule.plan.time_unit):
        sys.stdout.write(f"{sentence}\n")


def _jitter(spread: float | None, **given: object) -> Jitter | None:
    """Return the distribution of random durations. None without `--jitter`, which the other options of jitter need."""
    if spread is not None:
        found: Jitter = config_of(Jitter, {"spread": spread, **given}, spread="--jitter", of="--jitter-of")
        return found
    for name, words in (("of", "--jitter-of"), ("draws", "--draws")):
        if given[name] is not None:
            raise InputError(words, "needs --jitter SPREAD")
    return None


def _pairs(
    plans: list[str], schedulers: list[str] | None, micro_batches: int, memory: int | None, given: dict[str, Any]
) -> Comparison:
    comparison = Comparison()
    for problem in [_plan_in(each, memory) for each in plans]:
        check_micro_batches(problem, micro_batches)
        for name in _chosen(schedulers, problem):
            pair = Question(name, problem, micro_batches, _config(name, given, quiet=True))
            comparison = comparison.with_pair(pair)
    return comparison


def _gigabytes(memory: int | None) -> float | None:
    """Convert bytes to GB. Raises InputError if they are out of range for a device."""
    if memory is None:
        return None
    low, high = (round(limit * 1e9) for limit in (_TERMS["capacity"].low, _TERMS["capacity"].high))
    if not low <= memory <= high:
        raise InputError("--memory", f"must be between {low:,} and {high:,} bytes with --network, got {memory:,}")
    return memory / 1e9


def _one_model(
    network: str, asked: dict[str, Any], schedulers: list[str] | None, micro_batches: int, given: dict[str, Any]
) -> Comparison:
    """Return pairs of a network's plans and the given schedulers, or all schedulers.

    Notes name the pairs that are missing.
    """
    terms = config_of(Terms, asked, micro_batch="--micro-batch-size")
    configured = partial(_config, given=given, quiet=True)
    found = solve(
        lambda _: line_up(network, terms, micro_batches, configured), "ns", what=f"pipeline shapes of {network}"
    )
    print_notes(network, found.missing)
    if not schedulers:
        return found.comparison
    names = _named(schedulers)
    pairs = tuple(pair for pair in found.comparison.pairs if pair.scheduler in names)
    if not pairs:
        raise InputError("--schedulers", f"none of {', '.join(names)} applies to {network}")
    return Comparison(pairs)


def _answer(pair: Pair, control: Control) -> tuple[Answer, bool]:
    """Return the answer to a pair, and whether Ctrl-C was pressed."""
    return Answer.to(pair, control), control.cancelled


def _chosen(schedulers: list[str] | None, plan: MicroBatchPlan) -> list[str]:
    """Return the schedulers to compare on a plan. These are the schedulers that the user named, or all that apply."""
    if not schedulers:
        return [name for name, each in SCHEDULERS.items() if name != "time-optimal" and not each.objection(plan)]
    return _named(schedulers)


def _named(schedulers: list[str]) -> list[str]:
    names = [name.strip() for listed in schedulers for name in listed.split(",") if name.strip()]
    if not names:
        raise InputError("--schedulers", f"is empty; schedulers are {_KNOWN}")
    return [find_scheduler(name).name for name in dict.fromkeys(names)]


def _plan_in(name: str, memory: int | None) -> MicroBatchPlan:
    found = read_file(sample_or_file(name), name)
    plan = found.schedule.plan if isinstance(found, ScheduleFile) else found
    plan = plan.plan if isinstance(plan, WorkspaceFile) else plan
    return plan if memory is None else plan.with_capacity(memory)


def _config(scheduler: str, given: dict[str, Any], *, quiet: bool = False) -> object:
    """Build the config of a scheduler.

    Unless `quiet`, print a note for each given option that the scheduler does not have.
    """
    config: object = config_of(find_scheduler(scheduler).config, given, "" if quiet else f"scheduler {scheduler}")
    return config


def _document(report: ScheduleReport) -> dict[str, object]:
    """Return the `--json` document. Unknown values are null. Times and memory are in units of the plan."""
    steady, relaxed = report.steady, report.relaxed_solution
    steady_summary = None
    if (
        steady is not None and steady.repetend is not None
    ):  # The steady state with the least period may need more micro-batches than the schedule has.
        repetend = steady.repetend
        steady_summary = {"period": repetend.period, "unroll": repetend.unroll, "makespan": steady.makespan}
    phases = {"repetend_s": report.repetend_s, "completion_s": report.completion_s}
    return {
        "status": str(report.status),
        "objective_name": report.objective_name,
        "period": report.period,
        "unroll": report.unroll,
        "period_per_micro_batch": plain_number(report.period_per_micro_batch),
        "bound_per_micro_batch": plain_number(report.period_bound),
        "period_infimum": _infimum(report),
        "objective": plain_number(report.objective),
        "bound": plain_number(report.bound),
        "makespan": report.makespan,
        "makespan_bound": report.makespan_bound,
        "repetend_makespan": report.repetend_makespan,
        "steady": steady_summary,
        "bubble_rate": report.bubble_rate,
        "steady_bubble_rate": report.steady_bubble_rate,
        **_idle_rates(report),
        "peak_memory": None if report.peak_memory is None else list(report.peak_memory),
        "wall_s": report.wall_s,
        "phases": None if report.repetend_s is None else phases,
        "reason": report.reason,
        "least_capacity": report.least_capacity,
        "excess": None if relaxed is None else list(MemoryProfile.of(relaxed).excess),
    }


def _infimum(report: ScheduleReport) -> dict[str, object] | None:
    """Return the constants of the proof that no repetend attains the bound on the period, or None without one."""
    found = report.period_infimum
    if found is None:
        return None
    return {
        "per_micro_batch": plain_number(found.per_micro_batch),
        "excess": plain_number(found.excess),
        "above_micro_batches": found.micro_batches,
    }


def _idle_rates(report: ScheduleReport) -> dict[str, object]:
    """Return idle time of the schedule and of its steady state, split by parts and by causes, as shares of all device
    time."""
    drawn, steady = report.drawable, steadiest(report)
    causes = (
        None if drawn is None else idle_causes(drawn),
        None if steady is None else steady_idle_causes(steady),
    )
    found: dict[str, object] = {}
    for prefix, split, each in zip(("", "steady_"), IdleSplit.of_report(report), causes, strict=True):
        for part in ("idle", "imbalance", "unavoidable", "open"):
            value = None if split is None else getattr(split, part)
            found[f"{prefix}{part}_rate"] = None if value is None else float(value)
        found[f"{prefix}idle_causes"] = None if each is None else {str(c): float(s) for c, s in each.shares.items()}
    return found


def _show(plan: MicroBatchPlan, report: ScheduleReport, *, as_json: bool) -> None:
    """Print a schedule report as text or JSON."""
    if as_json:
        print_json(_document(report))
        return
    screen = console(f"{plan.name}, {report.solver}")
    screen.print(verdict(report, plan), soft_wrap=True)
    numbers = table(show_header=False)
    for number in key_numbers(report):
        numbers.add_row(number.label, number.value, f"[dim]{number.beside}[/dim]")
    console(width=max(screen.width, _MIN_NUMBERS_COLUMNS)).print(numbers)


def _show_comparison(
    comparison: Comparison, answers: Sequence[Answer], jitter: Jitter | None, *, as_json: bool
) -> None:
    """Print all pairs as a table, numbered for `--reference`, or as a JSON list."""
    rows = compare_rows(comparison, answers, jitter)
    if as_json:
        print_json([_pair_document(*each, jitter) for each in zip(comparison.pairs, answers, rows, strict=True)])
        return
    screen = console(counted(comparison.pairs[0].micro_batches, "micro-batch"))
    columns = comparison_columns(rows, comparison.pairs[0].plan.time_unit)
    shown = [
        each for each in columns if each.brief or (screen.width >= _FULL_TABLE_COLUMNS and each.heading != WHY_NOT)
    ]
    if jitter is not None and screen.width < _FULL_TABLE_COLUMNS:
        shown = [each for each in shown if each.heading.startswith(_NARROW_JITTER_HEADINGS)]
    filled = table("#", gap=1, header_style="bold")
    for column in shown:
        longest = max(len(word) for i in range(len(rows)) for word in (*column.heading.split(), column.shown(i)))
        narrow = None if column is shown[0] else longest
        side: Literal["left", "right"] = "right" if column.format else "left"
        filled.add_column(column.heading, justify=side, width=narrow, overflow="fold")
    for i in range(len(rows)):
        filled.add_row(str(i + 1), *(column.shown(i) for column in shown))
    screen.print(filled)
    for note in work_notes(rows):
        screen.print(note, soft_wrap=True)
    for i, row in enumerate(rows):
        if row.why_none:
            screen.print(f"{i + 1}: {row.why_none}", soft_wrap=True)
    for sentence in () if jitter is None else jitter_sentences(drawable_of(answers), jitter):
        screen.print(sentence, soft_wrap=True, markup=False)


def _pair_document(pair: Pair, answer: Answer, row: Row, jitter: Jitter | None) -> dict[str, object]:
    """Return the `--json` document of the pair. It is that of `tessel schedule`, with ratios to the reference."""
    return {
        "plan": pair.plan.name,
        "scheduler": pair.scheduler,
        "micro_batches": pair.micro_batches,
        "reference": row.is_reference,
        "makespan_ratio": row.makespan_ratio,
        "period_ratio": row.period_ratio,
        **({"status": None} if answer.report is None else _document(answer.report)),
        "reason": row.why_none,
        **({} if jitter is None else {"jitter": asdict(jitter), **_jitter_numbers(row)}),
    }


def _jitter_numbers(row: Row) -> dict[str, object]:
    """Return statistics of the makespan under jitter, in the time unit of the plan; null without a schedule.

    `order_makespan` is the makespan without jitter if every run starts as early as its order allows.
    """
    names = {"order_makespan": "nominal", "mean": "mean", "p50": "p50", "p95": "p95", "chance_to_win": "chance"}
    return {key: getattr(row.jittered, name, None) for key, name in names.items()}
