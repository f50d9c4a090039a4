"""Shared uplinks: examples by hand, max-min fairness, and agreement with a slow, simple simulation."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
from helpers.programs import spread, stream_by_hand
from helpers.seeds import seeds
from helpers.training import mlp_training
from hypothesis import given
from hypothesis import strategies as st

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Program
from tessel_core.ir.transforms.update import SgdUpdate
from tessel_core.ir.types import TensorType
from tessel_core.model import Device, DeviceMesh, Link, PeakRate
from tessel_core.networks.mlp import MlpSpec
from tessel_core.simulation import simulate
from tessel_core.simulation.costs import MeshCosts
from tessel_core.simulation.sharing import Flow, Uplink, fair_rates


def mesh(nodes: int, per_node: int, uplink: float | None) -> DeviceMesh:
    devices = tuple(
        Device(f"d{i}", "gpu", i // per_node, None, (PeakRate("fp32", 1e12),), 1e12) for i in range(nodes * per_node)
    )
    return DeviceMesh("mesh", devices, (), Link(1e9, 1e-6), Link(1e6, 1e-3), uplink)


def sends(pairs: list[tuple[int, int, int]]) -> Program:
    """Return a program of sends with these bytes, from and to these devices, all at once."""
    build = ProgramBuilder("sends")
    given_ = [build.input(f"x{i}", TensorType("int8", (size,), one)) for i, (size, one, _) in enumerate(pairs)]
    return build.finish([build.one("send", [x], to=to) for x, (_, _, to) in zip(given_, pairs, strict=True)])


def ends(program: Program, costs: MeshCosts, sharing: bool = True) -> list[float]:
    trace = simulate(program, costs=costs, link_sharing=sharing)
    last: dict[int, float] = defaultdict(float)
    for op, start, seconds in zip(trace.op.tolist(), trace.start.tolist(), trace.seconds.tolist(), strict=True):
        last[op] = max(last[op], start + seconds)
    return [last[i] for i in range(len(program.ops))]


def test_two_transfers_share_what_leaves_their_node() -> None:
    """1 MB and 2 MB over links of 1 MB/s and an uplink of 1 MB/s. Each has half until the first one ends, after 2 s."""
    program = sends([(1_000_000, 1, 3), (2_000_000, 2, 4)])
    assert ends(program, MeshCosts(mesh(2, 2, 1e6))) == pytest.approx([2.001, 3.001])
    assert ends(program, MeshCosts(mesh(2, 2, 1.5e6))) == pytest.approx([0.001 + 4 / 3, 0.001 + 4 / 3 + 1])
    assert ends(program, MeshCosts(mesh(2, 2, 2e6))) == pytest.approx([1.001, 2.001])
    assert ends(program, MeshCosts(mesh(2, 2, 5e5)))[1] == pytest.approx(6.001)
    assert ends(program, MeshCosts(mesh(2, 2, 1e6)), sharing=False) == pytest.approx([1.001, 2.001])


def test_both_ways_do_not_meet_and_neither_does_what_stays_inside() -> None:
    crossing = sends([(1_000_000, 1, 3), (1_000_000, 4, 2), (1_000_000, 5, 6)])
    assert ends(crossing, MeshCosts(mesh(3, 2, 1e6))) == pytest.approx([1.001, 1.001, 1e-6 + 1e-3])


def test_what_a_full_uplink_leaves_goes_to_others() -> None:
    """Two transfers leave node 0. One goes to node 2, where two from node 1 arrive: each has a third of its uplink."""
    program = sends([(1_000_000, 1, 4), (1_000_000, 2, 7), (1_000_000, 5, 8), (1_000_000, 6, 9)])
    costs = MeshCosts(replace(mesh(3, 3, 1.2e6), default_link=Link(1e6)))
    assert ends(program, costs) == pytest.approx([1 / 0.8, 1 / 0.4, 1 / 0.4, 1 / 0.4])


def test_an_allreduce_loads_the_uplinks_that_its_ring_crosses() -> None:
    """Four devices on two nodes with one port each: 1.5 MB in a ring, of which one pair of neighbours leaves each node.

    Two rings share; the latency is that of a tree, up and down, whose nodes are a chain of two devices.
    """
    build = ProgramBuilder("rings")
    for turn in range(2):
        x = [build.input(f"x{turn}{d}", TensorType("int8", (1_000_000,), 4 * turn + d)) for d in (1, 2, 3, 4)]
        build.add("allreduce", x)
    devices = mesh(4, 2, 1e6).devices
    placed = tuple(replace(each, node=i // 2 % 2) for i, each in enumerate(devices))
    costs = MeshCosts(replace(mesh(4, 2, 1e6), devices=placed))
    assert ends(build.finish([]), costs) == pytest.approx([2.002e-3 + 3.0] * 2)
    assert ends(build.finish([]), costs, sharing=False) == pytest.approx([2.002e-3 + 1.5] * 2)


uplinks = st.tuples(st.integers(0, 3), st.sampled_from(["out", "in"]))
flows = st.builds(
    Flow,
    st.just(0.0),
    st.just(1.0),
    st.floats(0.1, 10),
    st.dictionaries(uplinks, st.integers(1, 3).map(float), min_size=1, max_size=4).map(
        lambda each: tuple(each.items())
    ),
)


@given(st.lists(flows, min_size=1, max_size=8), st.floats(0.1, 20))
def test_rates_are_max_min_fair(asked: list[Flow], uplink: float) -> None:
    """Each flow is as fast as its link, or among the fastest on some full uplink."""
    rates = fair_rates(asked, uplink)
    load: dict[Uplink, float] = defaultdict(float)
    most: dict[Uplink, float] = defaultdict(float)
    for flow, rate in zip(asked, rates, strict=True):
        assert 0 < rate <= flow.fastest
        for each, times in flow.uses:
            load[each] += times * rate
            most[each] = max(most[each], rate)
    assert all(each <= uplink * (1 + 1e-9) for each in load.values())
    for flow, rate in zip(asked, rates, strict=True):
        limited = [
            each for each, _ in flow.uses if load[each] >= uplink * (1 - 1e-9) and most[each] <= rate * (1 + 1e-9)
        ]
        assert rate == flow.fastest or limited


def trained(seed: int) -> Program:
    choose = random.Random(seed)
    data, tensor, stages = choose.choice([(2, 1, 2), (1, 2, 2), (2, 2, 1), (2, 2, 2), (1, 1, 4), (4, 1, 1)])
    model = mlp_training(MlpSpec(4, 32, 64, "fp32"))
    return SgdUpdate()(spread(model, data, tensor, stages, choose.choice((1, 2, 4)))).program


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("seed", seeds(12))
def test_it_agrees_with_a_slow_simulation(seed: int, overlap: bool) -> None:
    choose, program = random.Random(seed), trained(seed)
    costs = MeshCosts(
        mesh(8, 1, 10 ** choose.uniform(4.5, 6.3)) if seed % 3 else mesh(4, 2, 10 ** choose.uniform(4, 6))
    )
    trace = simulate(program, costs=costs, overlap=overlap, link_sharing=True)
    starts = slowly(program, costs, overlap)
    for op, start in zip(trace.op.tolist(), trace.start.tolist(), strict=True):
        assert start == pytest.approx(starts[op], rel=1e-9, abs=1e-12)
    alone = simulate(program, costs=costs, overlap=overlap)
    assert trace.latency >= alone.latency * (1 - 1e-12)


@pytest.mark.parametrize("seed", seeds(6))
def test_with_room_for_all_nothing_changes(seed: int) -> None:
    program = trained(seed)
    for uplink in (1e12, None):
        costs = MeshCosts(mesh(4, 2, uplink))
        shared, alone = (simulate(program, costs=costs, link_sharing=each) for each in (True, False))
        assert shared.start == pytest.approx(alone.start, rel=1e-9)
        assert shared.peak_memory == alone.peak_memory
        assert shared.device_end == pytest.approx(alone.device_end, rel=1e-9)


def test_sharing_needs_a_mesh() -> None:
    with pytest.raises(InputError, match=r"^link sharing: needs a mesh"):
        simulate(sends([(1, 1, 2)]), link_sharing=True)


def slowly(program: Program, costs: MeshCosts, overlap: bool) -> dict[int, float]:
    """Return the start of each operation, computed by a scan of everything at every event."""
    made_by = {value: i for i, op in enumerate(program.ops) for value in op.outputs}
    lasts, streams = [], []
    for op in program.ops:
        spans = costs.seconds(op.kind, program.types_of(op.inputs), program.types_of(op.outputs), dict(op.attributes))
        lasts.append(max(spans.values()))
        streams.append({(device, stream_by_hand(program, op) if overlap else "") for device in spans})
    crossings = [crossing(program, costs, i) for i in range(len(program.ops))]
    starts: dict[int, float] = {}
    done: set[int] = set()
    quiet: dict[int, float] = {}  # running operations that move no bytes yet, with their ends
    left: dict[int, float] = {}  # moving transfers, with the bytes of each pair
    now = 0.0
    while len(done) < len(program.ops):
        for i, op in enumerate(program.ops):
            inputs = all(made_by[value] in done for value in op.inputs if value in made_by)
            if i not in starts and inputs and all(j in done for j in range(i) if streams[j] & streams[i]):
                starts[i], found = now, crossings[i]
                quiet[i] = now + (lasts[i] if found is None else found.latency)
        rates = slow_rates({i: crossings[i] for i in left}, costs.mesh.node_uplink or 0)
        ends = {i: now + left[i] / rates[i] for i in left}
        soonest = min([*quiet.values(), *ends.values()])
        left = {i: rest - rates[i] * (soonest - now) for i, rest in left.items() if ends[i] > soonest}
        done |= {i for i, end in ends.items() if end <= soonest}
        now = soonest
        for i in [i for i, until in quiet.items() if until <= now]:
            del quiet[i]
            found = crossings[i]
            if found is None:
                done.add(i)
            else:
                left[i] = found.amount
    return starts


def crossing(program: Program, costs: MeshCosts, i: int) -> Flow | None:
    """Return the bytes of a send or an allreduce between nodes, computed independently."""
    op = program.ops[i]
    if not find_operator(op.kind).pattern:
        return None
    types = program.types_of(op.inputs)
    devices, slow, fast = [each.device for each in types], costs.mesh.default_link, costs.mesh.same_node_link
    assert slow is not None
    assert fast is not None
    latency, amount, bandwidth = slow.latency, float(types[0].bytes), slow.bandwidth
    if op.kind == "send":
        pairs = [(devices[0], program.types[op.outputs[0]].device)]
    else:
        assert op.kind == "allreduce"
        count, nodes = len(devices), defaultdict[int, list[int]](list)
        for device in devices:
            nodes[costs.mesh.devices[device - 1].node].append(device)
        uplink = costs.mesh.node_uplink or float("inf")
        rails = min(*map(len, nodes.values()), max(1, math.ceil(min(uplink / slow.bandwidth, count))))
        rings = [[mine[(r + i) % len(mine)] for mine in nodes.values() for i in range(len(mine))] for r in range(rails)]
        pairs = [pair for ring in rings for pair in pairwise([*ring, ring[0]])]
        across, inside = len(nodes) - 1, count - len(nodes)
        ring = across * slow.latency + inside * fast.latency
        tree = math.ceil(math.log2(len(nodes))) * slow.latency + (-(-count // len(nodes)) - 1) * fast.latency
        latency, amount = 2 * min(ring, tree), 2 * (count - 1) / count * types[0].bytes / rails
        bandwidth = min(rails * slow.bandwidth, uplink, fast.bandwidth if inside else float("inf")) / rails
    found: dict[Uplink, float] = defaultdict(float)
    for one, other in pairs:
        nodes = [costs.mesh.devices[device - 1].node for device in (one, other)]
        if nodes[0] != nodes[1]:
            found[nodes[0], "out"] += 1
            found[nodes[1], "in"] += 1
    if not found:
        return None
    return Flow(latency, amount, bandwidth, tuple(found.items()))


def slow_rates(asked: dict[int, Flow | None], uplink: float) -> dict[int, float]:
    """Repeatedly fix the slowest share that any link or uplink allows."""
    fixed: dict[int, float] = {}
    while len(fixed) < len(asked):
        shares: list[tuple[float, list[int]]] = []
        free = {i: flow for i, flow in asked.items() if flow is not None and i not in fixed}
        for i, flow in free.items():
            shares.append((flow.fastest, [i]))
        for each in {each for flow in free.values() for each, _ in flow.uses}:
            taken = sum(fixed[i] * dict(flow.uses).get(each, 0) for i, flow in asked.items() if flow and i in fixed)
            mine = {i: dict(flow.uses)[each] for i, flow in free.items() if each in dict(flow.uses)}
            shares.append(((uplink - taken) / sum(mine.values()), list(mine)))
        share, limited = min(shares)
        fixed |= dict.fromkeys(limited, share)
    return fixed
