"""`tessel profile`: measure PyTorch modules of the user, and divide them into pipeline stages."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tessel_core.cli import options
from tessel_core.cli.output import Json, Out, console, print_json, table
from tessel_core.cli.solving import solve
from tessel_core.control import Control, Progress
from tessel_core.errors import InputError, find
from tessel_core.execution.profile import OPTIMIZERS, Profile
from tessel_core.execution.profile import profile as measured
from tessel_core.formats import plan_text, write_file
from tessel_core.formats.files import check_place
from tessel_core.formats.plan_file import PLAN
from tessel_core.model import DevicePool, MicroBatchPlan
from tessel_core.placement import PlacementProblem, default_placer, solve_placement
from tessel_core.units import show_memory, show_time


def profile(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:FUNCTION",
            help="Function that returns a list of modules and the input of the first. The file is executed.",
        ),
    ],
    devices: Annotated[
        int, typer.Option(help="Number of devices, which is also the largest number of pipeline stages.")
    ] = 2,
    memory: Annotated[float | None, typer.Option(help="Memory per device in bytes. Default: unlimited.")] = None,
    optimizer: Annotated[
        str, typer.Option(help=f"Optimizer whose state occupies memory beside the weights: {', '.join(OPTIMIZERS)}.")
    ] = "adam",
    split_weights: options.SplitWeights = False,
    out: Out = None,
    json: Json = False,
) -> None:
    """Measure a list of PyTorch modules, and divide them into pipeline stages.

    The file is executed.  Its function returns a list of modules and a micro-batch.  The first module takes the
    micro-batch, and each other module takes the output of the module before it.  Stages are contiguous, and their
    largest load is as small as possible.  Weights that several modules share count once, on the device of the first.
    """
    from tessel_core.planning import plan_of

    find(OPTIMIZERS, optimizer, "--optimizer")
    pool = DevicePool(devices, 0, memory)
    check_place(out, Path(target.rpartition(":")[0]))
    sys.stderr.write(f"executing {target}\n")
    found = _measured(target)
    graph = found.graph(optimizer, split_weights=split_weights)
    problem = PlacementProblem.on_pool(graph, pool)
    report = solve(lambda control: solve_placement(default_placer(problem), problem, None, control), "s")
    if report.solution is None:
        sys.stderr.write(f"no plan: {report.reason}\n")
        raise typer.Exit(1)
    plan = plan_of(report.solution, split_weights=split_weights)
    if out is not None:
        write_file(out, plan_text(plan))
    if json:
        print_json(
            {"device": found.device, "modules": [asdict(each) for each in found.modules], "plan": PLAN.write(plan)}
        )
    else:
        _show(found, plan)


def _measured(target: str) -> Profile:
    """Measure the modules on this thread, so that Ctrl-C interrupts the user's code.

    Output of that code goes to stderr.
    """

    def note(news: Progress) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"{news.phase}\n")

    try:
        with redirect_stdout(sys.stderr):
            return measured(target, Control(on_progress=note))
    except KeyboardInterrupt:
        raise InputError(target, "was interrupted before all modules were measured") from None


def _show(found: Profile, plan: MicroBatchPlan) -> None:
    rows = table("module", "forward", "backward", "input grad", "weight grad", "weights", "activations")
    for each in found.modules:
        times = each.forward_s, each.backward_s, each.input_gradient_s, each.weight_gradient_s
        sizes = each.weight_bytes, each.activation_bytes
        shown = (*(show_time(time, "s") for time in times), *(show_memory(size, "B") for size in sizes))
        rows.add_row(f"{each.name.removeprefix('module')} {each.kind}", *shown)
    screen = console(f"{found.name}, {found.batch_size} samples on one {found.device}")
    screen.print(rows)
    stages = table("stage", "modules", "work", "static memory")
    for d, device in enumerate(plan.devices):
        label = next((block.label for block in plan.blocks if d in block.devices), "")
        stages.add_row(
            device.name, label, show_time(plan.work[d], plan.time_unit), show_memory(device.static_memory, "B")
        )
    screen.print(stages)
