"""`tessel program`: build the distributed program of a placement and a schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tessel_core.cli import options
from tessel_core.cli.graph import asked_network
from tessel_core.cli.output import Json, console, print_json, print_notes, table
from tessel_core.cli.problem import bind_placement, find_mesh_file
from tessel_core.errors import InputError, find
from tessel_core.formats import GraphFile, PlacementFile, ScheduleFile, write_file
from tessel_core.formats.files import check_place, read_any, refused
from tessel_core.formats.onnx import OnnxModel
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.program import Program
from tessel_core.model import Placement, Schedule
from tessel_core.units import TICKS_PER_SECOND, show_memory, show_time

if TYPE_CHECKING:
    from tessel_core.networks.graphs.spec import GraphFamily

_ROUNDING = 1e-6
"""Largest difference between plan and program, in seconds, that rounding to whole nanoseconds can cause."""
_OPTIMIZERS = ("adam", "sgd", "none")


def program(
    network: Annotated[
        str,
        typer.Argument(
            help="Network family or preset (`tessel graph` lists them), a graph file that `tessel graph` wrote, or an "
            "ONNX model."
        ),
    ],
    placement: Annotated[Path, typer.Option(help="A tessel-placement file of the network's graph.")],
    schedule: Annotated[Path, typer.Option(help="A tessel-schedule file of the placement's plan.")],
    preset: Annotated[str | None, typer.Option(help="Published size of the network family.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="OPTION=VALUE",
            help="Option of the network, with the same value as for `tessel graph`. For an ONNX model: an open size, "
            "or training=true. Repeatable.",
        ),
    ] = None,
    mesh: options.MeshOfPlacement = None,
    per_node: options.PerNode = None,
    optimizer: Annotated[
        str,
        typer.Option(
            help=f"Optimizer at the end of the step: {', '.join(_OPTIMIZERS)}. With none, the program "
            f"returns gradients."
        ),
    ] = "adam",
    out: Annotated[Path | None, typer.Option(help="File for the text of the program.")] = None,
    json: Json = False,
) -> None:
    """Build the program of all devices from a network, its placement and a schedule."""
    find(dict.fromkeys(_OPTIMIZERS), optimizer, "--optimizer")
    check_place(out, placement)
    check_place(out, schedule)
    if mesh is None and per_node is not None:
        raise InputError("--per-node", "is for a --mesh named KIND-COUNT")
    found = _made(network, preset, changes or [], placement, schedule, mesh, per_node, optimizer)
    if out is not None:
        from tessel_core.ir.text import program_text

        write_file(out, program_text(found.program))
    if json:
        print_json(found.document)
    else:
        _show(found)


@dataclass(frozen=True)
class _Found:
    """A program and its simulated times in seconds."""

    program: Program
    schedule_s: float
    scheduled_s: float | None
    """Simulated time to the end of the last block; None if the program's devices are not those of the mesh."""
    step_s: float | None
    peak_memory: tuple[int, ...] | None

    @property
    def document(self) -> dict[str, object]:
        """The `--json` document. Times are null if the program was not simulated."""
        waits = None if self.scheduled_s is None else self.scheduled_s - self.schedule_s
        update = None if self.step_s is None or self.scheduled_s is None else self.step_s - self.scheduled_s
        return {
            "name": self.program.name,
            "operations": len(self.program.ops),
            "devices": list(self.program.devices),
            "schedule_s": self.schedule_s,
            "latency_s": self.step_s,
            "difference_s": {"transfers": waits, "optimizer": update},
            "peak_memory": self.peak_memory,
        }


def _made(
    network: str,
    preset: str | None,
    changes: list[str],
    placement: Path,
    schedule: Path,
    mesh: str | None,
    per_node: int | None,
    optimizer: str,
) -> _Found:
    from tessel_core.ir.transforms.update import AdamUpdate, Optimizer, SgdUpdate
    from tessel_core.planning.placed_program import placed_program
    from tessel_core.simulation import simulate
    from tessel_core.simulation.trace import worker_peaks

    found = _network(network, preset, changes)
    placed = _placement(placement, found.graph, mesh, per_node)
    if placed.transfers.groups is not None and found.shared is not None:
        found = found.shared(placed.transfers.groups.size)
        placed = placed.on_members
    ordered = _schedule(schedule)
    steps: dict[str, Optimizer | None] = {"adam": AdamUpdate(), "sgd": SgdUpdate()} if found.training else {}
    without = placed_program(found.program, placed, ordered)
    step = steps.get(optimizer)
    program = (without if step is None else step(without)).program
    scheduled = ordered.makespan / TICKS_PER_SECOND.get(ordered.plan.time_unit, 1.0)
    devices = placed.transfers.mesh
    groups_as_devices = found.tensor_parallel > 1 and all(len(on) == 1 for on in placed.assignment)
    if devices is None or groups_as_devices:
        return _Found(program, scheduled, None, None, None)
    trace = simulate(program, devices)
    alone = trace if step is None else simulate(without.program, devices)
    return _Found(program, scheduled, alone.latency, trace.latency, worker_peaks(trace))


