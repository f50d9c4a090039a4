"""`tessel run` for a network or program: run it with inputs and weights drawn from a seed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tessel_core.cli.network import AskedNetwork
from tessel_core.cli.output import console, print_json, print_notes, table
from tessel_core.cli.solving import solve
from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.execution.program_run import Asked, Engine, ProgramRun, Step, check_inputs_fit, run_program
from tessel_core.execution.ranks import RankError
from tessel_core.exports.tensors import tensors_npz
from tessel_core.formats import write_file
from tessel_core.formats.files import check_place
from tessel_core.strategies.strategy import Strategy, build_program, check_strategy
from tessel_core.units import show_memory, show_time

_MAX_ROWS = 64
_MAX_NOTES = 5
_TIME_LIMIT_S = 7 * 24 * 3600.0


def run_asked_program(
    asked: AskedNetwork, engine: Engine, *, seed: int, steps: int, out: Path | None, as_json: bool
) -> int:
    """Run the program, show the result, and write its tensors to `out`.

    Returns the exit code: 1 if a loss is NaN, a rank ends early or Ctrl-C stops the run.  Raises InputError if the
    program cannot run.
    """
    if out is not None:
        if out.suffix.lower() != ".npz":
            raise InputError(str(out), "must end in .npz")
        check_place(out, Path(asked.what))
    problem = _family(asked, seed, steps, keep=out is not None) if asked.in_family else _file(asked, seed, steps, out)

    if engine is Engine.NUMPY and any(each.dtype == "bf16" for each in problem.spread.program.types):
        print_notes(problem.name, ["NumPy has no bf16, so bf16 is computed in fp32"])

    def work(control: Control) -> ProgramRun:
        def note(step: int, done: Step) -> None:
            control.report(f"step {step + 1} of {steps}", None, None)

        return run_program(problem, engine, control, note)

    try:
        found = solve(work, "s", _TIME_LIMIT_S, problem.name)
    except RankError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if out is not None:
        write_file(out, tensors_npz(found.values))
        odd = [name for name, array in found.values.items() if array.dtype.kind == "f" and not np.isfinite(array).all()]
        print_notes(problem.name, [f"{name} holds values that are not finite" for name in odd[:_MAX_NOTES]])
    if as_json:
        print_json(_document(found, out))
    else:
        _show(problem, found, out)
    return 0


def _family(asked: AskedNetwork, seed: int, steps: int, *, keep: bool) -> Asked:
    family, spec = asked.network
    check_strategy(family, spec, asked.strategy)
    whole = build_program(family, spec, Strategy(), gradients=keep)
    check_inputs_fit(whole)
    return Asked(whole, build_program(family, spec, asked.strategy, gradients=keep), seed, steps, keep)


def _file(asked: AskedNetwork, seed: int, steps: int, out: Path | None) -> Asked:
    found = asked.file()
    print_notes(asked.what, ["all inputs, including weights, are drawn from the seed"])
    return Asked(found.whole, found.model, seed, steps, out is not None)


def _document(found: ProgramRun, out: Path | None) -> dict[str, object]:
    """Return the `--json` document. Lists have one entry per step or per device."""
    return {
        "engine": str(found.engine),
        "seed": found.seed,
        "devices": list(found.devices),
        "steps": len(found.steps),
        "loss": [step.loss for step in found.steps],
        "step_s": [step.wall_s for step in found.steps],
        "peak_memory": None if found.peak_memory is None else list(found.peak_memory),
        "out": None if out is None else str(out),
    }


def _show(problem: Asked, found: ProgramRun, out: Path | None) -> None:
    many = len(found.devices)
    where = (
        "in NumPy, in one process" if found.engine is Engine.NUMPY else f"on PyTorch, {_some(many, 'process', 'es')}"
    )
    screen = console(f"{problem.name}, {many} device{'s' * (many > 1)}, {where}")
    rows = table("step", "time", *["loss"] * any(step.loss is not None for step in found.steps), header_style="bold")
    for number, step in list(enumerate(found.steps, 1))[:_MAX_ROWS]:
        loss = [] if step.loss is None else [f"{step.loss:.6g}"]
        rows.add_row(str(number), show_time(step.wall_s, "s"), *loss)
    screen.print(rows)
    if len(found.steps) > _MAX_ROWS:
        screen.print(f"… and {len(found.steps) - _MAX_ROWS} more steps")
    if found.peak_memory is not None:
        peaks = ", ".join(show_memory(peak, "B") for peak in found.peak_memory[:_MAX_ROWS])
        screen.print(f"peak memory per device: {peaks}", soft_wrap=True)
    if out is not None:
        screen.print(f"{_some(len(found.values), 'tensor')} written to {out}", soft_wrap=True)


def _some(count: int, what: str, plural: str = "s") -> str:
    return f"{count} {what}{plural if count != 1 else ''}"
