"""CLIP-like pairs: two encoders that join, as plans."""

from __future__ import annotations

from dataclasses import replace

from tessel_core.costs.costed import CostOptions, costed
from tessel_core.costs.meshes import find_mesh
from tessel_core.model import Communication, Placement, Transfers
from tessel_core.model.layers import layer_of
from tessel_core.networks.graphs.table import GRAPHS, build_graph
from tessel_core.planning import plan_of
from tessel_core.scheduling import solve_schedule


def test_encoders_apart_make_a_k_shaped_plan_that_the_search_proves() -> None:
    """Images take three devices, texts the fourth. Both meet at the head, and separate again in the backward."""
    mesh = find_mesh("h200-4")
    spec = replace(GRAPHS["clip"].presets["clip-l-14"], training=True, granularity="layers", micro_batch=8)
    graph = costed(build_graph("clip", spec), mesh, CostOptions())

    def device(layer: str) -> int:
        if layer.startswith("text"):
            return 3
        number = layer.removeprefix("image").split("_")[0]
        return int(number) // 8 if number.isdigit() else 2 * (layer in ("image_end", "head"))

    on = tuple((device(layer_of(operator)),) for operator in graph.operators)
    plan = plan_of(Placement(graph, mesh.placement_devices, on, Transfers(mesh, Communication.OVERLAPPED)))
    before = {
        block.name: {a.predecessor for a in plan.dependencies if a.successor == block.name} for block in plan.blocks
    }
    forward = [block for block in plan.blocks if block.name.startswith("F")]
    starts = {block.devices for block in forward if not before[block.name]}
    assert starts == {(0,), (3,)}, "images and texts begin side by side"
    joins = [block for block in forward if len(before[block.name]) == 2]
    assert [block.devices for block in joins] == [(2,)]
    report = solve_schedule("tessel", plan, 8)
    assert report.drawable is not None
    assert report.drawable.makespan >= 8 * plan.busiest_work
