"""Run a schedule on several processes, and compare the results with those of a single process."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from tessel_core.control import Control
from tessel_core.deadlock.certificate import Channels
from tessel_core.deadlock.hang import check_channels
from tessel_core.deadlock.orders import schedule_actions
from tessel_core.errors import InputError
from tessel_core.execution.inputs import SeededInputs, seeded_inputs
from tessel_core.execution.needed_memory import check_memory
from tessel_core.execution.ranks import Ranks, check_stopped, run_share
from tessel_core.execution.share import RankResult, Run, Timed, shares_of
from tessel_core.execution.stand_ins import COMPUTE, SLEEP, Scale, StandIns
from tessel_core.formats.files import free_memory
from tessel_core.ir.distributed import Distributed, Piece
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.types import WIDTHS
from tessel_core.model import MeasuredRun, Schedule
from tessel_core.model.schedule import runs_in_order
from tessel_core.networks.programs.plan_layers import Network
from tessel_core.networks.programs.plan_network import (
    RATE,
    LayerSize,
    gradient_name,
    loss_name,
    network_program,
    of_micro_batch,
    plan_network,
    updated_name,
)
from tessel_core.networks.programs.plan_program import schedule_program
from tessel_core.options import Option, check_options, option
from tessel_core.rules import check_schedule

TOY = "toy"
BLOCKS = {TOY: "a toy network", SLEEP: "stand-ins that sleep", COMPUTE: "stand-ins that compute"}
"""Description of each kind of block."""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Settings of a run: what its blocks compute, and the sizes of tensors."""

    width: int = option(8, Option("Width", "Numbers per sample that pass from block to block.", 1, 1024))
    samples: int = option(4, Option("Samples", "Samples per micro-batch.", 1, 1024))
    dtype: str = option("fp64", Option("Format", "Number format of all tensors.", choices=("fp64", "fp32")))
    seed: int = option(0, Option("Seed", "Seed of weights and data.", 0, 2**31 - 1))
    blocks: str = option(
        TOY,
        Option(
            "Blocks",
            "Work of each block: a toy network whose losses and gradients are compared with those of one process, or a "
            "stand-in that sleeps or computes for the duration of the block.",
            choices=tuple(BLOCKS),
        ),
    )
    scale: float = option(
        0.0,
        Option(
            "Scale",
            "Duration of one time unit of the plan when stand-ins run. With 0, the shortest block takes 5 ms, or less "
            "if the run would take more than a minute.",
            0.0,
            1e12,
            "ns",
        ),
    )

    def scale_for(self, schedule: Schedule) -> Scale:
        """Return the nanoseconds and bytes of one unit of the plan when stand-ins run."""
        return Scale.of(schedule, Fraction(self.scale) if self.scale else None)

    @property
    def layers(self) -> LayerSize:
        """Size of the layers of the toy network."""
        return LayerSize(self.width, self.samples, self.dtype)

    @property
    def tolerance(self) -> float:
        """Largest difference that counts as rounding, relative to the largest number of a tensor."""
        return 1e-10 if self.dtype == "fp64" else 1e-5


class Equality(NamedTuple):
    """Comparison of the results of the ranks with those of a single process."""

    tensors: int
    """Number of compared tensors: losses, gradients and updated weights, or outputs."""
    difference: float
    """Largest relative difference of a tensor: max |a - b| / max |b|."""
    worst: str
    """Tensor with the largest difference."""


class Ran(NamedTuple):
    """Result of a run."""

    run: MeasuredRun
    equality: Equality | None
    """Comparison with one process; None for stand-ins."""


OnRuns = Callable[[int, Sequence[Timed]], None]
"""Called with a rank and the runs that it has finished since the last call."""


def check_runnable(schedule: Schedule, config: RunConfig) -> None:
    """Raise InputError if the schedule breaks a rule, would hang, or its network needs more memory than is free."""
    check_options(config)
    broken = check_schedule(schedule, without=("memory", "repetend repeats"))
    if broken:
        raise InputError("schedule", f"breaks a rule: {broken[0]}")
    certificate = check_channels(schedule_actions(schedule), Channels.DIRECTION)
    if not certificate.proceeds:
        raise InputError("schedule", f"would hang: {certificate.sentence}")
    if config.blocks == TOY:
        needed = _needed_bytes(config, Network.of(schedule.plan))
        check_memory(f"network of {schedule.plan.name}", needed, free_memory())


def _needed_bytes(config: RunConfig, network: Network) -> int:
    """Return the bytes of all weights and gradients, on the ranks and in the process of the comparison."""
    devices = sum(len(network.plan.blocks[layer].devices) for layer in network.layers)
    return 4 * 2 * devices * config.width**2 * WIDTHS[config.dtype]


def run_schedule(
    schedule: Schedule,
    config: RunConfig,
    ranks: Ranks,
    control: Control | None = None,
    on_runs: OnRuns = lambda rank, runs: None,
) -> Ran:
    """Run every block of every micro-batch in the schedule's order, with one rank per device.

    Raises InputError before the start if the schedule cannot run, and RankError if a rank ends early.
    """
    check_runnable(schedule, config)
    if config.blocks != TOY:
        return Ran(_run_stand_ins(schedule, config, ranks, control, on_runs), None)
    network = Network.of(schedule.plan)
    whole = plan_network(network, config.layers)
    inputs = _inputs(whole, config.seed, schedule.micro_batches)
    model, runs = network_program(network, schedule, config.layers)
    results = _on_ranks(schedule, model, runs, inputs, ranks, control, on_runs)
    values = [pair for result in results for pair in result.values]
    equality = _compared(values, _in_one_process(whole, inputs, schedule.micro_batches, control))
    ends = [loss_name(schedule.plan.blocks[layer].name) for layer in network.sinks if network.backward]
    made = {piece.name: numbers for piece, numbers in values}
    losses = [sum(float(made[of_micro_batch(name, m)]) for name in ends) for m in range(schedule.micro_batches)]
    more = {
        "losses": tuple(losses) if ends else (),
        "equal": equality.difference <= config.tolerance,
        "difference": equality.difference if math.isfinite(equality.difference) else None,
    }
    return Ran(_measured(schedule, TOY, results, more), equality)


