"""A program run for some steps, in NumPy as one process or on PyTorch with a process for each device."""

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
from tessel_core.execution.ranks import MOST_RANKS, RankError, Ranks, check_stopped, run_share
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

MOST_STEPS = 1_000_000


class Engine(StrEnum):
    """What computes."""

    TORCH = "torch"
    NUMPY = "numpy"


@dataclass(frozen=True, slots=True)
class Step:
    """A step that was run."""

    wall_s: float
    """From the first rank's start to the last one's end."""
    loss: float | None
    """The sum of all losses; None where no output is called so."""


@dataclass(frozen=True)
class ProgramRun:
    """What a run came to."""

    engine: Engine
    seed: int
    devices: tuple[int, ...]
    steps: tuple[Step, ...]
    peak_memory: tuple[int, ...] | None
    """Per device, the most bytes of values at a time; None in NumPy, where one process holds all."""
    values: Mapping[str, Array]
    """Outputs of the undistributed network after the last step, by name; empty where they were not asked for."""


@dataclass(frozen=True)
class Asked:
    """What is to be run: a network, undistributed and as it is spread over devices, and for how many steps.

    Raises InputError for a number of steps or a seed that cannot be.
    """

    whole: Distributed
    spread: Distributed
    seed: int = 0
    steps: int = 1
    keep: bool = False
    """Whether outputs are wanted at the end."""

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= MOST_STEPS:
            raise InputError("steps", f"must be between 1 and {MOST_STEPS:,}, got {self.steps}")
        if self.seed < 0:
            raise InputError("seed", f"must be at least 0, got {self.seed}")

    @property
    def name(self) -> str:
        return self.spread.program.name


OnStep = Callable[[int, Step], None]
"""Hears of every step, from 0, as it ends."""


def run_program(
    asked: Asked,
    engine: Engine,
    control: Control,
    on_step: OnStep = lambda step, done: None,
    ranks: Ranks | None = None,
) -> ProgramRun:
    """Run it, on PyTorch on `ranks` if some are there already, as many as the program has devices.

    Raises InputError before anything runs where the engine lacks a format or PyTorch, an operation has no meaning, the
    program would hang or needs more memory than is free; RankError with the first reason where it ends in the middle.
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
"""Formats in which PyTorch has little arithmetic."""


def check_inputs_fit(model: Distributed) -> None:
    """Raise InputError where the inputs of an undistributed network alone are more than the machine has free."""
    program = model.program
    needed = sum(program.types[value].elements * WIDTHS[program.types[value].dtype] for value in program.inputs)
    check_memory(program.name, needed, free_memory())


def _in_numpy(asked: Asked, inputs: SeededInputs, control: Control, on_step: OnStep) -> ProgramRun:
    model, program = asked.spread, asked.spread.program
    check_memory(asked.name, sum(needed_memory(program, wide_bf16=True).values()), free_memory())
    carried = carried_values(model) if asked.steps > 1 else {}
    told = distinct_outputs(model)

    steps, given = list[Step](), dict[int, Array]()
    for step in range(asked.steps):
        given = _inputs(model, inputs, step, given)
        start = time.monotonic()
        with np.errstate(all="ignore"):  # what is no number is said below
            made = dict(zip(program.outputs, execute(program, given, lambda op: check_stopped(control)), strict=True))
        wall = time.monotonic() - start
        losses = [float(made[value].sum(dtype=np.float64)) for value, piece in told.items() if piece.name == LOSS]
        if any(np.isnan(losses)):
            raise RankError(LOSS, f"is not a number (NaN) in step {step + 1}")
        steps.append(Step(wall, fsum(losses) if losses else None))
        on_step(step, steps[-1])
        given = {before: made[value] for value, before in carried.items()} | {
            value: array
            for value, array in given.items()
            if value not in carried.values() and not inputs.changes(model.piece_of[value].name)
        }
    values = asked.whole.joined((piece, made[value]) for value, piece in told.items()) if asked.keep else {}
    return ProgramRun(Engine.NUMPY, asked.seed, program.devices, tuple(steps), None, values)


def _inputs(model: Distributed, inputs: SeededInputs, step: int, given: dict[int, Array]) -> dict[int, Array]:
    """An array for every input: those given, and the others as the step begins."""
    missing = {value: piece for value, piece in model.piece_of.items() if value not in given}
    whole = {name: inputs.whole(name, step) for name in {piece.name for piece in missing.values()}}
    return given | {value: piece.of(whole[piece.name]) for value, piece in missing.items()}


def _shares(asked: Asked, inputs: SeededInputs) -> list[Share]:
    """One for each rank, of a program that can be run on ranks; InputError where it cannot."""
    program = asked.spread.program
    if len(program.devices) > MOST_RANKS:
        most = f"and at most {MOST_RANKS} processes are started; --engine numpy runs it in one"
        raise InputError(f"program {program.name}", f"has {len(program.devices)} devices, {most}")
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

    def hear(_: int, told: StepNews) -> None:
        heard = news[told.step]
        heard.append(told)
        if len(heard) == len(shares):
            wall = max(each.end_s for each in heard) - min(each.start_s for each in heard)
            steps.append(Step(wall, fsum(each.loss for each in heard) if has_loss else None))
            on_step(told.step, steps[-1])

    results: list[RankResult] = ranks.run(run_share, shares, control, hear)
    found = (pair for result in results for pair in result.values)
    values = asked.whole.joined(found) if asked.keep else {}
    peaks = tuple(result.peak_memory for result in results)
    return ProgramRun(Engine.TORCH, asked.seed, asked.spread.program.devices, tuple(steps), peaks, values)


def _has_gpus() -> bool:
    """Whether the machine has the driver of GPUs, whose memory each rank then asks for itself."""
    return Path("/dev/nvidiactl").exists()
