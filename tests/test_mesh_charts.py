"""Pictures of meshes, tested on their data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.seeds import one_in

from tessel_core.charts.mesh import link_heat_map, mesh_picture
from tessel_core.costs.meshes import MESHES, find_mesh, uniform_mesh
from tessel_core.model import Connection, Device, DeviceMesh, Link


@pytest.mark.parametrize("name", one_in(3, MESHES))
def test_the_heat_map_shows_the_link_of_every_pair(name: str) -> None:
    mesh = find_mesh(name)
    (heat,) = link_heat_map(mesh).data
    facts = np.asarray(heat.customdata)
    assert facts.shape[:2] == (len(mesh.devices), len(mesh.devices))
    assert np.isnan(facts[:, :, 0].diagonal()).all()
    for one in range(len(mesh.devices)):
        for other in range(one):
            link = mesh.link(one, other)
            assert facts[one, other] == pytest.approx((link.bandwidth / 1e9, link.latency * 1e6))
            assert facts[other, one] == pytest.approx(facts[one, other])
    latencies = np.asarray(link_heat_map(mesh, latency=True).data[0].z)
    known = ~np.isnan(latencies)
    assert 10 ** latencies[known] == pytest.approx(facts[:, :, 1][known], rel=1e-5)


def test_faster_is_brighter_whichever_way_it_is_measured() -> None:
    mesh = find_mesh("h200-16")
    (bandwidth,) = link_heat_map(mesh).data
    (latency,) = link_heat_map(mesh, latency=True).data
    assert bandwidth.reversescale is False
    assert latency.reversescale is True
    assert bandwidth.zmax == pytest.approx(np.log10(450))
    equal = link_heat_map(uniform_mesh("h200", 1, 4)).data[0]
    assert equal.zmin < equal.zmax == pytest.approx(np.log10(450)), "equal links have the colour of the best"


@pytest.mark.parametrize("name", one_in(3, MESHES))
def test_every_device_is_drawn_once_in_the_box_of_its_node(name: str) -> None:
    mesh = find_mesh(name)
    figure = mesh_picture(mesh)
    traces = {trace.name: trace for trace in figure.data if trace.mode != "lines"}
    assert set(traces) == set(mesh.kinds)
    places = [(x, y) for trace in traces.values() for x, y in zip(trace.x, trace.y, strict=True)]
    assert len(places) == len(set(places)) == len(mesh.devices)
    boxes = figure.layout.shapes
    assert len(boxes) == len({device.node for device in mesh.devices})
    for x, y in places:
        assert sum(box.x0 < x < box.x1 and box.y0 < y < box.y1 for box in boxes) == 1


def test_links_of_their_own_are_lines_while_they_are_few() -> None:
    mesh = replace(uniform_mesh("h200", 1, 4), connections=(Connection(("gpu0", "gpu3"), Link(1e9)),))
    lines = [trace for trace in mesh_picture(mesh).data if trace.mode == "lines"]
    assert [len(trace.x) for trace in lines] == [3]
    assert not [trace for trace in mesh_picture(find_mesh("h200-8")).data if trace.mode == "lines"]


def test_the_largest_mesh_stays_small() -> None:
    devices = tuple(Device(f"gpu{i}", "h200", i // 4) for i in range(1024))
    mesh = DeviceMesh("large", devices, (), Link(4e11), Link(5e10))
    for figure in (link_heat_map(mesh), link_heat_map(mesh, latency=True), mesh_picture(mesh)):
        assert len(figure.to_json()) < 2_000_000


def test_names_are_shown_literally() -> None:
    mesh = DeviceMesh("m", (Device("<b>", "<i>"), Device("b", "x")), (), Link(1e9))
    text = mesh_picture(mesh).to_json() + link_heat_map(mesh).to_json()
    assert '<b>"' not in text.replace("\\u003c", "<").replace("<b>&lt;b&gt;</b>", "")
    assert "&lt;i&gt;" in text
