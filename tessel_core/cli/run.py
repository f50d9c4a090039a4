"""`tessel run`: a network under a strategy, a program, a schedule, or a toy, on processes of this machine."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tessel_core.cli import options
from tessel_core.cli.network import AskedNetwork
from tessel_core.cli.output import Json, config_of, option
from tessel_core.errors import InputError
from tessel_core.execution.program_run import Engine
from tessel_core.formats.files import is_onnx, read_bytes
from tessel_core.samples import sample_or_file
from tessel_core.strategies.families import FAMILIES
from tessel_core.torch_extra import need_torch

if TYPE_CHECKING:
    from tessel_core.execution.schedule_run import RunConfig

_MICRO_BATCHES = 8
"""Of a plan that is scheduled first."""


@dataclass(frozen=True)
class HowToRun:
    """The other options, an attribute each."""

    engine: Annotated[
        Engine,
        typer.Option(help="torch: a process for each device; numpy: one process, as a reference. Of networks."),
    ] = Engine.TORCH
    steps: Annotated[int, typer.Option(help="Number of steps, of networks; weights and state are carried over.")] = 1
    scheduler: Annotated[str | None, typer.Option(help="The search of a plan. Default: tessel.")] = None
    stand_ins: Annotated[
        bool,
        typer.Option(
            "--stand-ins", help="Blocks of a schedule sleep for the plan's durations, scaled, and hold its memory."
        ),
    ] = False
    compute: Annotated[bool, typer.Option("--compute", help="With --stand-ins: they compute while they last.")] = False
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Run a schedule again, and hold that against what the first run predicts."),
    ] = False
    search_again: Annotated[
        bool,
        typer.Option(
            "--search-again", help="Measure a schedule, search with what was measured, and measure what is found too."
        ),
    ] = False
    scale: Annotated[
        float | None, typer.Option(help="With --stand-ins: nanoseconds for one unit of the plan's time.")
    ] = None
    samples: Annotated[int | None, typer.Option(help="Samples in one micro-batch of a schedule.")] = None
    seed: Annotated[int, typer.Option(help="Seed of weights and data.")] = 0
    out: Annotated[
        Path | None,
        typer.Option(
            help="File: of a network its outputs, losses, gradients and new weights, undistributed (.npz); of a "
            "schedule, the run."
        ),
    ] = None


_OF_SCHEDULES = frozenset(("scheduler", "stand_ins", "compute", "measure", "search_again", "scale", "samples"))
_OF_BOTH = frozenset(("what", "micro_batches", "width", "dtype", "seed", "out"))


@options.field_by_field
def run(asked: AskedNetwork, how: HowToRun, json: Json = False) -> None:
    """Run a network under a strategy, a program, a schedule or a toy on processes of this machine."""
    if _is_toy(asked):
        raise typer.Exit(_run_toy(asked, how, as_json=json))
    if _is_schedule(asked):
        raise typer.Exit(_run_schedule(asked, how, as_json=json))
    _refuse(how, _OF_SCHEDULES, f"is for schedules, and {asked.what} is a {'family' if asked.in_family else 'program'}")
    from tessel_core.cli.run_program import run_asked_program

    raise typer.Exit(run_asked_program(asked, how.engine, seed=how.seed, steps=how.steps, out=how.out, as_json=json))


def _is_toy(asked: AskedNetwork) -> bool:
    """Whether a Python script is asked for, which `tessel recommend --launch torch` writes."""
    return not asked.torch and Path(asked.what).suffix == ".py"


def _run_toy(asked: AskedNetwork, how: HowToRun, *, as_json: bool) -> int:
    """Run the script as it is, and return its exit code.  InputError for a script that Tessel has not written."""
    from tessel_core.exports.toy import WRITTEN_BY

    why = f"is for networks, programs and schedules, and {asked.what} is a script"
    for options_of in (asked, how):
        _refuse(options_of, frozenset(field.name for field in fields(options_of)) - {"what"}, why)
    if as_json:
        raise InputError("--json", why)
    path = Path(asked.what)
    if WRITTEN_BY.encode() not in read_bytes(path):
        raise InputError(asked.what, "is no script of `tessel recommend --launch torch`; Python runs other scripts")
    need_torch("tessel run")
    return subprocess.run([sys.executable, str(path)], check=False).returncode


def _is_schedule(asked: AskedNetwork) -> bool:
    """Whether a plan or a schedule is asked for: a sample, or a file that is neither a program's text nor ONNX."""
    if asked.in_family or asked.torch:
        return False
    try:
        path = sample_or_file(asked.what)
    except InputError as error:
        raise InputError(error.where, f"{error.why}; families are {', '.join(FAMILIES)}") from None
    data = read_bytes(path)
    return not (is_onnx(data, path.name) or path.suffix == ".txt" or data.lstrip().startswith((b"program ", b"#")))


def _refuse(given: AskedNetwork | HowToRun, names: frozenset[str], why: str) -> None:
    """Raise InputError for an option that was given and is not for what is asked."""
    for field in fields(given):
        if field.name in names and getattr(given, field.name) != field.default:
            raise InputError("--set" if field.name == "sizes" else option(field.name), why)


def _run_schedule(asked: AskedNetwork, how: HowToRun, *, as_json: bool) -> int:
    for options_of in (asked, how):
        others = frozenset(field.name for field in fields(options_of)) - _OF_SCHEDULES - _OF_BOTH
        _refuse(options_of, others, f"is for networks and programs, and {asked.what} is neither")
    config = _run_config(asked, how)
    from tessel_core.cli.run_schedule import Rounds, run_schedule_file, schedule_or_plan, scheduled
    from tessel_core.formats import ScheduleFile
    from tessel_core.scheduling import DEFAULT_SCHEDULER

    found = schedule_or_plan(asked.what)
    if isinstance(found, ScheduleFile):
        for name, value in {"scheduler": how.scheduler, "micro_batches": asked.micro_batches}.items():
            if value is not None:
                raise InputError(option(name), f"is for plans, and {asked.what} holds a schedule")
    else:
        many = _MICRO_BATCHES if asked.micro_batches is None else asked.micro_batches
        found = scheduled(found, asked.what, how.scheduler or DEFAULT_SCHEDULER, many)
    how_often = Rounds.AGAIN if how.search_again else Rounds.MEASURED if how.measure else Rounds.ONCE
    return run_schedule_file(found, config, how_often, out=how.out, source=sample_or_file(asked.what), as_json=as_json)


def _run_config(asked: AskedNetwork, how: HowToRun) -> RunConfig:
    """What the blocks are; InputError for options that do not go together or are out of range."""
    from tessel_core.execution.schedule_run import TOY, RunConfig
    from tessel_core.execution.stand_ins import COMPUTE, SLEEP

    for name, usual in {"compute": False, "scale": None}.items():
        if getattr(how, name) != usual and not how.stand_ins:
            raise InputError(option(name), "needs --stand-ins")
    if how.scale is not None and not how.scale > 0:
        raise InputError("--scale", f"must be above 0, got {how.scale:g}")
    of_toys = {"width": asked.width, "dtype": asked.dtype, "samples": how.samples}
    for name, value in of_toys.items():
        if how.stand_ins and value is not None:
            raise InputError(option(name), "is of the toy network, and --stand-ins run none")
    blocks = (COMPUTE if how.compute else SLEEP) if how.stand_ins else TOY
    config: RunConfig = config_of(RunConfig, {"blocks": blocks, "scale": how.scale, "seed": how.seed, **of_toys})
    return config
