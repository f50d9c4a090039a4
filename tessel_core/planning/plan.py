"""Micro-batch plans made from placements, in nanoseconds and bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import floor

from tessel_core.costs.collectives import send_link
from tessel_core.errors import InputError
from tessel_core.model import (
    Block,
    Crossing,
    Dependency,
    MicroBatchPlan,
    Placement,
    PlanDevice,
    crossings,
    exposed_reductions,
)
from tessel_core.model.layers import layer_of
from tessel_core.model.plan import label_of
from tessel_core.model.transfers import sent_bytes
from tessel_core.networks.graphs.backward import with_weights_apart
from tessel_core.planning.blocks import BlockGraph, StageBlock, block_graph
from tessel_core.planning.names import block_names
from tessel_core.rules.placement_referee import ROUNDING, supported
from tessel_core.units import TICKS_PER_SECOND, to_bytes, to_ticks


def weights_apart(placement: Placement) -> Placement:
    """Split backward operators that compute both gradients, where the graph allows it.

    Both parts stay on the device.
    """
    graph = with_weights_apart(placement.graph)
    if len(graph.operators) == len(placement.graph.operators):
        return placement
    index = {name: i for i, name in enumerate(placement.graph.names)}
    # A new weight gradient goes to the device of its forward operator.
    home = [index[each.name if each.name in index else str(each.forward_of)] for each in graph.operators]
    stages = None if placement.stages is None else tuple(placement.stages[i] for i in home)
    return replace(placement, graph=graph, assignment=tuple(placement.assignment[i] for i in home), stages=stages)


def plan_of(placement: Placement, *, split_weights: bool = False) -> MicroBatchPlan:
    """Make a plan with one block per device and direction, or more if tensors return to a device that they have left.

    The devices of a tensor-parallel group share blocks. A block of a replicated stage does one replica's part of the
    micro-batch, with the time and activations of that part. The stage's last block also contains the reduction of
    gradients, as `exposed_reductions` counts it.

    The duration of a block is the time of its operators. Blocking transfers are added to it. The time to send is added
    to the block that makes the tensor, and the time to receive to the first block that uses it. Overlapped transfers
    become lags. So the work of a device is its load, up to rounding.

    With `split_weights`, weight gradients get their own blocks, and backward operators that compute both gradients are
    split.

    Activations of a forward operator are held until the last block with one of its backward operators. Without such a
    block (inference) they are static, like weights. Devices without operators are left out.

    Raises InputError for an operator without a device, or without a time on it, and for a transfer of unknown size.
    """
    placement = placement.on_members
    if split_weights:
        placement = weights_apart(placement)
    _check(placement)
    blocks = block_graph(placement, split_weights=split_weights)
    used = sorted({device for block in blocks.blocks for device in block.devices})
    number = {device: i for i, device in enumerate(used)}
    names, held = block_names(placement.graph, blocks), _activations(placement, blocks)
    durations = _durations(placement, blocks)
    operators = placement.graph.operators
    labels = [label_of(layer_of(operators[i]) for i in each.operators) for each in blocks.blocks]
    plan_blocks = tuple(
        Block(names[i], each.kind, tuple(number[d] for d in each.devices), durations[i], held[i], labels[i])
        for i, each in enumerate(blocks.blocks)
    )
    lags = _lags(placement, blocks)
    return MicroBatchPlan(
        placement.graph.name,
        _devices(placement, used),
        plan_blocks,
        tuple(Dependency(names[a], names[b], lags.get((a, b), 0)) for a, b in blocks.arcs),
        "ns",
        "B",
        replicated=bool(placement.replicated),
    )


def _check(placement: Placement) -> None:
    if placement.graph.time_unit not in TICKS_PER_SECOND:
        raise InputError(f"graph {placement.graph.name}", f"its times are in {placement.graph.time_unit}, not seconds")
    for operator, on in zip(placement.graph.operators, placement.assignment, strict=True):
        if not on:
            raise InputError(f"operator {operator.name}", "has no device, but a plan needs one")
    for violation in supported(placement):
        raise InputError(violation.where, violation.why)


def _durations(placement: Placement, blocks: BlockGraph) -> list[int]:
    """Return the duration of each block on the slowest of its devices."""

    def work(block: StageBlock, device: int) -> float:
        kind = placement.devices[device].kind
        times = ((i, placement.graph.operators[i].time_on(kind) or 0.0) for i in block.operators)
        return sum(time / placement.replicas(i) for i, time in times)

    busy = [{device: work(block, device) for device in block.devices} for block in blocks.blocks]
    if placement.transfers.load_devices:
        for crossing in crossings(placement):
            _charge(placement, blocks, crossing, busy)
    for devices, seconds in exposed_reductions(placement).items():
        last = max(i for i, each in enumerate(blocks.blocks) if each.devices == devices)
        busy[last] = {device: time + seconds for device, time in busy[last].items()}
    scale = 1.0 / TICKS_PER_SECOND[placement.graph.time_unit]
    return [to_ticks(max(each.values()) * scale) for each in busy]


def _charge(placement: Placement, blocks: BlockGraph, crossing: Crossing, busy: Sequence[dict[int, float]]) -> None:
    """Add the time of a transfer to the block that makes the tensor, and on each receiver to the first block that uses
    it.
    """
    maker, takers = blocks.block_of[crossing.source], _takers(placement, blocks, crossing.source)
    for device in (*crossing.senders, *crossing.receivers):
        if not placement.devices[device].is_host:
            taking = (block for block in takers if device in blocks.blocks[block].devices)
            loaded = maker if device in crossing.senders else min(taking)
            busy[loaded][device] += crossing.seconds_at(device)


def _takers(placement: Placement, blocks: BlockGraph, source: int) -> set[int]:
    """Return the blocks that use an operator's output."""
    return {blocks.block_of[each] for each in placement.graph.consumers[source]}


