"""Run a program for several steps, in one NumPy process or in one PyTorch process per device."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from math import fsum
from pathlib import Path

import numpy as np

from tessel_core.control import Control
from tessel_core.deadlock.certificate import Channels
from tessel_core.deadlock.hang import check_channels
from tessel_core.deadlock.orders import program_actions
from tessel_core.errors import InputError
from tessel_core.execution.inputs import SeededInputs, seeded_inputs
from tessel_core.execution.needed_memory import check_memory, needed_memory
from tessel_core.execution.ranks import MAX_RANKS, RankError, Ranks, check_stopped, run_share
from tessel_core.execution.share import (
    LOSS,
    RankResult,
    Share,
    StepNews,
    carried_values,
    distinct_outputs,
    shares_of,
    why_not_executable,
)
from tessel_core.formats.files import free_memory
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.execute import execute
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.types import WIDTHS
from tessel_core.torch_extra import need_torch

MAX_STEPS = 1_000_000


class Engine(StrEnum):
    """Engine that computes a program."""

    TORCH = "torch"
    NUMPY = "numpy"


@dataclass(frozen=True, slots=True)
class Step:
    """One finished step."""

    wall_s: float
    """Seconds from the start of the first rank to the end of the last rank."""
    loss: float | None
    """Sum of all losses; None if no output is called `loss`."""


@dataclass(frozen=True)
class ProgramRun:
    """Result of a run."""

    engine: Engine
    seed: int
    devices: tuple[int, ...]
    steps: tuple[Step, ...]
    peak_memory: tuple[int, ...] | None
    """Peak bytes of values on each device; None in NumPy, where one process holds all values."""
    values: Mapping[str, Array]
    """Outputs of the undistributed network after the last step, by name; empty unless `Asked.keep` is set."""


@dataclass(frozen=True)
class Asked:
    """Inputs of a run: a network (undistributed and spread over devices), a seed and a number of steps.

    Raises InputError if the number of steps or the seed is out of range.
    """

    whole: Distributed
    spread: Distributed
    seed: int = 0
    steps: int = 1
    keep: bool = False
    """Whether to return the outputs after the last step."""

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= MAX_STEPS:
            raise InputError("steps", f"must be between 1 and {MAX_STEPS:,}, got {self.steps}")
        if self.seed < 0:
            raise InputError("seed", f"must be at least 0, got {self.seed}")

    @property
    def name(self) -> str:
        return self.spread.program.name


OnStep = Callable[[int, Step], None]
"""Called with the number of each finished step, from 0, and its result."""


def run_program(
    asked: Asked,
    engine: Engine,
    control: Control,
    on_step: OnStep = lambda step, done: None,
    ranks: Ranks | None = None,
) -> ProgramRun:
    """Run a program.

    Parameters
    ----------
    asked : Asked
        The network, seed and number of steps.
    engine : Engine
        NumPy in this process, or PyTorch with one process per device.
    control : Control
        Can cancel the run.
    on_step : Callable
        Called after each step.
    ranks : Ranks
        Running processes to use with PyTorch, one per device.  By default they are started for this run.

    Raises
    ------
    InputError
        Before the run, if PyTorch is missing, the engine lacks a number format, an operation cannot be executed, the
        program would hang, or it needs more memory than is free.
    RankError
        If the run fails or is stopped, with the first reason.
    """
    if engine is Engine.TORCH:
        need_torch("--engine torch")
    lacking = _UNSIGNED if engine is Engine.TORCH else frozenset[str]()
    program = asked.spread.program
    if why := why_not_executable(program, lacking):
        raise InputError(f"program {program.name}", why)
    inputs = seeded_inputs(asked.whole, asked.seed)
    if engine is Engine.NUMPY:
        return _in_numpy(asked, inputs, control, on_step)
    shares = _shares(asked, inputs)
    with Ranks(len(shares)) if ranks is None else nullcontext(ranks) as started:
        return _on_ranks(asked, shares, started, control, on_step)


_UNSIGNED = frozenset(("uint16", "uint32", "uint64"))
"""Formats for which PyTorch lacks most arithmetic."""


def check_inputs_fit(model: Distributed) -> None:
    """Raise InputError if the inputs of an undistributed network need more memory than is free."""
    program = model.program
    needed = sum(program.types[value].elements * WIDTHS[program.types[value].dtype] for value in program.inputs)
    check_memory(program.name, needed, free_memory())


def _in_numpy(asked: Asked, inputs: SeededInputs, control: Control, on_step: OnStep) -> ProgramRun:
    model, program = asked.spread, asked.spread.program
    check_memory(asked.name, sum(needed_memory(program, wide_bf16=True).values()), free_memory())
    carried = carried_values(model) if asked.steps > 1 else {}
    outputs = distinct_outputs(model)

    steps, given = list[Step](), dict[int, Array]()
    for step in range(asked.steps):
        given = _inputs(model, inputs, step, given)
        start = time.monotonic()
        with np.errstate(all="ignore"):  # NaN losses raise an error below
            made = dict(zip(program.outputs, execute(program, given, lambda op: check_stopped(control)), strict=True))
        wall = time.monotonic() - start
        losses = [float(made[value].sum(dtype=np.float64)) for value, piece in outputs.items() if piece.name == LOSS]
        if any(np.isnan(losses)):
            raise RankError(LOSS, f"is not a number (NaN) in step {step + 1}")
        steps.append(Step(wall, fsum(losses) if losses else None))
        on_step(step, steps[-1])
        given = {before: made[value] for value, before in carried.items()} | {
            value: array
            for value, array in given.items()
            if value not in carried.values() and not inputs.changes(model.piece_of[value].name)
        }
    values = asked.whole.joined((piece, made[value]) for value, piece in outputs.items()) if asked.keep else {}
    return ProgramRun(Engine.NUMPY, asked.seed, program.devices, tuple(steps), None, values)


def _inputs(model: Distributed, inputs: SeededInputs, step: int, given: dict[int, Array]) -> dict[int, Array]:
    """Return an array for every input of a step. Arrays that are not given come from `inputs`."""
    missing = {value: piece for value, piece in model.piece_of.items() if value not in given}
    whole = {name: inputs.whole(name, step) for name in {piece.name for piece in missing.values()}}
    return given | {value: piece.of(whole[piece.name]) for value, piece in missing.items()}


def _shares(asked: Asked, inputs: SeededInputs) -> list[Share]:
    """Return the share of each rank.  Raises InputError if the program cannot run on ranks."""
    program = asked.spread.program
    if len(program.devices) > MAX_RANKS:
        limit = f"and at most {MAX_RANKS} processes are started; --engine numpy runs it in one"
        raise InputError(f"program {program.name}", f"has {len(program.devices)} devices, {limit}")
    certificate = check_channels(program_actions(program), Channels.PAIR)
    if not certificate.proceeds:
        raise InputError(f"program {program.name}", f"would hang: {certificate.sentence}")
    needs = needed_memory(program)
    if not _has_gpus():
        check_memory(asked.name, sum(needs.values()), free_memory())
    kept = distinct_outputs(asked.spread) if asked.keep else {}
    return shares_of(asked.spread, inputs, asked.steps, needs, kept=kept)


def _on_ranks(asked: Asked, shares: list[Share], ranks: Ranks, control: Control, on_step: OnStep) -> ProgramRun:
    steps, news = list[Step](), defaultdict[int, list[StepNews]](list)
    has_loss = any(piece.name == LOSS for piece in asked.spread.outputs)

    def hear(_: int, message: StepNews) -> None:
        received = news[message.step]
        received.append(message)
        if len(received) == len(shares):
            wall = max(each.end_s for each in received) - min(each.start_s for each in received)
            steps.append(Step(wall, fsum(each.loss for each in received) if has_loss else None))
            on_step(message.step, steps[-1])

    results: list[RankResult] = ranks.run(run_share, shares, control, hear)
    pieces = (pair for result in results for pair in result.values)
    values = asked.whole.joined(pieces) if asked.keep else {}
    peaks = tuple(result.peak_memory for result in results)
    return ProgramRun(Engine.TORCH, asked.seed, asked.spread.program.devices, tuple(steps), peaks, values)


def _has_gpus() -> bool:
    """Return whether the machine has an Nvidia driver.  If so, each rank checks the memory of its GPU itself."""
    return Path("/dev/nvidiactl").exists()
