"""`tessel schedule` and `tessel compare`: one schedule of a plan, or many side by side."""

from __future__ import annotations

import inspect
import sys
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from tessel_core.cli.output import print_comparison, print_schedule
from tessel_core.cli.solving import solving
from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.formats import ScheduleFile, WorkspaceFile, check_place, read_file, schedule_text, write_file
from tessel_core.model import MicroBatchPlan
from tessel_core.options import check_options, options_of
from tessel_core.samples import sample_or_file
from tessel_core.scheduling import (
    DEFAULT_SCHEDULER,
    SCHEDULERS,
    Answer,
    Comparison,
    Question,
    check_micro_batches,
    find_scheduler,
)

MICRO_BATCHES = 32

_KNOWN = ", ".join(SCHEDULERS)
_Plan = Annotated[str, typer.Argument(help="A sample's name, a tessel-plan file, or a schedule whose plan to use.")]
_Plans = Annotated[
    list[str], typer.Argument(help="Samples' names, tessel-plan files, or schedules whose plans to use.")
]
_Scheduler = Annotated[str, typer.Option(help=f"One of {_KNOWN}.")]
_Schedulers = Annotated[
    list[str] | None, typer.Option(help=f"Some of {_KNOWN}; without it all that suit a plan but the slow time-optimal.")
]
_Reference = Annotated[int | None, typer.Option(min=1, help="Number of the pair that ratios refer to.")]
_MicroBatches = Annotated[int, typer.Option(help="How many micro-batches to schedule.")]
_Memory = Annotated[int | None, typer.Option(help="Replaces every device's memory_capacity.")]
_Out = Annotated[Path | None, typer.Option(help="File to write; nothing is written without a solution.")]
_Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def schedule(
    plan: str, scheduler: str, micro_batches: int, memory: int | None, out: Path | None, json: bool, **given: Any
) -> None:
    """Search or build a schedule of a plan."""
    source = sample_or_file(plan)
    if out is not None:
        check_place(out, source)
    problem = _plan_in(source, memory)
    question = Question(scheduler, problem, micro_batches, _config(scheduler, given))
    with solving(problem.time_unit) as solve:
        report = solve(question.solve)
    if out is not None and report.solution is not None:
        write_file(out, schedule_text(report.solution, report))
    print_schedule(problem, report, as_json=json)
    raise typer.Exit(0 if report.solution is not None else 1)


def compare(
    plans: list[str],
    schedulers: list[str] | None,
    micro_batches: int,
    memory: int | None,
    reference: int | None,
    json: bool,
    **given: Any,
) -> None:
    """Schedules side by side: one table over (plan, scheduler) pairs."""
    comparison = Comparison()
    for problem in [_plan_in(sample_or_file(each), memory) for each in plans]:
        check_micro_batches(problem, micro_batches)
        for name in _chosen(schedulers, problem):
            pair = Question(name, problem, micro_batches, _config(name, given, quiet=True))
            comparison = comparison.with_pair(pair)
    if reference is not None:
        comparison = Comparison(comparison.pairs, reference - 1)
    answers: list[Answer] = []
    for pair in comparison.pairs:
        with solving(pair.plan.time_unit) as solve:
            answer, cancelled = solve(partial(_answer, pair))
        answers.append(answer)
        if cancelled:
            break
    not_begun = Answer(complaint="cancelled before its turn", begun=False)
    answers += [not_begun] * (len(comparison.pairs) - len(answers))
    print_comparison(comparison, answers, as_json=json)
    raise typer.Exit(0 if any(answer.report and answer.report.solution for answer in answers) else 1)


def _answer(pair: Question, control: Control) -> tuple[Answer, bool]:
    """The answer to a pair, and whether Ctrl-C came."""
    return Answer.to(pair, control), control.cancelled


def _chosen(schedulers: list[str] | None, plan: MicroBatchPlan) -> list[str]:
    """The schedulers to compare on a plan: those named, else all that suit."""
    if not schedulers:
        return [name for name, each in SCHEDULERS.items() if name != "time-optimal" and not each.objection(plan)]
    names = [name.strip() for words in schedulers for name in words.split(",") if name.strip()]
    if not names:
        raise InputError("--schedulers", f"names none, known are {_KNOWN}")
    return [find_scheduler(name).name for name in dict.fromkeys(names)]


def _plan_in(path: Path, memory: int | None) -> MicroBatchPlan:
    found = read_file(path)
    plan = found.schedule.plan if isinstance(found, ScheduleFile) else found
    plan = plan.plan if isinstance(plan, WorkspaceFile) else plan
    return plan if memory is None else plan.with_capacity(memory)


def _config(scheduler: str, given: dict[str, Any], *, quiet: bool = False) -> object:
    """The scheduler's config from the options that were given; those that it does not have are left out, and said."""
    config = find_scheduler(scheduler).config
    known = {field.name for field in fields(config)}
    chosen = {name: value for name, value in given.items() if value is not None}
    for name in sorted(chosen.keys() - known):
        if not quiet:
            sys.stderr.write(f"note: --{name.replace('_', '-')} has no effect on scheduler {scheduler}\n")
    found = config(**{name: value for name, value in chosen.items() if name in known})
    check_options(found)
    return found


def _with_options(command: Any, **own: tuple[Any, Any]) -> None:
    """Give a command its own parameters, name to (annotation, default), and every option of every scheduler."""
    parameters = dict(own)
    for each in SCHEDULERS.values():
        for name, (shown, default) in options_of(each.config).items():
            text = f"{shown.label}: {shown.help} [dim](default {default}{' ' + shown.unit if shown.unit else ''})[/dim]"
            asked = typer.Option(help=text, show_default=False)
            parameters.setdefault(name, (Annotated[type(default) | None, asked], None))
    kind = inspect.Parameter.KEYWORD_ONLY
    command.__signature__ = inspect.Signature(
        [inspect.Parameter(name, kind, default=default, annotation=a) for name, (a, default) in parameters.items()]
    )
    command.__annotations__ = {name: annotation for name, (annotation, _) in parameters.items()}


_NEEDED = inspect.Parameter.empty
_COMMON = {"micro_batches": (_MicroBatches, MICRO_BATCHES), "memory": (_Memory, None), "json": (_Json, False)}
_with_options(schedule, plan=(_Plan, _NEEDED), scheduler=(_Scheduler, DEFAULT_SCHEDULER), out=(_Out, None), **_COMMON)
_with_options(compare, plans=(_Plans, _NEEDED), schedulers=(_Schedulers, None), reference=(_Reference, None), **_COMMON)
