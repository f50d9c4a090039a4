"""Placement -> micro-batch plan: what one micro-batch does on each device, in nanoseconds and bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of a plan made from a placement."""

    split_weights: bool = False
    """Whether weight gradients become blocks of their own; whole backward operators are split for it."""


def weights_apart(placement: Placement) -> Placement:
    """The placement with whole backward operators in halves where the graph allows it, each where the whole was."""
    graph = with_weights_apart(placement.graph)
    if len(graph.operators) == len(placement.graph.operators):
        return placement
    index = {name: i for i, name in enumerate(placement.graph.names)}
    # A weight gradient that was not there goes where the operator lies whose gradient it is of.
    home = [index[each.name if each.name in index else str(each.forward_of)] for each in graph.operators]
    stages = None if placement.stages is None else tuple(placement.stages[i] for i in home)
    return replace(placement, graph=graph, assignment=tuple(placement.assignment[i] for i in home), stages=stages)


def plan_of(placement: Placement, options: PlanOptions | None = None) -> MicroBatchPlan:
    """A block per device and direction, more where the flow comes back to a device; groups of devices share blocks.

    A block of a replicated stage takes as long as its part of the micro-batch, and holds that part's activations on
    each device.  Its last block is longer by the reduction of gradients, as `exposed_reductions` counts it.

    Durations are the operators' times, and the transfers where these block (a sender's in the block that makes the
    tensor, a receiver's in its first block that takes it), else transfers are lags.  A forward operator's activations
    are held until the last block that holds one of its backward operators; where there is none (inference) they are
    static, as weights are.  So a device's work is its load, to rounding.  Devices without operators are left out.

    Tensor-parallel groups are groups of devices here, whichever way the placement has them.

    Raises InputError for an operator without a device or a time on it, and a transfer of unknown size.
    """
    options = PlanOptions() if options is None else options
    placement = placement.on_members
    if options.split_weights:
        placement = weights_apart(placement)
    _check(placement)
    found = block_graph(placement, split_weights=options.split_weights)
    used = sorted({device for block in found.blocks for device in block.devices})
    number = {device: i for i, device in enumerate(used)}
    names, held = block_names(placement.graph, found), _activations(placement, found)
    durations = _durations(placement, found)
    operators = placement.graph.operators
    labels = [label_of(layer_of(operators[i]) for i in each.operators) for each in found.blocks]
    blocks = tuple(
        Block(names[i], each.kind, tuple(number[d] for d in each.devices), durations[i], held[i], labels[i])
        for i, each in enumerate(found.blocks)
    )
    lags = _lags(placement, found)
    return MicroBatchPlan(
        placement.graph.name,
        _devices(placement, used),
        blocks,
        tuple(Dependency(names[a], names[b], lags.get((a, b), 0)) for a, b in found.arcs),
        "ns",
        "B",
        replicated=bool(placement.replicated),
    )


def _check(placement: Placement) -> None:
    if placement.graph.time_unit not in TICKS_PER_SECOND:
        raise InputError(f"graph {placement.graph.name}", f"its times are in {placement.graph.time_unit}, not seconds")
    for operator, on in zip(placement.graph.operators, placement.assignment, strict=True):
        if not on:
            raise InputError(f"operator {operator.name}", "has no device, a plan needs one")
    for violation in supported(placement):
        raise InputError(violation.where, violation.why)


def _durations(placement: Placement, found: BlockGraph) -> list[int]:
    """The duration of each block on the slowest of its devices."""

    def work(block: StageBlock, device: int) -> float:
        kind = placement.devices[device].kind
        times = ((i, placement.graph.operators[i].time_on(kind) or 0.0) for i in block.operators)
        return sum(time / placement.replicas(i) for i, time in times)

    busy = [{device: work(block, device) for device in block.devices} for block in found.blocks]
    if placement.transfers.load_devices:
        for crossing in crossings(placement):
            _charge(placement, found, crossing, busy)
    for devices, seconds in exposed_reductions(placement).items():
        last = max(i for i, each in enumerate(found.blocks) if each.devices == devices)
        busy[last] = {device: time + seconds for device, time in busy[last].items()}
    scale = 1.0 / TICKS_PER_SECOND[placement.graph.time_unit]
    return [to_ticks(max(each.values()) * scale) for each in busy]


def _charge(placement: Placement, found: BlockGraph, crossing: Crossing, busy: Sequence[dict[int, float]]) -> None:
    """A transfer loads its senders where they make the tensor, each receiver where it first takes it."""
    maker, takers = found.block_of[crossing.source], _takers(placement, found, crossing.source)
    for device in (*crossing.senders, *crossing.receivers):
        if not placement.devices[device].is_host:
            taking = (block for block in takers if device in found.blocks[block].devices)
            loaded = maker if device in crossing.senders else min(taking)
            busy[loaded][device] += crossing.seconds_at(device)


def _takers(placement: Placement, found: BlockGraph, source: int) -> set[int]:
    """Blocks that take an operator's output."""
    return {found.block_of[each] for each in placement.graph.consumers[source]}


def _activations(placement: Placement, found: BlockGraph) -> list[int]:
    """Per block, bytes acquired less bytes released on each of its devices."""
    amounts: dict[tuple[int, int], float] = defaultdict(float)
    for operator, release in _releases(placement, found).items():
        whole = placement.graph.operators[operator].activation_bytes or 0
        amounts[found.block_of[operator], release] += whole / placement.replicas(operator)
    held = [0] * len(found.blocks)
    for (acquire, release), amount in amounts.items():
        held[acquire] += to_bytes(amount)
        held[release] -= to_bytes(amount)
    return held


def _releases(placement: Placement, found: BlockGraph) -> dict[int, int]:
    """Per forward operator that has backward ones, the last block with one of them."""
    last: dict[int, int] = {}
    graph = placement.graph
    for i, operator in enumerate(graph.operators):
        if operator.forward_of:
            forward = graph.operator_index(operator.forward_of)
            last[forward] = max(last.get(forward, 0), found.block_of[i])
    return last


def _lags(placement: Placement, found: BlockGraph) -> dict[tuple[int, int], int]:
    """Per pair of blocks, what the tensors from one to the other take on the slowest of the links between them.

    They follow each other on a link: one latency, and all their bytes.
    """
    mesh = placement.transfers.mesh
    if mesh is None or placement.transfers.load_devices:
        return {}
    amounts: dict[tuple[int, int], float] = defaultdict(float)
    receivers: dict[tuple[int, int], set[int]] = defaultdict(set)
    for crossing in crossings(placement):
        producer = found.block_of[crossing.source]
        for taker in _takers(placement, found, crossing.source):
            lacking = set(found.blocks[taker].devices) & set(crossing.receivers)
            if lacking:
                # Replicas on both ends send at once: the end with fewer of them takes longer.
                parts = min(len(crossing.senders), len(found.blocks[taker].devices)) if placement.replication else 1
                amounts[producer, taker] += sent_bytes(placement.graph, crossing.source) / parts
                receivers[producer, taker] |= lacking
    return {
        pair: to_ticks(
            max(
                min(send_link(mesh, sender, device).seconds(amount) for sender in found.blocks[pair[0]].devices)
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
