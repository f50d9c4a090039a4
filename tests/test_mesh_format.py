"""Mesh files: what is written reads back, and errors give one sentence that names the place."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.meshes import meshes
from hypothesis import given
from test_placement_formats import broken, bytes_of

from tessel_core.errors import InputError
from tessel_core.formats import MeshFile, mesh_text, read_mesh
from tessel_core.formats.files import read_any, read_known, read_mesh_file, read_text
from tessel_core.model import Connection, Device, DeviceMesh, Link, PeakRate

RATES: dict[str, Any] = {"flops": {"bf16": 9.89e14}, "memory_bandwidth": 4.8e12}
MESH: dict[str, Any] = {
    "format": "tessel-mesh",
    "version": 1,
    "name": "two-nodes",
    "devices": [
        {"name": "gpu0", "kind": "h200", "node": 0, "memory_capacity": 150_000_000_000, **RATES},
        {"name": "gpu1", "kind": "h200", "node": 0, "memory_capacity": None, **RATES},
        {"name": "host", "kind": "cpu", "node": 1},
    ],
    "links": [{"between": ["gpu1", "gpu0"], "bandwidth": 9e11, "latency": 1e-6}],
    "same_node_link": {"bandwidth": 4.5e11, "latency": 2e-6},
    "default_link": {"bandwidth": 50_000_000_000},
    "node_uplink": {"bandwidth": 4e11},
}


def test_a_mesh_is_read_field_by_field() -> None:
    peak = (PeakRate("bf16", 9.89e14),)
    assert read_mesh(bytes_of(MESH)).mesh == DeviceMesh(
        "two-nodes",
        (
            Device("gpu0", "h200", 0, 150_000_000_000, peak, 4.8e12),
            Device("gpu1", "h200", 0, None, peak, 4.8e12),
            Device("host", "cpu", 1),
        ),
        (Connection(("gpu1", "gpu0"), Link(9e11, 1e-6)),),
        Link(4.5e11, 2e-6),
        Link(5e10, 0.0),
        4e11,
    )


def test_what_is_left_out_is_not_known() -> None:
    document = {"format": "tessel-mesh", "version": 1, "devices": [{"name": "one", "kind": "gpu"}]}
    assert read_mesh(bytes_of(document)).mesh == DeviceMesh("mesh", (Device("one", "gpu"),))


@given(meshes())
def test_every_mesh_round_trips_and_keeps_its_fingerprint(mesh: DeviceMesh) -> None:
    text = mesh_text(mesh)
    kept = read_mesh(text.encode())
    assert kept == MeshFile.of(mesh)
    assert kept.mesh == mesh
    canonical = json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert kept.fingerprint == hashlib.sha256(canonical.encode()).hexdigest()
    assert mesh_text(kept.mesh) == text


def test_equal_meshes_have_one_fingerprint_however_their_numbers_are_written() -> None:
    written = {**MESH, "default_link": {"latency": 0, "bandwidth": 5e10}}
    assert read_mesh(bytes_of(written)) == read_mesh(bytes_of(MESH))
    whole = DeviceMesh("m", (Device("a", "gpu"), Device("b", "gpu")), same_node_link=Link(10, 0))
    assert read_mesh(mesh_text(whole).encode()) == MeshFile.of(whole)
    assert MeshFile.of(whole).fingerprint != read_mesh(bytes_of(MESH)).fingerprint


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("version", 2, "version: tessel-mesh version 2 is not known"),
        ("extra", 1, "unknown key 'extra'"),
        ("devices", [], "devices: the mesh has none"),
        ("devices.0.colour", "red", "devices[0]: unknown key 'colour'"),
        ("devices.0.kind", 7, "devices[0].kind: must be text"),
        ("devices.0.kind", "", "device gpu0, kind: its name is empty"),
        ("devices.1.name", "gpu0", "devices: duplicate name 'gpu0'"),
        ("devices.0.node", -1, "devices[0].node: must be at least 0"),
        ("devices.0.memory_capacity", -1, "devices[0].memory_capacity: must be at least 0"),
        ("devices.0.memory_capacity", 1.5, "devices[0].memory_capacity: must be an integer"),
        ("devices.0.memory_capacity", 10**30, "devices[0].memory_capacity: must be at most 2^53"),
        ("devices.0.memory_bandwidth", 0, "devices[0]: memory_bandwidth must be above 0, got 0"),
        ("devices.0.flops", {"bf16": -1}, "devices[0].flops: bf16 must be above 0, got -1"),
        ("devices.0.flops", {"bf16": 1e99}, "devices[0].flops: bf16 must be between 1e-06 and 1e+24, got 1e+99"),
        ("devices.0.flops", {"bf16": None}, "devices[0].flops.bf16: must be a finite number, got null"),
        ("devices.1.flops", {"bf16": 1e12}, "device gpu1: is of kind h200 like gpu0, but has different flops"),
        ("links.0.between", ["gpu0", "gpu9"], "link gpu0 - gpu9: unknown device 'gpu9'"),
        ("links.0.between", ["gpu0", "gpu0"], "link gpu0 - gpu0: links a device to itself"),
        ("links.0.between", ["gpu0"], "links[0].between: must name two devices, got 1"),
        ("links.0.bandwidth", 0, "links[0]: bandwidth must be above 0, got 0"),
        ("links.0.bandwidth", -5e9, "links[0]: bandwidth must be above 0, got -5e+09"),
        ("links.0.bandwidth", 1e-30, "links[0]: bandwidth must be between 1e-06 and 1e+24"),
        ("links.0.bandwidth", 10**40, "links[0].bandwidth: must be a finite number, got a huge integer"),
        ("links.0.latency", -1e-6, "links[0].latency: must not be negative"),
        ("links.0.latency", 1e300, "links[0]: latency must be at most 2^53"),
        ("same_node_link.bandwidth", "fast", "same_node_link.bandwidth: must be a finite number, got 'fast'"),
        ("default_link.latency", True, "default_link.latency: must be a finite number, got true"),
        ("default_link", None, "links: nothing links gpu0 and host: list the link or give default_link"),
        ("node_uplink", 4e11, "node_uplink: must be an object"),
        ("node_uplink.bandwidth", 0, "node_uplink: bandwidth must be above 0"),
    ],
)
def test_a_wrong_mesh_is_one_sentence(path: str, value: object, said: str) -> None:
    with pytest.raises(InputError) as raised:
        read_known(broken(MESH, path, value), "m.json")
    assert str(raised.value).startswith("m.json: ")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps(MESH).replace("9e+11", "NaN").replace("900000000000.0", "NaN"), "NaN is not allowed"),
        (json.dumps(MESH).replace('"node": 1', '"node": 1, "node": 2'), "key 'node' is repeated in one object"),
        (json.dumps(MESH)[:-9], "is not JSON"),
    ],
)
def test_text_that_is_no_mesh_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(InputError) as raised:
        read_mesh(text.encode(), "m.json")
    assert said in str(raised.value)


def test_two_links_of_one_pair_are_refused_in_either_direction() -> None:
    twice = [MESH["links"][0], {"between": ["gpu0", "gpu1"], "bandwidth": 1.0}]
    with pytest.raises(InputError, match="links: duplicate name 'gpu0 - gpu1'"):
        read_mesh(bytes_of({**MESH, "links": twice}))


def test_meshes_are_told_from_other_files(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(bytes_of(MESH))
    assert read_any(path) == read_mesh_file(path) == read_mesh(bytes_of(MESH))
    with pytest.raises(InputError, match=r"m\.json: is a device mesh, but a plan or a schedule is needed"):
        read_text(bytes_of(MESH), "m.json")
    path.write_text('{"fpgas": [], "cpus": []}')
    with pytest.raises(InputError, match=r"m\.json: is a split, but a device mesh is needed"):
        read_mesh_file(path)