@dataclass(frozen=True)
class _Network:
    """A network to place: its graph, and a function that builds its program for one micro-batch.

    The argument of `program` is whether weight gradients are separate operators.
    """

    graph: GraphFile
    program: Callable[[bool], Distributed]
    training: bool
    tensor_parallel: int = 1
    shared: Callable[[int], _Network] | None = None
    """Function from a tensor-parallel degree to the network cut to that degree. None if the network cannot be cut."""


def _network(network: str, preset: str | None, changes: list[str]) -> _Network:
    from tessel_core.networks.graphs.table import build_graph, network_of

    file = Path(network)
    if file.suffix not in (".json", ".onnx") or not file.exists():
        family, spec, name = asked_network(network, preset, changes)
        return _of_family(family, spec, GraphFile.of(build_graph(family.name, spec, name)))
    if preset or (changes and file.suffix == ".json"):
        why = (
            f"is for networks, and {network} is {'a graph' if file.suffix == '.json' else 'a model'} with its own sizes"
        )
        raise InputError("--preset" if preset else "--set", why)
    found = read_any(file, network)
    if isinstance(found, OnnxModel):
        return _of_model(found, changes)
    if not isinstance(found, GraphFile):
        raise refused(found, network, "an operator graph")
    try:
        return _of_family(*network_of(found.graph), found)
    except InputError as error:
        raise error.within(network) from None


def _of_family(family: GraphFamily, spec: Any, graph: GraphFile) -> _Network:
    from tessel_core.networks.graphs.table import network_program

    def of_one_micro_batch(split: bool) -> Distributed:
        return network_program(family.program, replace(spec, split_weights=split or spec.split_weights))

    def shared(size: int) -> _Network:
        return _of_family(family, replace(spec, tensor_parallel=size), graph)

    return _Network(graph, of_one_micro_batch, spec.training, spec.tensor_parallel, shared)


def _of_model(model: OnnxModel, changes: list[str]) -> _Network:
    from tessel_core.networks.onnx import network_graph, network_program, spec_from

    spec = spec_from(changes, "--set")
    network = model.network(spec.sizes)
    try:
        graph = network_graph(network, spec)
    except InputError as error:
        raise error.within(model.name) from None
    print_notes(model.name, graph.warnings)

    def of_one_micro_batch(split: bool) -> Distributed:
        return network_program(network, replace(spec, split_weights=split or spec.split_weights))

    return _Network(graph, of_one_micro_batch, spec.training)


def _placement(path: Path, graph: GraphFile, mesh: str | None, per_node: int | None) -> Placement:
    found = read_any(path)
    if not isinstance(found, PlacementFile):
        raise refused(found, str(path), "a placement")
    if found.graph != graph.fingerprint:
        why = f"belongs to another graph than {graph.graph.name} with these options; `tessel graph` writes graphs"
        raise InputError(str(path), why)
    try:
        return bind_placement(found, [graph], [] if mesh is None else [find_mesh_file(mesh, per_node)])
    except InputError as error:
        raise error.within(str(path)) from None


def _schedule(path: Path) -> Schedule:
    found = read_any(path)
    if not isinstance(found, ScheduleFile):
        raise refused(found, str(path), "a schedule")
    return found.schedule


def _show(found: _Found) -> None:
    facts = table(show_header=False)
    facts.add_row("operations", f"{len(found.program.ops):,}")
    facts.add_row("devices", str(len(found.program.devices)))
    facts.add_row("schedule", show_time(found.schedule_s, "s"))
    if found.scheduled_s is not None and found.step_s is not None:
        waits = found.scheduled_s - found.schedule_s
        if waits < -_ROUNDING:
            facts.add_row("transfers that the plan counts as work", f"-{show_time(-waits, 's')}")
        else:
            facts.add_row("transfers that wait for each other", show_time(waits if waits > _ROUNDING else 0.0, "s"))
        facts.add_row("optimizer", show_time(found.step_s - found.scheduled_s, "s"))
        facts.add_row("step", show_time(found.step_s, "s"))
    if found.peak_memory:
        facts.add_row("largest peak memory", show_memory(max(found.peak_memory), "B"))
    console(found.program.name).print(facts)
