"""`compat="distir"` reproduces what DistIR's published code says, to 1e-9 in time and to the byte."""

from __future__ import annotations

import random

import pytest
from helpers.programs import spread, uniform_mesh
from helpers.slow_simulator import slowly

from tessel_core.ir.transforms import SgdUpdate
from tessel_core.model import Connection, Device, DeviceMesh, Link, PeakRate
from tessel_core.networks.programs import MlpSpec, mlp_training
from tessel_core.simulation import DistIrCosts, Trace, simulate

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
    """Devices d·H·P + h·P + p: those with p = 0 are stage 0."""
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


@pytest.mark.parametrize("seed", range(40))
def test_the_simulator_agrees_with_one_that_is_plain(seed: int) -> None:
    """Odd numbers of everything, K = 1 with P > 1, fp32 and fp16."""
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