def _activations(placement: Placement, blocks: BlockGraph) -> list[int]:
    """Return the bytes that each block acquires minus those that it releases, on each of its devices."""
    amounts: dict[tuple[int, int], float] = defaultdict(float)
    for operator, release in _releases(placement, blocks).items():
        whole = placement.graph.operators[operator].activation_bytes or 0
        amounts[blocks.block_of[operator], release] += whole / placement.replicas(operator)
    held = [0] * len(blocks.blocks)
    for (acquire, release), amount in amounts.items():
        held[acquire] += to_bytes(amount)
        held[release] -= to_bytes(amount)
    return held


def _releases(placement: Placement, blocks: BlockGraph) -> dict[int, int]:
    """Return, for each forward operator that has backward operators, the last block that contains one of them."""
    last: dict[int, int] = {}
    graph = placement.graph
    for i, operator in enumerate(graph.operators):
        if operator.forward_of:
            forward = graph.operator_index(operator.forward_of)
            last[forward] = max(last.get(forward, 0), blocks.block_of[i])
    return last


def _lags(placement: Placement, blocks: BlockGraph) -> dict[tuple[int, int], int]:
    """Return the lag of each pair of blocks: the time to move all tensors between them on the slowest link.

    The tensors are sent one after another on a link, so its latency counts once.
    """
    mesh = placement.transfers.mesh
    if mesh is None or placement.transfers.load_devices:
        return {}
    amounts: dict[tuple[int, int], float] = defaultdict(float)
    receivers: dict[tuple[int, int], set[int]] = defaultdict(set)
    for crossing in crossings(placement):
        producer = blocks.block_of[crossing.source]
        for taker in _takers(placement, blocks, crossing.source):
            lacking = set(blocks.blocks[taker].devices) & set(crossing.receivers)
            if lacking:
                # Replicas send and receive in parallel, so the end with fewer replicas decides the time.
                parts = min(len(crossing.senders), len(blocks.blocks[taker].devices)) if placement.replication else 1
                amounts[producer, taker] += sent_bytes(placement.graph, crossing.source) / parts
                receivers[producer, taker] |= lacking
    return {
        pair: to_ticks(
            max(
                min(send_link(mesh, sender, device).seconds(amount) for sender in blocks.blocks[pair[0]].devices)
                for device in receivers[pair]
            )
        )
        for pair, amount in amounts.items()
    }


def _devices(placement: Placement, used: Sequence[int]) -> tuple[PlanDevice, ...]:
    devices = []
    for device in used:
        static = sum(placement.lasting_bytes[i] for i in sorted(placement.operators_on[device]))
        shown = placement.devices[device]
        capacity = None if shown.memory_capacity is None else floor(shown.memory_capacity)
        devices.append(PlanDevice(shown.name, None if shown.is_host else capacity, to_bytes(static * (1 - ROUNDING))))
    return tuple(devices)
