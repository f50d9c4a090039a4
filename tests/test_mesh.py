"""Meshes: links between devices, refusals, and presets that match data sheets."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from helpers.meshes import meshes
from hypothesis import given

from tessel_core.costs.costed import CostOptions, costed
from tessel_core.costs.devices import DEVICE_KINDS
from tessel_core.costs.meshes import INTERCONNECTS, MESHES, find_mesh, uniform_mesh
from tessel_core.errors import InputError
from tessel_core.model import Connection, Device, DeviceMesh, Link, Operator, OperatorGraph, PeakRate

OWN, INSIDE, BETWEEN = Link(8.0), Link(4.0), Link(2.0)
DEVICES = (Device("a", "gpu", 0), Device("b", "gpu", 0), Device("c", "gpu", 1))
MESH = DeviceMesh("three", DEVICES, (Connection(("c", "a"), OWN),), INSIDE, BETWEEN)


def test_a_link_of_its_own_comes_before_the_shared_ones() -> None:
    assert [MESH.link(*pair) for pair in ((0, 1), (0, 2), (1, 2))] == [INSIDE, OWN, BETWEEN]
    assert MESH.links == (OWN, INSIDE, BETWEEN)
    assert Link(2e9, 3.0).seconds(1e9) == 3.5


@given(meshes())
def test_links_are_the_same_both_ways_and_all_are_listed(mesh: DeviceMesh) -> None:
    for one, other in combinations(range(len(mesh.devices)), 2):
        link = mesh.link(one, other)
        assert link == mesh.link(other, one)
        assert link in mesh.links
        assert link.seconds(0) == link.latency


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"devices": ()}, "devices: the mesh has none"),
        ({"devices": tuple(Device(f"d{i}", "gpu") for i in range(16_385))}, "devices: there are 16,385, more than"),
        ({"devices": (*DEVICES, DEVICES[0])}, "devices: duplicate name 'a'"),
        ({"name": ""}, "mesh: its name is empty"),
        ({"node_uplink": 0.0}, "mesh: node_uplink must be above 0"),
        ({"same_node_link": None}, "nothing links a and b: list the link or give same_node_link"),
        ({"connections": (), "default_link": None}, "nothing links a and c: list the link or give default_link"),
        ({"connections": (Connection(("a", "z"), OWN),)}, "link a - z: unknown device 'z'"),
        ({"connections": (Connection(("a", "a"), OWN),)}, "link a - a: links a device to itself"),
        ({"connections": (Connection(("a", "b"), OWN), Connection(("b", "a"), OWN))}, "links: duplicate name 'a - b'"),
        (
            {"devices": (*DEVICES, Device("d", "gpu", flops=(PeakRate("bf16", 1e12),)))},
            "device d: is of kind gpu like a, but has different flops",
        ),
    ],
)
def test_a_mesh_that_cannot_be_is_refused(change: dict[str, object], why: str) -> None:
    with pytest.raises(InputError, match=why):
        replace(MESH, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("bandwidth", [0, -1.0, 1e-7, 1e25, float("nan"), float("inf"), True])
def test_a_bandwidth_that_no_time_follows_from_is_refused(bandwidth: float) -> None:
    with pytest.raises(InputError, match="a link: bandwidth must be"):
        Link(bandwidth)


WORK = OperatorGraph("work", (Operator("o", "matmul", flops=1e12, bytes=1e9, weight_bytes=8),))


@pytest.mark.parametrize("name", MESHES)
def test_every_preset_is_linked_and_its_times_can_be_derived(name: str) -> None:
    preset, mesh = MESHES[name], find_mesh(name)
    assert mesh.name == preset.name == name
    assert preset.title
    assert preset.source
    for one, other in combinations(range(len(mesh.devices)), 2):
        assert mesh.link(one, other).bandwidth > 1e9
    assert set(mesh.kinds) <= set(DEVICE_KINDS)
    for dtype in ("bf16", "fp32"):
        operator = costed(WORK, mesh, CostOptions(dtype=dtype)).operators[0]
        assert all((operator.time_on(kind) or 0) > 0 for kind in mesh.kinds)
    assert (mesh.node_uplink is None) == (len({device.node for device in mesh.devices}) == 1)


def test_presets_are_what_the_data_sheets_say() -> None:
    """Per direction: half of NVLink's total of both directions, and a port of 400, 200 or 100 Gb/s."""
    sheet = {"h200": (450e9, 50e9, 400e9), "h100": (450e9, 50e9, 400e9)}
    sheet |= {"a100": (300e9, 25e9, 200e9), "v100": (150e9, 12.5e9, 50e9)}
    sheet |= {"b200": (900e9, 50e9, 400e9), "h100-500w-96gb": (450e9, 50e9, 400e9)}
    sheet |= {"a100-pcie": (30e9, 25e9, 25e9), "mi300x": (448e9, 50e9, 400e9)}
    assert sheet.keys() == INTERCONNECTS.keys()
    for kind, rates in sheet.items():
        mesh = find_mesh(f"{kind}-16")
        assert mesh.same_node_link is not None
        assert mesh.default_link is not None
        assert (mesh.same_node_link.bandwidth, mesh.default_link.bandwidth, mesh.node_uplink) == rates
        assert [device.node for device in mesh.devices] == [0] * 8 + [1] * 8
        listed = {count for count in range(1, 200) if f"{kind}-{count}" in MESHES}
        usual = kind in ("h200", "h100", "a100", "v100")
        assert listed == ({1, 2, 4, 8, 16, 32, 64, 128} if usual else {8, 64})


