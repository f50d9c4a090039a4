"""`tessel plan`: turn a placement into a micro-batch plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tessel_core.cli import options
from tessel_core.cli.output import Json, console, print_json, table
from tessel_core.cli.problem import bind_placement, find_mesh_file
from tessel_core.errors import InputError
from tessel_core.formats import GraphFile, MeshFile, PlacementFile, plan_text, write_file
from tessel_core.formats.files import check_place, read_any, refused
from tessel_core.formats.graph_file import SplitFile, split_placement
from tessel_core.formats.plan_file import PLAN
from tessel_core.model import Communication, MicroBatchPlan, Placement, PlacementLoads
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.samples import sample_or_file
from tessel_core.units import show_memory, show_time


def plan(
    graph: options.Graph,
    placement: Annotated[
        Path, typer.Argument(help="A tessel-placement file, or a split of the published device-placement code.")
    ],
    mesh: options.MeshOfPlacement = None,
    per_node: options.PerNode = None,
    micro_batch_size: Annotated[
        int | None,
        typer.Option(help="Samples per micro-batch. Times and activations grow with it. Default: as in the graph."),
    ] = None,
    communication: Annotated[
        Communication | None,
        typer.Option(
            help="Transfers of a placement on a mesh. overlapped: lags between blocks; blocking: work of sender and "
            "receiver. Default: as in the placement."
        ),
    ] = None,
    split_weights: options.SplitWeights = False,
    out: Annotated[Path | None, typer.Option(help="File for the plan.")] = None,
    json: Json = False,
) -> None:
    """Turn a placement into a micro-batch plan, the input of every scheduler."""
    from tessel_core.planning import plan_of

    source = sample_or_file(graph)
    check_place(out, source)
    check_place(out, placement)
    if mesh is None and per_node is not None:
        raise InputError("--per-node", "is for a --mesh named KIND-COUNT")
    meshes = [] if mesh is None else [find_mesh_file(mesh, per_node)]
    placed = _placed(read_graph_file(source, graph), placement, meshes, micro_batch_size, communication)
    found = plan_of(placed, split_weights=split_weights)
    if out is not None:
        write_file(out, plan_text(found))
    largest = PlacementLoads.of(placed).largest
    if json:
        numbers = {"busiest_work": found.busiest_work, "largest_load": largest, "time_unit": placed.graph.time_unit}
        print_json({**numbers, "plan": PLAN.write(found)})
    else:
        _show(found)


def _placed(
    file: GraphFile, path: Path, meshes: list[MeshFile], batch: int | None, communication: Communication | None
) -> Placement:
    """Read the placement, with costs of a micro-batch of `batch` samples."""
    from tessel_core.costs.costed import with_batch_size

    found = read_any(path)
    if batch is not None:
        file = replace(file, graph=with_batch_size(file.graph, batch))
    if isinstance(found, SplitFile):
        if file.pool is None:
            raise InputError(str(path), "is a published split, which needs its published graph")
        return split_placement(found, file.graph, file.pool)
    if not isinstance(found, PlacementFile):
        raise refused(found, str(path), "a placement")
    if found.mesh is None and meshes and found.pool is None:
        found = replace(found, mesh=meshes[0].fingerprint)  # A file that was written by hand may name no mesh.
    if found.mesh is not None and not meshes:
        raise InputError("--mesh", f"is missing: {path} is a placement on a mesh, so name that mesh")
    if communication is not None and found.mesh is None:
        raise InputError("--communication", "is for a placement on a mesh; without one, transfers block")
    try:
        placed = bind_placement(found, [file], meshes)
    except InputError as error:
        raise error.within(str(path)) from None
    if communication is not None:
        placed = replace(placed, transfers=replace(placed.transfers, communication=communication))
        if placed.replication is not None:
            overlapped = communication is Communication.OVERLAPPED
            placed = replace(placed, replication=replace(placed.replication, overlapped=overlapped))
    return placed


def _show(found: MicroBatchPlan) -> None:
    devices = table("device", "blocks", "work", "static memory", "per micro-batch", "capacity")
    for i, device in enumerate(found.devices):
        blocks = [each for each in found.blocks if i in each.devices]
        held = sum(max(0, each.memory) for each in blocks)
        capacity = "" if device.memory_capacity is None else show_memory(device.memory_capacity, found.memory_unit)
        amounts = (show_memory(each, found.memory_unit) for each in (device.static_memory, held))
        work = show_time(found.work[i], found.time_unit)
        devices.add_row(device.name, ", ".join(each.name for each in blocks), work, *amounts, capacity)
    console(f"{found.name}: {len(found.blocks)} blocks on {len(found.devices)} devices").print(devices)
