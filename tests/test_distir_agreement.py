"""`compat="distir"` reproduces the output of DistIR's published code, to 1e-9 in time and to the byte."""

from __future__ import annotations

import random

import pytest
from helpers.programs import spread, uniform_mesh
from helpers.seeds import seeds
from helpers.slow_simulator import slowly
from helpers.training import mlp_training

from tessel_core.ir import read_program
from tessel_core.ir.transforms.update import SgdUpdate
from tessel_core.model import Connection, Device, DeviceMesh, Link, PeakRate
from tessel_core.networks.mlp import MlpSpec
from tessel_core.simulation import Trace, simulate
from tessel_core.simulation.distir_rules import DistIrCosts

AGREEMENT = [
    ((8, 512), (1, 1, 1, 1), 256, "fp16", 0.0006876542638730161, 9699332),
    ((8, 512), (2, 1, 1, 1), 256, "fp16", 0.0019062566542222229, 9437188),
    ((8, 512), (1, 2, 1, 1), 256, "fp16", 0.0012343316500317463, 6291460),
    ((8, 512), (1, 1, 2, 2), 256, "fp16", 0.0011279201056507945, 6684676),
    ((8, 512), (2, 2, 2, 4), 256, "fp16", 0.001980968673523809, 3244032),
    ((8, 512), (1, 1, 8, 16), 256, "fp16", 0.002247285902222225, 2637828),
    ((8, 512), (1, 4, 2, 8), 256, "fp32", 0.003923417622349205, 4194304),
    ((16, 8192), (1, 1, 1, 1), 8192, "fp16", 3.792823284250416, 6979321860),
    ((16, 8192), (16, 1, 1, 1), 8192, "fp16", 1.5310778074961273, 4462739460),
    ((16, 8192), (1, 16, 1, 1), 8192, "fp16", 1.5345096469475559, 2952790020),
    ((16, 8192), (1, 1, 16, 128), 8192, "fp16", 0.5469675088944764, 806354948),
    ((16, 8192), (2, 2, 4, 32), 8192, "fp16", 0.5752897288126989, 861929472),
    ((64, 16384), (2, 2, 4, 16), 8192, "fp16", 7.225899764526734, 10678697984),
    ((96, 32768), (1, 4, 4, 8), 1024, "fp16", 5.667519726919165, 28613541888),
    ((96, 32768), (2, 8, 2, 4), 2048, "fp32", 16.94428313113809, 58082721792),
]


def simulated(
    size: tuple[int, int], degrees: tuple[int, int, int, int], batch: int, dtype: str, mesh: DeviceMesh | None = None
) -> Trace:
    model = SgdUpdate()(spread(mlp_training(MlpSpec(*size, batch, dtype)), *degrees))
    workers = degrees[0] * degrees[1] * degrees[2]
    return simulate(model.program, costs=DistIrCosts(mesh or uniform_mesh(workers)), compat="distir")


@pytest.mark.parametrize(("size", "degrees", "batch", "dtype", "latency", "peak"), AGREEMENT)
def test_the_published_table(size, degrees, batch, dtype, latency, peak) -> None:  # type: ignore[no-untyped-def]
    trace = simulated(size, degrees, batch, dtype)
    assert trace.latency == pytest.approx(latency, rel=1e-9)
    assert max(trace.peak_memory) == peak


def test_each_stage_of_the_published_example() -> None:
    """Devices have number d·H·P + h·P + p. Those with p = 0 are stage 0."""
    trace = simulated((8, 512), (2, 2, 2, 4), 256, "fp16")
    assert trace.device_end == pytest.approx((0.001980968673523809, 0.001781121316571428) * 4, rel=1e-9)
    assert trace.peak_memory == (3244032, 3047428) * 4