def test_a_mesh_of_any_size_has_a_name() -> None:
    """Nodes have eight devices, or as many as the name says. The largest mesh is built faster than its JSON."""
    mesh = find_mesh("a100-280")
    assert (mesh.name, len(mesh.devices), mesh.devices[-1].node) == ("a100-280", 280, 34)
    assert find_mesh("h100-500w-96gb-16").kinds == ("h100-500w-96gb",)
    assert [device.node for device in find_mesh("h100-12", 4).devices] == [0] * 4 + [1] * 4 + [2] * 4
    assert find_mesh("h100-12", 4).node_uplink == 4 * 50e9
    assert {device.node for device in find_mesh("b200-5").devices} == {0}
    for name in ("h200-16", "v100-2", "a100-128"):
        assert find_mesh(name) == MESHES[name].build()
    large = find_mesh("h100-16384")
    assert (len(large.devices), large.devices[-1].node) == (16_384, 2047)
    assert len(large.links) == 2


@pytest.mark.parametrize(
    ("name", "per_node", "why"),
    [
        ("h100-12", None, "mesh h100-12: 12 devices do not fill nodes of 8; the nearest that do are 8 and 16"),
        ("h100-10", 4, "10 devices do not fill nodes of 4; the nearest that do are 8 and 12"),
        ("h100-16392", None, "has 16,392 devices, more than 16,384"),
        ("h100-20001", None, "has 20,001 devices, more than 16,384"),
        pytest.param("h100-" + "9" * 5000, None, "or use KIND-COUNT, where KIND is one of h200", id="digits"),
        ("h100-0", None, "'h100-0' is not known"),
        ("h300-8", None, "or use KIND-COUNT, where KIND is one of h200, h100, "),
        ("laptop-cpu", 4, "devices per node: cannot be chosen, because the preset laptop-cpu fixes them"),
        ("h100-16", 0, "mesh: devices per node must be at least 1"),
    ],
)
def test_names_of_meshes_that_make_no_sense(name: str, per_node: int | None, why: str) -> None:
    with pytest.raises(InputError) as caught:
        find_mesh(name, per_node)
    assert why in str(caught.value)


def test_capacities_are_what_cuda_reports() -> None:
    """In bytes: GiB as PyTorch prints them, rounded to three digits."""
    reported = {"a100": 79.15, "h100": 79.15, "a100-pcie": 79.15, "h200": 139.7, "v100": 31.75}
    reported |= {"b200": 178.4, "h100-500w-96gb": 95.0, "mi300x": 191.98}
    for kind, gibibytes in reported.items():
        capacity = DEVICE_KINDS[kind].memory_capacity
        assert capacity is not None
        assert capacity == pytest.approx(gibibytes * 2**30, rel=5e-3)


def test_the_mixed_mesh_has_the_links_of_both_nodes_and_the_slower_network() -> None:
    mesh = find_mesh("h200-8-a100-8")
    assert mesh.kinds == ("h200", "a100")
    rates = {pair: mesh.link(*pair).bandwidth for pair in combinations(range(16), 2)}
    for (one, other), bandwidth in rates.items():
        same = one // 8 == other // 8
        assert bandwidth == ((450e9 if one < 8 else 300e9) if same else 25e9)


def test_some_ports_stay_dark_where_a_node_is_not_full() -> None:
    assert uniform_mesh("h200", 2, 4).node_uplink == 200e9
    assert uniform_mesh("v100", 2, 2).node_uplink == 25e9
    assert uniform_mesh("a100", 3, 1).same_node_link is None


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (("h300", 1, 8), "device kind: 'h300' is not known, choose from h200"),
        (("h200", 0, 8), "mesh: nodes must be at least 1, got 0"),
        (("h200", 1, 9), "must have at most 8 devices per node and 16,384 in all, got 1 nodes of 9"),
        (("h200", 2049, 8), "got 2049 nodes of 8"),
        (("cpu", 1, 2), "mesh: has no known links between devices of the kind 'cpu'; kinds with links are h200"),
    ],
)
def test_a_uniform_mesh_that_cannot_be_is_refused(asked: tuple[str, int, int], why: str) -> None:
    with pytest.raises(InputError, match=why):
        uniform_mesh(*asked)


def test_an_unknown_preset_gets_a_hint() -> None:
    with pytest.raises(InputError, match="mesh: 'h200_16' is not known, did you mean h200-16"):
        find_mesh("h200_16")
    with pytest.raises(InputError, match="mesh: 'tpu' is not known, choose from h200-1, "):
        find_mesh("tpu")
