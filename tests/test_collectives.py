"""Collectives on groups of devices: bytes through every port and link, counted ring by ring, and latencies."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pytest
from helpers.seeds import seeds

from tessel_core.costs.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    REDUCE_SCATTER,
    Collective,
    collective,
    measured_fraction,
    ring_pairs,
    wires_of,
)
from tessel_core.costs.meshes import uniform_mesh
from tessel_core.ir.types import TensorType
from tessel_core.model import Connection, DeviceMesh, Link
from tessel_core.simulation.costs import MeshCosts

S = 1e9
"""Bytes on each device."""


def asked(mesh: DeviceMesh, group: Sequence[int], pattern: str, amount: float = S) -> Collective:
    wires = wires_of(mesh, tuple(group))
    return collective(pattern, amount, wires)


def drawn(choose: random.Random) -> tuple[DeviceMesh, list[int]]:
    """Draw a group with some devices in each of some nodes. Nodes have as many ports as devices, or fewer."""
    mesh = uniform_mesh(choose.choice(("h100", "a100", "v100")), 8, choose.choice((2, 4, 8)))
    mesh = replace(
        mesh, node_uplink=choose.choice((None, mesh.node_uplink, 2 * (mesh.default_link or Link(1)).bandwidth))
    )
    per_node = len(mesh.devices) // 8
    nodes = sorted(choose.sample(range(8), choose.randint(1, 8)))
    taken = [choose.randint(1, per_node) for _ in nodes] if choose.random() < 0.3 else [choose.randint(1, per_node)] * 8
    group = [node * per_node + i for node, count in zip(nodes, taken, strict=False) for i in range(count)]
    return mesh, group if len(group) > 1 else [0, 1]


@pytest.mark.parametrize("seed", seeds(40))
def test_every_port_carries_what_an_explicit_count_of_the_rings_says(seed: int) -> None:
    mesh, group = drawn(random.Random(seed))
    node_of = [device.node for device in mesh.devices]
    found = asked(mesh, group, ALL_REDUCE)
    by_node: dict[int, list[int]] = defaultdict(list)
    for device in group:
        by_node[node_of[device]].append(device)
    fewest, port = min(map(len, by_node.values())), mesh.default_link
    assert port is not None
    ports = math.inf if mesh.node_uplink is None else mesh.node_uplink / port.bandwidth
    assert found.rails == (1 if len(by_node) == 1 else max(1, math.ceil(min(fewest, ports))))

    # Each ring carries its share of the bytes. In each step, a device passes one N-th of that share to its neighbour.
    leaving, through = defaultdict[int, float](float), defaultdict[int, float](float)
    pairs, count = ring_pairs(list(by_node.values()), found.rails), len(group)
    assert len(pairs) == count * found.rails
    for one, other in pairs:
        moved = 2 * (count - 1) * (S / found.rails / count)
        if node_of[one] == node_of[other]:
            through[one] += moved
        else:
            leaving[one] += moved
    for mine in by_node.values():
        if len(by_node) > 1:
            assert sum(leaving[device] for device in mine) == pytest.approx(found.amount)
            # No two rings share a port.
            assert sorted(leaving[device] > 0 for device in mine).count(True) == found.rails
    slowest = max([amount / port.bandwidth for amount in leaving.values()], default=0.0)
    if mesh.node_uplink is not None and len(by_node) > 1:
        slowest = max(slowest, found.amount / mesh.node_uplink)
    near = mesh.same_node_link
    inside = max(through.values(), default=0.0) / near.bandwidth if near else 0.0
    flowing = found.seconds - found.latency
    # If all rings of a device stay in its node, its links carry all bytes.
    assert flowing >= max(slowest, inside) * (1 - 1e-12)
    whole = 2 * (count - 1) / count * S / near.bandwidth if near and fewest > 1 else 0.0
    assert flowing == pytest.approx(max(slowest, whole)) or fewest == 1


@pytest.mark.parametrize("seed", seeds(10))
def test_gathering_and_scattering_are_each_half_of_an_all_reduction(seed: int) -> None:
    mesh, group = drawn(random.Random(seed))
    whole = asked(mesh, group, ALL_REDUCE)
    for pattern in (ALL_GATHER, REDUCE_SCATTER):
        half = asked(mesh, group, pattern)
        assert half.seconds == pytest.approx(whole.seconds / 2)
        assert (half.rails, half.tree) == (whole.rails, whole.tree)


def test_latencies_grow_as_a_ring_in_few_devices_and_as_a_tree_in_many() -> None:
    mesh = uniform_mesh("h100", 64, 8)
    near, far = mesh.same_node_link, mesh.default_link
    assert near is not None
    assert far is not None
    assert asked(mesh, range(8), ALL_REDUCE).latency == pytest.approx(2 * 7 * near.latency)
    two = asked(mesh, (0, 8), ALL_REDUCE)
    assert (two.latency, two.tree) == (pytest.approx(2 * far.latency), False)
    for nodes in (4, 16, 64):
        found = asked(mesh, range(8 * nodes), ALL_REDUCE)
        assert found.tree
        assert found.latency == pytest.approx(2 * (math.log2(nodes) * far.latency + 7 * near.latency))


def test_a_group_over_whole_nodes_is_as_fast_as_all_their_ports() -> None:
    """8 ports of 50 GB/s of an H100 node are slower than its NVLink of 450 GB/s.

    A group of one device per node has one port.
    """
    mesh = uniform_mesh("h100", 16, 8)
    assert asked(mesh, range(128), ALL_REDUCE).bandwidth == 400e9
    assert asked(mesh, range(8), ALL_REDUCE).bandwidth == 450e9
    assert asked(mesh, range(0, 128, 8), ALL_REDUCE).bandwidth == 50e9
    assert asked(mesh, [8 * node + i for node in range(16) for i in range(4)], ALL_REDUCE).bandwidth == 200e9


@pytest.mark.parametrize("seed", seeds(10))
def test_an_exchange_takes_as_long_as_the_busiest_link_or_port(seed: int) -> None:
    """Each pair of devices counts. Every node has the same number of devices in the group."""
    choose = random.Random(seed)
    mesh, nodes, each = uniform_mesh("h100", 8, 8), choose.randint(1, 8), choose.randint(1, 8)
    group = [8 * node + i for node in range(nodes) for i in range(each)]
    if len(group) < 2:
        group = [0, 1]
    near, far, uplink = mesh.same_node_link, mesh.default_link, mesh.node_uplink
    assert near is not None
    assert far is not None
    assert uplink is not None
    links, ports, ups = defaultdict[int, float](float), defaultdict[int, float](float), defaultdict[int, float](float)
    for one in group:
        for other in group:
            if one == other:
                continue
            part = S / len(group)
            if one // 8 == other // 8:
                links[one] += part / near.bandwidth
            else:
                ports[one] += part / far.bandwidth
                ups[one // 8] += part / uplink
    found = asked(mesh, group, ALL_TO_ALL)
    slowest = max(max(of.values(), default=0.0) for of in (links, ports, ups))
    assert found.seconds - found.latency == pytest.approx(slowest)
    assert found.latency in (near.latency, far.latency)


def test_links_of_their_own_make_one_ring_at_the_slowest() -> None:
    mesh = uniform_mesh("h100", 1, 4)
    slow = replace(mesh, connections=(Connection(("gpu1", "gpu2"), Link(1e9, 1e-3)),))
    found = asked(slow, range(4), ALL_REDUCE)
    assert (found.bandwidth, found.rails) == (1e9, 1)


def test_measured_fractions_count_where_a_kind_has_them() -> None:
    """The row with the nearest group size counts. Groups of mixed kinds have none."""
    plain = uniform_mesh("h100", 2, 8)
    assert measured_fraction(plain, range(8), ALL_REDUCE, wires_of(plain, tuple(range(8)))) == 1
    cards = replace(plain, devices=tuple(replace(device, kind="a100-pcie") for device in plain.devices))
    for count, fraction in ((2, 0.6965), (4, 0.6924), (8, 0.4176), (7, 0.4176)):
        group = tuple(range(count))
        assert measured_fraction(cards, group, ALL_REDUCE, wires_of(cards, group)) == fraction
    across = tuple(range(0, 16, 8))
    assert measured_fraction(cards, across, ALL_REDUCE, wires_of(cards, across)) == 0.6
    types = [TensorType("fp32", (1 << 20,), device) for device in (1, 2)]
    seconds = [MeshCosts(mesh).seconds("allreduce", types, types, {})[1] for mesh in (plain, cards)]
    latency = 2 * (plain.same_node_link or Link(1)).latency
    assert (seconds[0] - latency) / (seconds[1] - latency) == pytest.approx(0.6965)
    mixed = replace(cards, devices=(*cards.devices[:1], *plain.devices[1:]))
    assert measured_fraction(mixed, (0, 1), ALL_REDUCE, wires_of(mixed, (0, 1))) == 1
