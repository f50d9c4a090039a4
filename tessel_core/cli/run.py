"""`tessel run`: what was found, run on processes of this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from tessel_core.cli.output import Json, Out, config_of
from tessel_core.cli.run_schedule import run_schedule_file, schedule_of
from tessel_core.errors import InputError
from tessel_core.execution.schedule_run import TOY, RunConfig
from tessel_core.execution.stand_ins import COMPUTE, SLEEP
from tessel_core.scheduling import DEFAULT_SCHEDULER


def run(
    what: Annotated[str, typer.Argument(help="A schedule, or a plan or sample to schedule first.")],
    scheduler: Annotated[str, typer.Option(help="Of a plan.")] = DEFAULT_SCHEDULER,
    micro_batches: Annotated[int, typer.Option(help="Of a plan.")] = 8,
    stand_ins: Annotated[
        bool,
        typer.Option("--stand-ins", help="Blocks that sleep for the plan's durations, scaled, and hold its memory."),
    ] = False,
    compute: Annotated[bool, typer.Option("--compute", help="With --stand-ins: they compute while they last.")] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Run again, and hold that against what the first run predicts.")
    ] = False,
    scale: Annotated[
        float | None, typer.Option(help="With --stand-ins: nanoseconds for one unit of the plan's time.")
    ] = None,
    width: Annotated[int | None, typer.Option(help="Numbers that go from block to block, per sample.")] = None,
    samples: Annotated[int | None, typer.Option(help="In one micro-batch.")] = None,
    dtype: Annotated[str | None, typer.Option(help="fp64 or fp32.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of weights and data.")] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Run a schedule on processes of this machine, one a device."""
    if compute and not stand_ins:
        raise InputError("--compute", "needs --stand-ins")
    if scale is not None and not stand_ins:
        raise InputError("--scale", "needs --stand-ins")
    found, path = schedule_of(what, scheduler, micro_batches)
    blocks = (COMPUTE if compute else SLEEP) if stand_ins else TOY
    given = {"blocks": blocks, "scale": scale, "width": width, "samples": samples, "dtype": dtype, "seed": seed}
    config = config_of(RunConfig, given)
    raise typer.Exit(run_schedule_file(found, config, measure=measure, out=out, source=path, as_json=json))
