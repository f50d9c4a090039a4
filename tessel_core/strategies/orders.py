"""The order in which pipeline stages run: chains of stages of unit time under any scheduler."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, pairwise

from tessel_core.errors import InputError
from tessel_core.ir.transforms.pipeline import stage_runs
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice, Schedule
from tessel_core.networks.shapes import forward_half
from tessel_core.scheduling import BASELINES, find_scheduler, solve_schedule
from tessel_core.units import counted

DEFAULT_ORDER = "pipedream"
INTERLEAVED_ORDER = "interleaved"
"""The usual order of several stages per device, as Megatron-LM and torchtitan run them."""


def usual_order(stages_per_device: int) -> str:
    """The order of a strategy that names none."""
    return DEFAULT_ORDER if stages_per_device == 1 else INTERLEAVED_ORDER


@lru_cache(maxsize=256)
def stage_chain(devices: int, stages_per_device: int = 1) -> MicroBatchPlan:
    """A forward and a backward block per stage, one step each, without a limit on memory.

    Stage s is on device s mod `devices`: the chain goes round them as often as each has stages.
    """
    stages = range(devices * stages_per_device)
    blocks = [Block(f"F{stage}", BlockKind.FORWARD, (stage % devices,), 1) for stage in stages]
    blocks += [Block(f"B{stage}", BlockKind.BACKWARD, (stage % devices,), 1) for stage in reversed(stages)]
    links = tuple(Dependency(one.name, other.name) for one, other in pairwise(blocks))
    name = f"chain-{devices}" + (f"x{stages_per_device}" if stages_per_device > 1 else "")
    return MicroBatchPlan(name, tuple(PlanDevice(f"s{s}") for s in range(devices)), tuple(blocks), links)


@lru_cache(maxsize=4096)
def order_objection(scheduler: str, devices: int, micro_batches: int, stages_per_device: int = 1) -> str:
    """Why the scheduler does not order so many stages and micro-batches; empty where it does."""
    return find_scheduler(scheduler).why_not(stage_chain(devices, stages_per_device), micro_batches)


@lru_cache(maxsize=1024)
def stage_order(
    scheduler: str, devices: int, micro_batches: int, training: bool = True, stages_per_device: int = 1
) -> Schedule:
    """The schedule of the chain; raises InputError where the scheduler does not suit or finds none.

    Without a backward all published orders are the same: every stage takes each micro-batch as soon as it is there.
    """
    chain = stage_chain(devices, stages_per_device)
    if training:
        report = solve_schedule(scheduler, chain, micro_batches)
    else:
        usual = "gpipe" if stages_per_device == 1 else INTERLEAVED_ORDER
        report = solve_schedule(usual, forward_half(chain, f"forward-{devices}"), micro_batches)
    if report.solution is None:
        stages = counted(devices * stages_per_device, "stage")
        raise InputError("schedule", f"{scheduler} finds none of {stages} and {counted(micro_batches, 'micro-batch')}")
    return report.solution


def chain_schedulers() -> tuple[str, ...]:
    """The names of the published orders that suit chains of stages, one or several per device; the default first."""
    suiting = [name for name in BASELINES if not (order_objection(name, 2, 2) and order_objection(name, 2, 2, 2))]
    return (DEFAULT_ORDER, *(name for name in suiting if name != DEFAULT_ORDER))


@dataclass(frozen=True, slots=True)
class Issue:
    """A run of a stage, or, where `sends`, the transfers after it."""

    stage: int
    phase: int
    micro_batch: int
    turn: int
    """How many micro-batches the stage has run before in this direction."""
    sends: bool


@dataclass(frozen=True)
class IssueOrder:
    """Everything in the order of the program."""

    issues: tuple[Issue, ...]
    in_turn: bool
    """Whether every stage runs next to the micro-batches that it has run another, in both directions, and a device's
    later stages end before its earlier ones."""
    devices: int
    """Stage s is on device s mod `devices`."""


@lru_cache(maxsize=1024)
def issue_order(
    scheduler: str, devices: int, micro_batches: int, training: bool = True, stages_per_device: int = 1
) -> IssueOrder:
    """Runs that start together, then the transfers after them; raises InputError where the scheduler finds no order."""
    issues, ran, in_turn = list[Issue](), defaultdict[tuple[int, int], set[int]](set), True
    order = stage_order(scheduler, devices, micro_batches, training, stages_per_device)
    for _, together in groupby(stage_runs(order), key=lambda run: run[0]):
        step = list[Issue]()
        for _, stage, kind, micro_batch in together:
            phase = int(kind is BlockKind.BACKWARD)
            before = ran[stage, phase]
            in_turn = in_turn and (not before or not before.isdisjoint((micro_batch - 1, micro_batch + 1)))
            step.append(Issue(stage, phase, micro_batch, len(before), sends=False))
            before.add(micro_batch)
        issues += [*step, *(replace(issue, sends=True) for issue in step)]
    last = {issue.stage: place for place, issue in enumerate(issues) if not issue.sends}
    falls = all(last[stage] > last.get(stage + devices, -1) for stage in last) or not training
    return IssueOrder(tuple(issues), in_turn and falls, devices)