@pytest.mark.parametrize(
    ("degrees", "latency"), [((2, 2, 2, 4), 0.002227384033523809), ((1, 8, 1, 1), 0.0007910609696507933)]
)
def test_two_nodes(degrees: tuple[int, int, int, int], latency: float) -> None:
    """Two nodes of 4: 200 Gb/s inside, 10 between, 64 to the host."""
    rate = (PeakRate("fp32", 1.4e13),)
    devices = [Device("host", "gpu", 9, None, rate, 9e11)]
    devices += [Device(f"d{i}", "gpu", (i - 1) // 4, None, rate, 9e11) for i in range(1, 9)]
    to_host = tuple(Connection(("host", f"d{i}"), Link(64 * 1.25e8)) for i in range(1, 9))
    mesh = DeviceMesh("two-nodes", tuple(devices), to_host, Link(200 * 1.25e8), Link(10 * 1.25e8))
    assert simulated((8, 512), degrees, 256, "fp16", mesh).latency == pytest.approx(latency, rel=1e-9)


SHARDS = """program shards
%x: fp16[96, 48]@1
%y: fp16[96, 48]@2
%w: fp16[48, 36]@1
%u: fp16[48, 36]@2
%v: fp16[36, 48]@1
%t: fp16[36, 48]@2
%a: fp16[96, 36]@1 = matmul(%x, %w)
%b: fp16[96, 36]@2 = matmul(%y, %u)
%c: fp16[96, 36]@1 = relu(%a)
%d: fp16[96, 36]@2 = relu(%b)
%e: fp16[96, 48]@1 = matmul(%c, %v)
%f: fp16[96, 48]@2 = matmul(%d, %t)
%g: fp16[96, 48]@1, %h: fp16[96, 48]@2 = allreduce(%e, %f)
%i: fp16[96, 36]@1, %j: fp16[36, 48]@1 = matmul_grad(%c, %v, %g)
%k: fp16[96, 36]@1 = relu_grad(%a, %i)
%l: fp16[36, 48]@1 = sgd(%v, %j) {rate=0.1}
%m: fp16[96, 48]@3 = send(%h) {to=3}
%n: fp16[96, 36]@3 = send(%k) {to=3}
return %m, %n
"""
"""A layer cut by columns and one cut by rows on two devices. A third device takes the results."""
HEADS = """program heads
%q: fp32[3, 5, 20, 8]@2
%k: fp32[3, 5, 8, 20]@2
%v: fp32[3, 5, 20, 8]@3
%s: fp32[3, 5, 20, 20]@2 = matmul(%q, %k)
%r: fp32[3, 5, 20, 20]@3 = send(%s) {to=3}
%z: fp32[3, 5, 20, 8]@3 = matmul(%r, %v)
%o: fp32[3, 5, 20, 8]@3 = identity(%z)
%p: fp32[3, 5, 20, 8]@3 = add(%o, %z)
return %p
"""
"""Products of four axes, each on another device."""
TO_ITSELF = """program to-itself
%x: fp32[30, 10]@1
%y: fp32[30, 10]@2
%a: fp32[30, 10]@1 = relu(%x)
%b: fp32[30, 10]@2 = add(%y, %y)
%c: fp32[60, 10]@2 = gather(%a, %b) {axis=0, to=2}
%d: fp32[30, 10]@2, %e: fp32[30, 10]@2 = split(%c) {axis=0, parts=2}
%f: fp32[30, 10]@1, %g: fp32[30, 10]@2, %h: fp32[30, 10]@3 = broadcast(%d) {devices=(1 2 3)}
%i: fp32[30, 10]@3 = reduce(%f, %g) {to=3}
%j: fp32[10, 10]@1, %k: fp32[10, 10]@2, %l: fp32[10, 10]@3 = scatter(%i) {axis=0, devices=(1 2 3)}
%m: fp32[20, 10]@3 = concat(%l, %l) {axis=0}
return %m
"""
"""A gather to a device that already has one part, followed by every other kind of communication."""
HAND_WRITTEN = [
    (SHARDS, (7.53446902857143e-05, 3.597916342857143e-05, 7.53446902857143e-05), (49536, 34560, 16128)),
    (HEADS, (1.7680144047619048e-05, 3.770179285714286e-05), (43200, 43200)),
    (TO_ITSELF, (2.15386880952381e-05, 2.15386880952381e-05, 3.15386880952381e-05), (2400, 6000, 2800)),
]
"""Programs, with the end and the peak memory of each worker according to DistIR's code on three devices."""


@pytest.mark.parametrize(("text", "ends", "peaks"), HAND_WRITTEN, ids=("shards", "heads", "to itself"))
def test_programs_written_by_hand(text: str, ends: tuple[float, ...], peaks: tuple[int, ...]) -> None:
    trace = simulate(read_program(text), costs=DistIrCosts(uniform_mesh(3)), compat="distir")
    assert trace.device_end == pytest.approx(ends, rel=1e-9)
    assert trace.peak_memory == peaks


@pytest.mark.parametrize("seed", seeds(40))
def test_the_simulator_agrees_with_one_that_is_plain(seed: int) -> None:
    """Odd sizes everywhere, K = 1 with P > 1, fp32 and fp16."""
    choose = random.Random(seed)
    data, tensor, stages = (choose.choice((1, 2, 3)) for _ in range(3))
    micro_batches = choose.choice((1, 2, 3, 5))
    size = (choose.randint(max(1, stages), 5), 6 * choose.randint(1, 3))
    batch = data * micro_batches * choose.randint(1, 3)
    model = SgdUpdate()(
        spread(
            mlp_training(MlpSpec(*size, batch, choose.choice(("fp16", "fp32")))), data, tensor, stages, micro_batches
        )
    )
    costs = DistIrCosts(uniform_mesh(data * tensor * stages))
    trace, (clock, peak) = simulate(model.program, costs=costs, compat="distir"), slowly(model.program, costs)
    assert dict(zip(trace.devices, trace.device_end, strict=True)) == pytest.approx(clock, rel=1e-12)
    assert dict(zip(trace.devices, trace.peak_memory, strict=True)) == peak
