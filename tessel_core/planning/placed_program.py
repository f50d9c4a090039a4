"""The distributed program of a placement and a schedule."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tessel_core.costs.collectives import send_link
from tessel_core.errors import InputError
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.program import Program
from tessel_core.ir.transforms.partition import ANYWHERE, ChooseSender, Partition
from tessel_core.model import BlockKind, MicroBatchPlan, Placement, Schedule
from tessel_core.model.layers import layer_of
from tessel_core.networks.program_graph import program_graph
from tessel_core.planning.blocks import BlockGraph, block_graph
from tessel_core.planning.names import block_names
from tessel_core.planning.plan import weights_apart
from tessel_core.rules import check_schedule
from tessel_core.units import counted

Network = Callable[[bool], Distributed]
"""Builds the program of one micro-batch without an optimizer.

If the argument is True, weight gradients are separate operations.
"""
_APART = "/weight_gradient"


def placed_program(network: Network, placement: Placement, schedule: Schedule) -> Distributed:
    """Build the program that runs operators on their placed devices, in the order of the schedule.

    Worker w is device w - 1 of the placement. An operator with several devices runs on each of them. If the network has
    tensor-parallel degree T, the operator is placed on groups of T devices, and each device computes 1/T of it. In
    other networks, every device does the same work. A device without a tensor receives it from the nearest device that
    has it. In a placement of a network of degree T, a device may also represent a whole group. Worker w then belongs to
    device (w - 1) // T.

    Outputs are losses and gradients. In the simulation, a run takes as long as its block in the plan. So program and
    schedule end at the same time, unless transfers share a link or the plan counts transfers as work.

    Raises InputError if

    - the placement has replicated stages or belongs to another network;
    - the schedule belongs to another plan or breaks a rule;
    - a tensor-parallel network is placed on groups of another size.
    """
    if placement.replicated:
        why = "has replicated stages, which programs do not support yet: place with one device per stage"
        raise InputError("placement", why)
    placement = placement.on_members
    broken = check_schedule(schedule, without=("memory",))
    if broken:
        raise InputError(f"schedule: {broken[0].where}", broken[0].why)
    split = any(block.kind is BlockKind.WEIGHT for block in schedule.plan.blocks)
    placed = weights_apart(placement) if split else placement
    blocks = block_graph(placed, split_weights=split)
    _check_plan(schedule, placed, blocks)
    model = network(split)
    block_of = _blocks_of(model, placed, blocks)
    stage_of = _stages(placed, blocks)
    shares = _has_shares(model, schedule.plan)
    sender = _nearest(placement, schedule.plan)
    found = Partition(schedule, block_of, stage_of, as_planned=True, shares=shares, sender=sender)(model)
    return _numbered(found, 1 if shares else len(model.program.devices), schedule.plan, placement)


def _check_plan(schedule: Schedule, placement: Placement, blocks: BlockGraph) -> None:
    """Raise InputError if the schedule was made for another plan than that of the placement."""
    plan, names = schedule.plan, block_names(placement.graph, blocks)
    if len(names) != len(plan.blocks):
        why = f"is of another plan: it has {len(plan.blocks)} blocks, but this placement makes {len(names)}"
        raise InputError("schedule", why)
    for name, block, made in zip(names, plan.blocks, blocks.blocks, strict=True):
        if name != block.name:
            raise InputError("schedule", f"is of another plan: its block {block.name!r} is {name!r} in this placement")
        there = [plan.devices[device].name for device in block.devices]
        wanted = [placement.devices[device].name for device in made.devices]
        if there != wanted:
            on, placed_on = ", ".join(there), ", ".join(wanted)
            why = f"is of another plan: block {name!r} is on {on}, but in this placement on {placed_on}"
            raise InputError("schedule", why)


def _blocks_of(model: Distributed, placement: Placement, blocks: BlockGraph) -> tuple[int, ...]:
    """Return the index of the block to which each operation belongs."""
    shown = program_graph(model, placement.graph.name, placement.graph.batch_size)
    index = {name: i for i, name in enumerate(placement.graph.names)}
    of_operator = list[int]()
    for operator in shown.graph.operators:
        layer = layer_of(operator)
        phase = "" if not operator.backward else _APART if operator.kind.endswith("weight_gradient") else "/backward"
        names = operator.name, operator.name.replace(_APART, "/backward"), f"{layer}{phase}", f"{layer}/backward"
        known = next((index[name] for name in (names if operator.backward else names[::2]) if name in index), None)
        if known is None:
            why = f"is of another network: it lacks the program's operator {operator.name!r}"
            raise InputError("placement", why)
        of_operator.append(blocks.block_of[known])
    return _complete_blocks(model.program, [None if i is None else of_operator[i] for i in shown.operator_of])


def _complete_blocks(program: Program, known_blocks: list[int | None]) -> tuple[int, ...]:
    """Fill in the blocks of operations that have none yet.

    An operation on another device of a group gets the block of the same operation on the first device. A view gets the
    block that uses it.
    """
    outputs, by_name = set(program.outputs), dict[tuple[str, str, str], int]()
    for op, block in zip(program.ops, known_blocks, strict=True):
        if block is not None:
            by_name[op.tag.name, op.tag.phase, op.kind] = block
    block_of, of_value = list[int](), dict[int, int]()
    for op, known in zip(program.ops, known_blocks, strict=True):
        block = by_name.get((op.tag.name, op.tag.phase, op.kind), ANYWHERE) if known is None else known
        there = of_value.get(op.inputs[0], 0) if block == ANYWHERE else block
        # A view that is an output of the program gets the block that computes its tensor.
        block_of.append(block if outputs.isdisjoint(op.outputs) else there)
        of_value |= dict.fromkeys(op.outputs, there)
    return tuple(block_of)


def _stages(placement: Placement, blocks: BlockGraph) -> tuple[int, ...]:
    """Return the stage of each block.

    Forward blocks are numbered in order. Another block has the stage of the forward block of its first operator.
    """
    number: dict[int, int] = {}
    for b, block in enumerate(blocks.blocks):
        if block.kind is BlockKind.FORWARD:
            number[b] = len(number)
    graph, stages = placement.graph, list[int]()
    for b, block in enumerate(blocks.blocks):
        mates = (graph.operators[i].forward_of for i in block.operators)
        homes = (blocks.block_of[graph.operator_index(mate)] for mate in mates if mate is not None)
        stages.append(number[b] if b in number else number.get(next(homes, 0), 0))
    return tuple(stages)


def _has_shares(model: Distributed, plan: MicroBatchPlan) -> bool:
    """Return whether each device of the plan runs 1/T of its operators. If not, each device represents a group."""
    degree = len(model.program.devices)
    if degree == 1 or all(len(block.devices) == 1 for block in plan.blocks):
        return False
    for block in plan.blocks:
        if len(block.devices) != degree:
            why = f"runs on {counted(len(block.devices), 'device')}, but the network is divided over {degree}"
            raise InputError(f"block {block.name}", why)
    return True


def _places(placement: Placement, plan: MicroBatchPlan) -> tuple[int, ...]:
    """Return, for each device of the plan, its position in the placement."""
    place = {device.name: i for i, device in enumerate(placement.devices)}
    return tuple(place[device.name] for device in plan.devices)


def _nearest(placement: Placement, plan: MicroBatchPlan) -> ChooseSender:
    """Return a function that chooses the sender with the fastest link to a receiver.

    Among the members of a group it chooses the one at the receiver's position. So all members send at the same time,
    each over its own port.
    """
    mesh, place = placement.transfers.mesh, _places(placement, plan)
    position = {device: i for block in plan.blocks for i, device in enumerate(block.devices)}

    @cache
    def bandwidth(sender: int, receiver: int) -> float:
        return 0.0 if mesh is None else send_link(mesh, place[sender - 1], place[receiver - 1]).bandwidth

    def preferred(sender: int, receiver: int) -> tuple[float, bool]:
        return bandwidth(sender, receiver), position[sender - 1] == position[receiver - 1]

    return lambda senders, receiver: max(senders, key=lambda sender: preferred(sender, receiver))


def _numbered(model: Distributed, group: int, plan: MicroBatchPlan, placement: Placement) -> Distributed:
    """Renumber the devices of a program of the plan as in the placement.

    The devices of a group get consecutive numbers.
    """
    place = _places(placement, plan)

    def worker(device: int) -> int:
        h, p = divmod(device - 1, len(plan.devices))
        return place[p] * group + h + 1

    return model.on_devices(worker)
