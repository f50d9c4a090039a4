"""The default simulation: streams, links and live memory, against examples by hand or a plain second version."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from helpers.programs import spread, stream_by_hand
from helpers.seeds import seeds
from helpers.training import mlp_training

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Program
from tessel_core.ir.transforms.update import SgdUpdate
from tessel_core.ir.types import TensorType
from tessel_core.model import Device, DeviceMesh, Link, PeakRate
from tessel_core.networks.mlp import MlpSpec
from tessel_core.simulation import simulate
from tessel_core.simulation.costs import Costs, DeviceSeconds, MeshCosts


def mesh(devices: int, per_node: int = 2) -> DeviceMesh:
    found = tuple(Device(f"d{i}", "gpu", i // per_node, None, (PeakRate("fp32", 1e12),), 1e12) for i in range(devices))
    return DeviceMesh("mesh", found, same_node_link=Link(1e9, 1e-6), default_link=Link(1e8, 1e-5))


class Fixed(Costs):
    """Costs: two seconds for computing, three for communicating."""

    def seconds(self, kind, types, outputs, values) -> DeviceSeconds:  # type: ignore[no-untyped-def]
        span = 3.0 if find_operator(kind).pattern else 2.0
        return {each.device: span for each in (*types, *outputs)}


def two_sends() -> Program:
    """Return relu a, send a; relu b, send b. With overlap, the second relu runs during the first send."""
    build = ProgramBuilder("two")
    x = build.input("x", TensorType("fp32", (10,), 1))
    a = build.one("relu", [x])
    there = build.one("send", [a], to=2)
    b = build.one("relu", [a])
    also = build.one("send", [b], to=2)
    return build.finish([build.one("add", [there, also])])


def test_talking_runs_beside_computing_or_does_not() -> None:
    together = simulate(two_sends(), costs=Fixed())
    assert list(together.start) == [0, 2, 2, 2, 5, 5, 8]
    assert together.device_end == (8, 10)
    apart = simulate(two_sends(), costs=Fixed(), overlap=False)
    assert list(apart.start) == [0, 2, 2, 5, 7, 7, 10]
    assert apart.latency == 12


def test_what_is_held_when_by_hand() -> None:
    """Device 1: x always, a from 0 to 5 (its send), b from 2 to 8. Device 2: 40 each of a, b and their sum."""
    trace = simulate(two_sends(), costs=Fixed())
    assert trace.peak_memory == (120, 120)
    steps = list(zip(trace.memory_device, trace.memory_time, trace.memory_bytes, strict=True))
    assert [each for each in steps if each[0] == 1][-1] == (1, 8, 40)


def test_collectives_go_around_in_rings() -> None:
    """Four devices on two nodes, 4,000 bytes: two rails of 1e8 B/s carry 2 · 3/4 of the bytes.

    A tree's latency, 1e-5 between the nodes and 1e-6 inside each, is shorter than a ring's.
    """
    costs, types = MeshCosts(mesh(4)), [TensorType("fp32", (1000,), d) for d in (1, 2, 3, 4)]
    once = 1.1e-5 + 3000 / 2e8
    assert costs.seconds("allreduce", types, types, {}) == pytest.approx(dict.fromkeys((1, 2, 3, 4), 2 * once))
    assert costs.seconds("allreduce", types[:2], types[:2], {})[1] == pytest.approx(2 * (1e-6 + 2000 / 1e9))
    whole = [each.resized(0, 4000) for each in types]
    assert costs.seconds("allgather", types, whole, {"axis": 0})[1] == pytest.approx(1.1e-5 + 12000 / 2e8)
    assert costs.seconds("send", types[:1], types[1:2], {"to": 2})[1] == pytest.approx(1e-6 + 4000 / 1e9)
    assert costs.seconds("broadcast", types[:1], types, {})[3] == pytest.approx(2 * 1e-6 + 1e-5 + 4000 / 1e8)


def test_a_device_that_the_mesh_does_not_have_is_named() -> None:
    with pytest.raises(InputError, match=r"^device 2: is not in mesh mesh, whose devices are 1 to 1"):
        simulate(two_sends(), mesh(1))


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("seed", seeds(30))
def test_it_agrees_with_a_plain_rewrite(seed: int, overlap: bool) -> None:
    choose = random.Random(seed)
    data, tensor, stages = (choose.choice((1, 2)) for _ in range(3))
    micro_batches = choose.choice((1, 2, 4))
    model = mlp_training(MlpSpec(choose.randint(2, 4), 8, 16, "fp32"))
    program = SgdUpdate()(spread(model, data, tensor, stages, micro_batches)).program
    costs = MeshCosts(mesh(8))
    trace = simulate(program, costs=costs, overlap=overlap)
    starts, ends = plainly(program, costs, overlap)
    for op, start in zip(trace.op, trace.start, strict=True):
        assert start == pytest.approx(starts[op])
    peaks = most_held(program, starts, ends)
    assert dict(zip(trace.devices, trace.peak_memory, strict=True)) == {d: peaks[d] for d in trace.devices}


def plainly(program: Program, costs: Costs, overlap: bool) -> tuple[dict[int, float], dict[int, float]]:
    """Return start and end of each operation: as early as its inputs and earlier ones on its streams allow."""
    starts: dict[int, float] = {}
    ends: dict[int, float] = {}
    busy: list[tuple[set[tuple[int, str]], dict[int, float], float]] = []
    made_by = {value: i for i, op in enumerate(program.ops) for value in op.outputs}
    for i, op in enumerate(program.ops):
        spans = costs.seconds(op.kind, program.types_of(op.inputs), program.types_of(op.outputs), dict(op.attributes))
        stream = stream_by_hand(program, op) if overlap else ""
        start = max([ends[made_by[value]] for value in op.inputs if value in made_by], default=0.0)
        for streams, before, began in busy:
            for device in spans:
                if (device, stream) in streams:
                    start = max(start, began + before[device])
        starts[i], ends[i] = start, start + max(spans.values())
        busy.append(({(device, stream) for device in spans}, spans, start))
    return starts, ends


def most_held(program: Program, starts: dict[int, float], ends: dict[int, float]) -> dict[int, int]:
    """Return the most that each device holds at the start of any operation."""
    held: dict[int, tuple[float, float]] = dict.fromkeys(program.inputs, (0.0, float("inf")))
    for i, op in enumerate(program.ops):
        for value in op.outputs:
            held[value] = starts[i], ends[i]
        for value in op.inputs:
            held[value] = held[value][0], max(held[value][1], ends[i])
    for value in program.outputs:
        held[value] = held[value][0], float("inf")
    for op in program.ops:  # the output of sgd is where the weights are
        if op.kind == "sgd":
            for value in op.outputs:
                held.pop(value)
    most: dict[int, int] = defaultdict(int)
    for moment in {begin for begin, _ in held.values()}:
        now: dict[int, int] = defaultdict(int)
        for value, (begin, end) in held.items():
            if begin <= moment < end:
                now[program.types[value].device] += program.types[value].bytes
        for device, amount in now.items():
            most[device] = max(most[device], amount)
    return most
