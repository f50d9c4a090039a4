"""The order in which pipeline stages run. A scheduler finds it for stages that all take one unit of time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from tessel_core.errors import InputError
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice, Schedule
from tessel_core.model.layout import stage_device
from tessel_core.networks.shapes import forward_half
from tessel_core.options import options_of
from tessel_core.scheduling import BASELINES, SCHEDULERS, find_scheduler, solve_schedule
from tessel_core.units import counted

DEFAULT_ORDER = "pipedream"
SEARCH_S = 5.0
"""Time limit in seconds for a search that orders stages."""
INTERLEAVED_ORDER = "interleaved"
"""Default order for several stages per device, as in Megatron-LM and torchtitan."""
ADDING, COPYING = 3, 4
"""Indices into the seconds of a stage: adding gradients to their sums, and copying those of the first micro-batch."""
STAYS, NOWHERE = -1, -2
"""Values in place of the link over which a stage sends its outputs.

`STAYS`: the next stage is on the same device. `NOWHERE`: no other stage needs the outputs.
"""


def usual_order(stages_per_device: int) -> str:
    """Return the default order for a number of stages per device."""
    return DEFAULT_ORDER if stages_per_device == 1 else INTERLEAVED_ORDER


@dataclass(frozen=True, slots=True)
class StageForm:
    """How stages are placed on devices, and which blocks they have."""

    split: bool = False
    """Whether gradients of weights are computed in separate blocks."""
    returns: bool = False
    """Whether stages go down the devices and up again (V). If not, they go around the devices (loop)."""
    copies: int = 1
    """Number of copies of the network. The stages of a second copy are on the devices in reverse order (X)."""

    def device_of(self, stage: int, devices: int) -> int:
        """Return the device of a stage of the first copy."""
        return stage_device(stage, devices, returns=self.returns)


LOOP = StageForm()
SPLIT, SPLIT_V = StageForm(split=True), StageForm(split=True, returns=True)
BOTH_WAYS, SPLIT_BOTH_WAYS = StageForm(copies=2), StageForm(split=True, copies=2)


@lru_cache(maxsize=256)
def stage_plan(devices: int, stages_per_device: int = 1, form: StageForm = LOOP) -> MicroBatchPlan:
    """Return a plan with a forward and a backward block per stage, and with a weight block if the form splits backward
    passes.

    Each block takes one unit of time. A forward block acquires one unit of memory, and the last block of the stage
    releases it. Each device has one unit per stage of the pipeline, which is the most that 1F1B needs.
    """
    blocks, links = list[Block](), list[Dependency]()
    for copy in range(form.copies):
        more, between = _chain(devices, stages_per_device, form, copy)
        blocks += more
        links += between
    several = f"x{stages_per_device}" if stages_per_device > 1 else ""
    layout = "-v" if form.returns else "-x" if form.copies > 1 else ""
    name = f"{'split' if form.split else 'chain'}{layout}-{devices}{several}"
    room = devices * stages_per_device
    return MicroBatchPlan(name, tuple(PlanDevice(f"s{s}", room) for s in range(devices)), tuple(blocks), tuple(links))


def _chain(devices: int, stages_per_device: int, form: StageForm, copy: int) -> tuple[list[Block], list[Dependency]]:
    """Return the blocks of one copy of the network, and their dependencies."""
    down, up, after = list[Block](), list[Block](), list[Block]()
    which = "du"[copy] if form.copies > 1 else ""
    for stage in range(devices * stages_per_device):
        place = form.device_of(stage, devices)
        device = (devices - 1 - place if copy else place,)
        down.append(Block(f"{which}F{stage}", BlockKind.FORWARD, device, 1, 1))
        up.append(Block(f"{which}B{stage}", BlockKind.BACKWARD, device, 1, 0 if form.split else -1))
        after.append(Block(f"{which}W{stage}", BlockKind.WEIGHT, device, 1, -1))
    chain = [*down, *reversed(up)]
    links = [Dependency(one.name, other.name) for one, other in pairwise(chain)]
    if form.split:
        links += [Dependency(one.name, other.name) for one, other in zip(up, after, strict=True)]
        chain += after
    return chain, links


@lru_cache(maxsize=1024)
def _plan_for(scheduler: str, devices: int, stages_per_device: int, form: StageForm) -> MicroBatchPlan:
    """Return the plan of the stages. Only searches get limits on memory, because published orders need none."""
    plan = stage_plan(devices, stages_per_device, form)
    if scheduler not in BASELINES:
        return plan
    return replace(plan, devices=tuple(replace(device, memory_capacity=None) for device in plan.devices))


def _config_of(scheduler: str) -> Any:
    """Return the default options of a scheduler. The time limit is `SEARCH_S`, because a grid needs many orders."""
    config = find_scheduler(scheduler).config()
    return replace(config, time_limit=SEARCH_S) if "time_limit" in options_of(config) else config


@lru_cache(maxsize=4096)
def stage_form(scheduler: str, devices: int, micro_batches: int, stages_per_device: int = 1) -> StageForm | None:
    """Return a form whose plan the scheduler can order. None if there is none.

    Searches get the form with the most freedom: split backward passes, and a V if there are two stages per device.
    """
    find = find_scheduler(scheduler)
    forms = [LOOP] + [SPLIT] * (stages_per_device == 1) + [SPLIT_V] * (stages_per_device == 2)
    if scheduler not in BASELINES:
        forms.reverse()
    elif stages_per_device == 1 and micro_batches % 2 == 0:
        forms += [SPLIT_BOTH_WAYS, BOTH_WAYS] if find.splits else [BOTH_WAYS, SPLIT_BOTH_WAYS]
    for form in forms:
        plan = _plan_for(scheduler, devices, stages_per_device, form)
        if not find.why_not(plan, micro_batches // form.copies):
            return form
    return None


@lru_cache(maxsize=4096)
def order_objection(scheduler: str, devices: int, micro_batches: int, stages_per_device: int = 1) -> str:
    """Return why the scheduler cannot order these stages and micro-batches. Empty if it can."""
    if stage_form(scheduler, devices, micro_batches, stages_per_device) is not None:
        return ""
    found = find_scheduler(scheduler)
    even = stage_form(scheduler, devices, micro_batches + 1, stages_per_device) if micro_batches % 2 else None
    if even is not None and even.copies > 1:
        return (
            f"{found.title} runs half of the micro-batches in each direction, "
            f"so their number must be even, got {micro_batches}"
        )
    form = SPLIT if found.splits and stages_per_device == 1 else SPLIT_V if found.splits else LOOP
    return found.why_not(_plan_for(scheduler, devices, stages_per_device, form), micro_batches)


@lru_cache(maxsize=1024)
def stage_order(
    scheduler: str, devices: int, micro_batches: int, training: bool = True, stages_per_device: int = 1
) -> Schedule:
    """Return the schedule of the stages.

    Raises InputError if the scheduler cannot order them or finds no schedule. In inference, all published orders are
    the same: every stage runs each micro-batch as soon as it arrives.
    """
    form = stage_form(scheduler, devices, micro_batches, stages_per_device) or LOOP
    if training:
        plan = _plan_for(scheduler, devices, stages_per_device, form)
        report = solve_schedule(scheduler, plan, micro_batches // form.copies, _config_of(scheduler))
    else:
        usual = "gpipe" if stages_per_device == 1 else INTERLEAVED_ORDER
        plan = forward_half(_plan_for(usual, devices, stages_per_device, LOOP), f"forward-{devices}")
        report = solve_schedule(usual, plan, micro_batches)
    if report.solution is None:
        stages = counted(devices * stages_per_device, "stage")
        raise InputError(
            "schedule", f"{scheduler} finds no order for {stages} and {counted(micro_batches, 'micro-batch')}"
        )
    return report.solution


def chain_schedulers(stages_per_device: tuple[int, ...] = (1, 2), copies: int = 2) -> tuple[str, ...]:
    """Return the names of the schedulers that can order one of these numbers of stages per device.

    They need at most `copies` copies of the network. The default scheduler comes first.
    """
    forms = {name: [stage_form(name, 2, 4, several) for several in stages_per_device] for name in SCHEDULERS}
    suiting = [name for name, of in forms.items() if any(form and form.copies <= copies for form in of)]
    return (DEFAULT_ORDER, *(name for name in suiting if name != DEFAULT_ORDER))
