"""The distributed program of a placement and a schedule: each operator where it was placed, when it was scheduled."""

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
"""Makes the program of one micro-batch, with gradients of weights apart or not, without an optimizer."""
_APART = "/weight_gradient"


def placed_program(network: Network, placement: Placement, schedule: Schedule) -> Distributed:
    """Operators on the devices where they were placed, micro-batches in the schedule's order, sends where edges cross.

    Worker w is device w - 1 of the placement.  Operators on several devices are done by each, as the plan counts them:
    a network of tensor-parallel degree T is placed on groups of T devices, which have a share of each operator, and any
    other does the same on every device.  A device that lacks a tensor gets it from the nearest one that has it.  A
    network of degree T may also be placed as if groups were devices; worker w is then of device (w - 1) // T.

    Outputs are losses and gradients.  In the simulation a run takes as long as its block in the plan, so both end at
    the same time, unless transfers share a link or the plan counts them as work of devices.

    Raises InputError where the placement has replicated stages or is of another network, the schedule is of another
    plan or breaks a rule, or a tensor-parallel network is on groups of another size.
    """
    if placement.replicated:
        why = "has replicated stages, which no program is made of yet; place with one device per stage"
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
    """Raise InputError where the plan of the schedule is not that of the placement."""
    plan, names = schedule.plan, block_names(placement.graph, blocks)
    if len(names) != len(plan.blocks):
        why = f"is of another plan: it has {len(plan.blocks)} blocks, this placement makes {len(names)}"
        raise InputError("schedule", why)
    for name, block, made in zip(names, plan.blocks, blocks.blocks, strict=True):
        if name != block.name:
            raise InputError("schedule", f"is of another plan: its block {block.name!r} is {name!r} in this placement")
        there = [plan.devices[device].name for device in block.devices]
        wanted = [placement.devices[device].name for device in made.devices]
        if there != wanted:
            why = f"is of another plan: block {name!r} is on {', '.join(there)}, the placement says {', '.join(wanted)}"
            raise InputError("schedule", why)


def _blocks_of(model: Distributed, placement: Placement, blocks: BlockGraph) -> tuple[int, ...]:
    """Per operation, the block of its operator."""
    shown = program_graph(model, placement.graph.name, placement.graph.batch_size)
    index = {name: i for i, name in enumerate(placement.graph.names)}
    of_operator = list[int]()
    for operator in shown.graph.operators:
        layer = layer_of(operator)
        phase = "" if not operator.backward else _APART if operator.kind.endswith("weight_gradient") else "/backward"
        names = operator.name, operator.name.replace(_APART, "/backward"), f"{layer}{phase}", f"{layer}/backward"
        known = next((index[name] for name in (names if operator.backward else names[::2]) if name in index), None)
        if known is None:
            why = f"is of another network: it has no operator {operator.name!r}, which the program has"
            raise InputError("placement", why)
        of_operator.append(blocks.block_of[known])
    found: list[int | None] = [None if each is None else of_operator[each] for each in shown.operator_of]
    return _of_groups(model.program, found)


def _of_groups(program: Program, found: list[int | None]) -> tuple[int, ...]:
    """Blocks of all operations: those of other devices of a group as the first one's, views where they are taken."""
    outputs, by_name = set(program.outputs), dict[tuple[str, str, str], int]()
    for op, block in zip(program.ops, found, strict=True):
        if block is not None:
            by_name[op.tag.name, op.tag.phase, op.kind] = block
    made, of_value = list[int](), dict[int, int]()
    for op, known in zip(program.ops, found, strict=True):
        block = by_name.get((op.tag.name, op.tag.phase, op.kind), ANYWHERE) if known is None else known
        there = of_value.get(op.inputs[0], 0) if block == ANYWHERE else block
        # A view that somebody asks for is where its tensor is made.
        made.append(block if outputs.isdisjoint(op.outputs) else there)
        of_value |= dict.fromkeys(op.outputs, there)
    return tuple(made)


def _stages(placement: Placement, blocks: BlockGraph) -> tuple[int, ...]:
    """Forward blocks are numbered in their order, others as the forward block of their first operator."""
    number: dict[int, int] = {}
    for b, block in enumerate(blocks.blocks):
        if block.kind is BlockKind.FORWARD:
            number[b] = len(number)
    graph, found = placement.graph, list[int]()
    for b, block in enumerate(blocks.blocks):
        mates = (graph.operators[i].forward_of for i in block.operators)
        homes = (blocks.block_of[graph.operator_index(mate)] for mate in mates if mate is not None)
        found.append(number[b] if b in number else number.get(next(homes, 0), 0))
    return tuple(found)


def _has_shares(model: Distributed, plan: MicroBatchPlan) -> bool:
    """Whether the devices of a block have shares of its operators, and are not groups themselves."""
    degree = len(model.program.devices)
    if degree == 1 or all(len(block.devices) == 1 for block in plan.blocks):
        return False
    for block in plan.blocks:
        if len(block.devices) != degree:
            why = f"runs on {counted(len(block.devices), 'device')}, where the network is cut for {degree}"
            raise InputError(f"block {block.name}", why)
    return True


def _places(placement: Placement, plan: MicroBatchPlan) -> tuple[int, ...]:
    """Per device of the plan, its position among those of the placement."""
    place = {device.name: i for i, device in enumerate(placement.devices)}
    return tuple(place[device.name] for device in plan.devices)


def _nearest(placement: Placement, plan: MicroBatchPlan) -> ChooseSender:
    """Chooses the worker with the fastest link to one that lacks a tensor, of a group the one at the same position:
    so the members of a group send side by side, each over its own port."""
    mesh, place = placement.transfers.mesh, _places(placement, plan)
    position = {device: i for block in plan.blocks for i, device in enumerate(block.devices)}

    @cache
    def bandwidth(sender: int, receiver: int) -> float:
        return 0.0 if mesh is None else send_link(mesh, place[sender - 1], place[receiver - 1]).bandwidth

    def preferred(sender: int, receiver: int) -> tuple[float, bool]:
        return bandwidth(sender, receiver), position[sender - 1] == position[receiver - 1]

    return lambda senders, receiver: max(senders, key=lambda sender: preferred(sender, receiver))


def _numbered(model: Distributed, group: int, plan: MicroBatchPlan, placement: Placement) -> Distributed:
    """The devices of the placement's mesh, each of a group next to each other, in place of those of the plan."""
    place = _places(placement, plan)

    def worker(device: int) -> int:
        h, p = divmod(device - 1, len(plan.devices))
        return place[p] * group + h + 1

    return model.on_devices(worker)