def _run_stand_ins(
    schedule: Schedule, config: RunConfig, ranks: Ranks, control: Control | None, on_runs: OnRuns
) -> MeasuredRun:
    program, scale = schedule_program(schedule, idle=False), config.scale_for(schedule)
    ordered = ((b, m) for b, m, _ in runs_in_order(schedule))
    runs = [next(ordered) if op.kind == "block" else None for op in program.ops]
    given, made = (
        tuple(Piece(program.value_name(value)) for value in values) for values in (program.inputs, program.outputs)
    )
    model = Distributed(program, given, made, {})
    stand_ins = StandIns.of(schedule, scale, config.blocks)
    results = _on_ranks(schedule, model, runs, seeded_inputs(model, 0), ranks, control, on_runs, stand_ins)
    more = {"tick_ns": float(scale.time), "unit_bytes": float(scale.memory)}
    return _measured(schedule, config.blocks, results, more)


def _on_ranks(
    schedule: Schedule,
    model: Distributed,
    runs: Sequence[tuple[int, int] | None],
    inputs: SeededInputs,
    ranks: Ranks,
    control: Control | None,
    on_runs: OnRuns,
    stand_ins: StandIns | None = None,
) -> list[RankResult]:
    """Run a schedule's program on ranks. `runs` gives the run to which each operation belongs, or None."""
    blocks, known = schedule.plan.blocks, dict[tuple[int, int], Run]()
    for b, m, _ in runs_in_order(schedule):
        known[b, m] = Run(b, m, f"{blocks[b].name} #{m}", tuple(sorted(blocks[b].devices)))
    of_ops = [None if run is None else known[run] for run in runs]
    needs = dict.fromkeys(model.program.devices, 0)
    kept = {} if stand_ins else dict(zip(model.program.outputs, model.outputs, strict=True))
    shares = shares_of(model, inputs, 1, needs, kept=kept, runs=of_ops, stand_ins=stand_ins)

    def hear(rank: int, news: object) -> None:
        if isinstance(news, list):
            on_runs(rank, news)

    return ranks.run(run_share, shares, control, hear)


def _inputs(whole: Distributed, seed: int, micro_batches: int) -> SeededInputs:
    """Return the inputs of all micro-batches: weights once, and samples for each micro-batch."""
    once = seeded_inputs(whole, seed)
    recipes = dict(once.recipes)
    for name in [name for name, recipe in once.recipes.items() if recipe.each_step]:
        recipe = recipes.pop(name)
        recipes |= {of_micro_batch(name, m): recipe for m in range(micro_batches)}
    return SeededInputs(recipes, seed)


def _in_one_process(
    whole: Distributed, inputs: SeededInputs, micro_batches: int, control: Control | None
) -> dict[str, Array]:
    """Compute the expected tensors by name, with the undistributed network in NumPy."""
    training = any(piece.name.startswith("d.") for piece in whole.outputs)
    samples = [piece.name for piece in whole.inputs if whole.role_of(piece).batch_axis is not None]
    fixed = {piece.name: inputs.whole(piece.name, 0) for piece in whole.inputs if piece.name not in samples}
    expected = dict[str, Array]()
    for m in range(micro_batches):
        check_stopped(control)
        given = fixed | {name: inputs.whole(of_micro_batch(name, m), 0) for name in samples}
        for piece, numbers in whole.run(given):
            if piece.name.startswith("d."):
                total = gradient_name(piece.name.removeprefix("d."))
                expected[total] = expected[total] + numbers if total in expected else numbers
            else:
                expected[of_micro_batch(piece.name, m)] = np.asarray(numbers.sum()) if training else numbers
    for name, weight in fixed.items():
        if gradient_name(name) in expected:
            expected[updated_name(name)] = weight - RATE * expected[gradient_name(name)]
    return expected


def _compared(values: Sequence[tuple[Piece, Array]], whole: Mapping[str, Array]) -> Equality:
    """Compare the tensors of the ranks with the expected ones. A missing tensor has an infinite difference."""
    difference, worst = 0.0, "nothing"
    for piece, numbers in values:
        largest = float(np.abs(whole[piece.name]).max())
        off = float(np.abs(numbers - piece.of(whole[piece.name])).max())
        off = off / largest if largest else math.inf if off else 0.0
        if not off <= difference:  # also true for NaN
            difference, worst = off, piece.name
    missing = whole.keys() - {piece.name for piece, _ in values}
    if missing:
        return Equality(len(values), math.inf, "a tensor that no rank has")
    return Equality(len(values), difference, worst)


def _measured(schedule: Schedule, engine: str, results: Sequence[RankResult], more: Mapping[str, Any]) -> MeasuredRun:
    """Combine the records of all ranks into one `MeasuredRun`."""
    times = {(b, m, rank): (start, end) for rank, each in enumerate(results) for b, m, start, end in each.runs}
    blocks = schedule.plan.blocks
    runs = [
        [times[b, m, device] for device in blocks[b].devices]
        for b, m in zip(schedule.block.tolist(), schedule.micro_batch.tolist(), strict=True)
    ]
    starts, ends = (tuple(tuple(each[i] for each in run) for run in runs) for i in (0, 1))
    return MeasuredRun(schedule, engine, starts, ends, tuple(each.peak_memory for each in results), **more)
