"""A schedule on ranks: refused where it could not run, walked, and compared with one process where it computes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.execution.certificate import Channels
from tessel_core.execution.hang import check_channels
from tessel_core.execution.needed_memory import check_memory
from tessel_core.execution.network import Network
from tessel_core.execution.orders import schedule_actions
from tessel_core.execution.ranks import Ranks
from tessel_core.execution.stand_ins import COMPUTE, SLEEP, Scale, StandInOrder, run_stand_ins
from tessel_core.execution.toy import Equality, ToyOrder, ToySize, compare, needed_bytes, run_toy, run_whole
from tessel_core.execution.walk import Order, Timed, Walked
from tessel_core.formats.files import free_memory
from tessel_core.model import MeasuredRun, Schedule
from tessel_core.options import Option, check_options, option
from tessel_core.rules import check_schedule

TOY = "toy"
BLOCKS = {TOY: "a toy network", SLEEP: "stand-ins that sleep", COMPUTE: "stand-ins that compute"}
"""What blocks are, in words."""


@dataclass(frozen=True, slots=True)
class RunConfig(ToySize):
    """What the blocks of a schedule are when it runs."""

    blocks: str = option(
        TOY,
        Option(
            "Blocks",
            "A toy network whose losses and gradients are compared with one process, or stand-ins that sleep or "
            "compute for the plan's own durations.",
            choices=tuple(BLOCKS),
        ),
    )
    scale: float = option(
        0.0,
        Option(
            "Scale",
            "Nanoseconds for one unit of the plan's time, of stand-ins; 0 is as many as give the shortest block 5 ms, "
            "or fewer where a run would take above a minute.",
            0.0,
            1e12,
            "ns",
        ),
    )

    def scale_for(self, schedule: Schedule) -> Scale:
        """What the plan's units are for stand-ins."""
        return Scale.of(schedule, Fraction(self.scale) if self.scale else None)


class Ran(NamedTuple):
    """What came of a run."""

    run: MeasuredRun
    equality: Equality | None
    """None of stand-ins."""


OnRuns = Callable[[int, Sequence[Timed]], None]
"""Called with a rank and the runs that it has done since the last time."""


def check_runnable(schedule: Schedule, config: RunConfig) -> None:
    """Raise InputError where the schedule could not run, would hang, or its network is too large for the machine."""
    check_options(config)
    broken = check_schedule(schedule, without=("memory", "repetend repeats"))
    if broken:
        raise InputError("schedule", f"breaks a rule: {broken[0]}")
    found = check_channels(schedule_actions(schedule), Channels.DIRECTION)
    if not found.proceeds:
        raise InputError("schedule", f"would hang: {found.sentence}")
    if config.blocks == TOY:
        needed = needed_bytes(config, Network.of(schedule.plan))
        check_memory(f"network of {schedule.plan.name}", needed, free_memory())


def run_schedule(
    schedule: Schedule,
    config: RunConfig,
    ranks: Ranks,
    control: Control | None = None,
    on_runs: OnRuns = lambda rank, runs: None,
) -> Ran:
    """Run every block of every micro-batch, each device of the plan a rank, in the schedule's order.

    Raises InputError where it cannot, before anything starts, and RankError where a rank ends early.
    """
    check_runnable(schedule, config)
    actions = schedule_actions(schedule)
    orders = [Order(schedule.plan, actions[d], schedule.micro_batches) for d in range(ranks.count)]
    if config.blocks != TOY:
        scale = config.scale_for(schedule)
        asked = [StandInOrder(order, scale, config.blocks) for order in orders]
        walked = ranks.run(run_stand_ins, asked, control, on_runs)
        more = {"tick_ns": float(scale.time), "unit_bytes": float(scale.memory)}
        return Ran(_measured(schedule, config.blocks, walked, more), None)
    network = Network.of(schedule.plan)
    toys = [ToyOrder(order, network, config) for order in orders]
    walked = ranks.run(run_toy, toys, control, on_runs)
    whole = ranks.run(run_whole, toys, control)[0]
    found = compare(network, [each.result for each in walked], whole)
    losses = defaultdict[int, float](float)
    for each in walked:
        for (_, m), loss in each.result.losses.items():
            losses[m] += loss
    results: dict[str, Any] = {
        "losses": tuple(losses[m] for m in range(schedule.micro_batches) if losses),
        "equal": found.difference <= config.tolerance,
        "difference": found.difference if math.isfinite(found.difference) else None,
    }
    return Ran(_measured(schedule, TOY, walked, results), found)


def _measured(schedule: Schedule, engine: str, walked: Sequence[Walked], more: Mapping[str, Any]) -> MeasuredRun:
    """The runs of all ranks as one."""
    times = {(b, m, rank): (start, end) for rank, each in enumerate(walked) for b, m, start, end in each.runs}
    blocks = schedule.plan.blocks
    found = [
        [times[b, m, device] for device in blocks[b].devices]
        for b, m in zip(schedule.block.tolist(), schedule.micro_batch.tolist(), strict=True)
    ]
    starts, ends = (tuple(tuple(each[i] for each in run) for run in found) for i in (0, 1))
    return MeasuredRun(schedule, engine, starts, ends, tuple(each.peak for each in walked), **more)
