"""`tessel run`: run a network under a strategy, a program, a schedule or a toy in processes on this machine."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tessel_core.cli import options
from tessel_core.cli.network import AskedNetwork, refuse_all_but
from tessel_core.cli.output import Json, config_of, option
from tessel_core.errors import InputError
from tessel_core.execution.program_run import Engine
from tessel_core.formats.files import is_onnx, read_bytes
from tessel_core.samples import sample_or_file
from tessel_core.strategies.families import FAMILIES
from tessel_core.torch_extra import need_torch

if TYPE_CHECKING:
    from tessel_core.execution.schedule_run import RunConfig

_DEFAULT_MICRO_BATCHES = 8
"""Number of micro-batches of a plan by default. The plan is scheduled before it runs."""


@dataclass(frozen=True)
class HowToRun:
    """Options that only `tessel run` has, one attribute per option."""

    engine: Annotated[
        Engine,
        typer.Option(
            help="Engine for networks and programs. torch: PyTorch, one process per device; numpy: one "
            "process, as a reference."
        ),
    ] = Engine.TORCH
    steps: Annotated[
        int,
        typer.Option(
            help="For networks and programs: steps to run. Each step continues with the "
            "weights and optimizer state of the step before."
        ),
    ] = 1
    scheduler: Annotated[
        str | None, typer.Option(help="For a plan: scheduler that schedules it before it runs. Default: tessel.")
    ] = None
    stand_ins: Annotated[
        bool,
        typer.Option(
            "--stand-ins",
            help="For a schedule: run blocks that only sleep for the plan's durations and hold the plan's memory, in "
            "place of a toy network.",
        ),
    ] = False
    compute: Annotated[
        bool, typer.Option("--compute", help="With --stand-ins: blocks compute in place of sleeping.")
    ] = False
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="For a schedule: run it two more times, and compare the last run with the "
            "prediction of the one before.",
        ),
    ] = False
    search_again: Annotated[
        bool,
        typer.Option(
            "--search-again",
            help="For a schedule: measure it, search again with the measured durations, and measure the new schedule "
            "too.",
        ),
    ] = False
    scale: Annotated[
        float | None,
        typer.Option(
            help="With --stand-ins: nanoseconds per time unit of the plan. Raising it makes blocks last longer."
        ),
    ] = None
    samples: Annotated[int | None, typer.Option(help="For a schedule: samples per micro-batch of the toy network.")] = (
        None
    )
    seed: Annotated[int, typer.Option(help="Seed of weights and data.")] = 0
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the result. For a network or program, an .npz file with whole outputs, losses, gradients "
            "and new weights; for a schedule, a file of the measured run."
        ),
    ] = None


_OF_PROGRAMS = ("engine", "steps", "seed", "out")
_OF_SCHEDULES = (
    *("scheduler", "stand_ins", "compute", "measure", "search_again", "scale", "samples", "seed", "out"),
    *("what", "micro_batches", "width", "dtype"),
)
"""Options of `HowToRun` for programs, and options of both classes for schedules."""


@options.field_by_field
def run(asked: AskedNetwork, how: HowToRun, json: Json = False) -> None:
    """Run a network under a strategy, a program, a schedule or a toy in processes on this machine."""
    if _is_toy(asked):
        raise typer.Exit(_run_toy(asked, how, as_json=json))
    if _is_schedule(asked):
        raise typer.Exit(_run_schedule(asked, how, as_json=json))
    kind = "network" if asked.in_family else "program"
    refuse_all_but(_OF_PROGRAMS, how, f"is for schedules, and {asked.what} is a {kind}")
    from tessel_core.cli.run_program import run_asked_program

    raise typer.Exit(run_asked_program(asked, how.engine, seed=how.seed, steps=how.steps, out=how.out, as_json=json))


def _is_toy(asked: AskedNetwork) -> bool:
    """Return whether the argument is a Python script, such as `tessel recommend --launch torch` writes."""
    return not asked.torch and Path(asked.what).suffix == ".py"


def _run_toy(asked: AskedNetwork, how: HowToRun, *, as_json: bool) -> int:
    """Run the script unchanged, and return its exit code.

    Raises InputError for a script that Tessel has not written.
    """
    from tessel_core.exports.toy import WRITTEN_BY

    why = f"is for networks, programs and schedules, and {asked.what} is a script"
    refuse_all_but(("what",), asked, why)
    refuse_all_but((), how, why)
    if as_json:
        raise InputError("--json", why)
    path = Path(asked.what)
    if WRITTEN_BY.encode() not in read_bytes(path):
        raise InputError(asked.what, "is no script of `tessel recommend --launch torch`; Python runs other scripts")
    need_torch("tessel run")
    return subprocess.run([sys.executable, str(path)], check=False).returncode


def _is_schedule(asked: AskedNetwork) -> bool:
    """Return whether the argument is a plan or schedule.

    It is a sample, or a file that is neither the text of a program nor an ONNX model.
    """
    if asked.in_family or asked.torch:
        return False
    try:
        path = sample_or_file(asked.what)
    except InputError as error:
        raise InputError(error.where, f"{error.why}; families are {', '.join(FAMILIES)}") from None
    data = read_bytes(path)
    return not (is_onnx(data, path.name) or path.suffix == ".txt" or data.lstrip().startswith((b"program ", b"#")))


def _run_schedule(asked: AskedNetwork, how: HowToRun, *, as_json: bool) -> int:
    for given in (asked, how):
        refuse_all_but(_OF_SCHEDULES, given, f"is for networks and programs, and {asked.what} is neither")
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
        many = _DEFAULT_MICRO_BATCHES if asked.micro_batches is None else asked.micro_batches
        found = scheduled(found, asked.what, how.scheduler or DEFAULT_SCHEDULER, many)
    how_often = Rounds.AGAIN if how.search_again else Rounds.MEASURED if how.measure else Rounds.ONCE
    return run_schedule_file(found, config, how_often, out=how.out, source=sample_or_file(asked.what), as_json=as_json)


def _run_config(asked: AskedNetwork, how: HowToRun) -> RunConfig:
    """Return the config of the blocks to run.

    Raises InputError for options that exclude each other or are out of range.
    """
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
            raise InputError(option(name), "is an option of the toy network, which --stand-ins replaces")
    blocks = (COMPUTE if how.compute else SLEEP) if how.stand_ins else TOY
    config: RunConfig = config_of(RunConfig, {"blocks": blocks, "scale": how.scale, "seed": how.seed, **of_toys})
    return config
