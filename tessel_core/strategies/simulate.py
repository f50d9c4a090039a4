"""One strategy, operation by operation: its program, its time and memory on a mesh, or why it cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tessel_core.errors import InputError
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.program import Program
from tessel_core.ir.transforms import Checkpoint, DataParallel, Pipeline, ShardedOptimizer, TensorParallel
from tessel_core.model import Device, DeviceMesh, Link, PeakRate
from tessel_core.simulation import DistIrCosts, MeshCosts, Trace, simulate_in_order, simulate_streams
from tessel_core.strategies.family import Family, Spec
from tessel_core.strategies.orders import order_objection, stage_order
from tessel_core.strategies.strategy import Strategy
from tessel_core.units import show_memory


class Semantics(StrEnum):
    """Whose rules of time and memory are followed."""

    DEFAULT = "default"
    """Streams that overlap, rings, kernels as fitted."""
    DISTIR = "distir"
    """DistIR's published code, faults included."""


def build_program(family: Family, spec: Spec, strategy: Strategy) -> Distributed:
    """The network on the strategy's devices; in training the optimizer's step is included.

    Raises
    ------
    InputError
        Where a degree does not divide what it divides, or the scheduler does not suit.
    """
    model, optimizer = family.build(spec), family.optimizer(spec)
    model = TensorParallel(strategy.tensor)(Checkpoint()(model) if strategy.recompute else model)
    order = stage_order(strategy.schedule, strategy.pipeline, strategy.micro_batches, optimizer is not None)
    model = DataParallel(strategy.data)(Pipeline(order)(model))
    if optimizer is None:
        return model
    return ShardedOptimizer(optimizer)(model) if strategy.zero else optimizer(model)


def count_operations(family: Family, spec: Spec, strategy: Strategy) -> int:
    """About how many its program has, from the program of one device, which is quick to build."""
    alone = build_program(family, spec, replace(strategy, data=1, tensor=1, pipeline=1, micro_batches=1, zero=False))
    return len(alone.program.ops) * strategy.data * strategy.tensor * strategy.micro_batches


def why_not(family: Family, spec: Spec, strategy: Strategy, mesh: DeviceMesh) -> str:
    """What speaks against a strategy before anything is simulated, as one sentence; empty where nothing does."""
    parts = strategy.data * strategy.micro_batches
    if strategy.devices > len(mesh.devices):
        return f"it takes {strategy.devices} devices, the mesh has {len(mesh.devices)}"
    if spec.batch % parts:
        parts_told = f"{strategy.data} x {strategy.micro_batches} parts, replicas by micro-batches"
        return f"a batch of {spec.batch} does not divide into {parts_told}"
    objection = family.objection(spec, strategy.tensor)
    if objection:
        return objection
    if strategy.pipeline > spec.layers:
        return f"{strategy.pipeline} stages need as many layers, there are {spec.layers}"
    if (strategy.recompute or strategy.zero) and family.optimizer(spec) is None:
        return "inference has neither a backward to recompute for nor an optimizer to share"
    return order_objection(strategy.schedule, strategy.pipeline, strategy.micro_batches)


def shortage(peaks: Sequence[int], mesh: DeviceMesh) -> str:
    """By how much the first device whose memory does not do is short of it; empty where all do."""
    for device, peak in zip(mesh.devices, peaks, strict=False):
        if device.memory_capacity is not None and peak > device.memory_capacity:
            missing, held = show_memory(peak - device.memory_capacity, "B"), show_memory(peak, "B")
            return f"the memory of {device.name} is {missing} short of the {held} that it has to hold"
    return ""


@dataclass(frozen=True)
class Simulated:
    """A program and its trace."""

    program: Program
    trace: Trace
    shortage: str = ""
    """Why it does not fit the mesh's memory; empty where it does."""


def simulate_strategy(
    family: Family, spec: Spec, strategy: Strategy, mesh: DeviceMesh, semantics: Semantics = Semantics.DEFAULT
) -> Simulated:
    """The strategy on the first devices of the mesh, in their order; InputError where it cannot be."""
    objection = why_not(family, spec, strategy, mesh)
    if objection:
        raise InputError(f"strategy {strategy}", objection)
    return simulate_program(build_program(family, spec, strategy).program, mesh, semantics)


def simulate_program(program: Program, mesh: DeviceMesh, semantics: Semantics = Semantics.DEFAULT) -> Simulated:
    """A program whose worker w is device w − 1 of the mesh, and whose device 0 is the host."""
    extra = next((each for each in program.devices if each > len(mesh.devices)), None)
    if extra is not None:
        raise InputError(f"device {extra}", f"is not in mesh {mesh.name}, which has {len(mesh.devices)}")
    if semantics is Semantics.DISTIR:
        trace = simulate_in_order(program, DistIrCosts(with_host(mesh)))
    else:
        trace = simulate_streams(program, MeshCosts(mesh))
    held = dict(zip(trace.devices, trace.peak_memory, strict=True))
    peaks = [held.get(worker, 0) for worker in range(1, len(mesh.devices) + 1)]
    return Simulated(program, trace, shortage(peaks, mesh))


def with_host(mesh: DeviceMesh) -> DeviceMesh:
    """The mesh as DistIR's costs take it: a host before its devices, on a node of its own, at the slowest link.

    InputError for a device without FLOP/s or memory bandwidth, which those costs are made of.
    """
    for device in mesh.devices:
        if not device.flops or device.memory_bandwidth is None:
            missing = "memory_bandwidth" if device.flops else "flops"
            raise InputError(f"device {device.name}", f"has no {missing}, from which times are derived")
    slowest = min(mesh.links, key=lambda link: link.bandwidth, default=Link(1.0))
    nodes, names = {device.node for device in mesh.devices}, {device.name for device in mesh.devices}
    name = next(word for word in ("host", *(f"host{i}" for i in range(len(names)))) if word not in names)
    host = Device(name, name, max(nodes) + 1, None, mesh.devices[0].flops, mesh.devices[0].memory_bandwidth)
    return replace(mesh, devices=(host, *mesh.devices), default_link=mesh.default_link or slowest)


def equal_devices(count: int, flops: float, bytes_per_second: float, gigabits: float) -> DeviceMesh:
    """So many equal devices, all pairs equally linked at Gb/s (1.25e8 bytes), as DistIR's experiments have it."""
    rates = tuple(PeakRate(dtype, flops) for dtype in ("fp32", "fp16", "bf16"))
    devices = tuple(Device(f"gpu{i}", "gpu", 0, None, rates, bytes_per_second) for i in range(count))
    return DeviceMesh("uniform", devices, same_node_link=Link(gigabits * 1.25e8))
