"""From words on the command line, or a kept placement, to the placement problem that they mean."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from tessel_core.costs.costed import CostOptions, costed
from tessel_core.costs.meshes import MESHES, find_mesh
from tessel_core.errors import InputError
from tessel_core.formats import (
    GraphFile,
    MeshFile,
    PlacementFile,
    PlacementTerms,
    bound_placement,
    read_mesh_file,
)
from tessel_core.model import Allowance, Communication, DevicePool, Placement
from tessel_core.options import config_from, options_of, search_options
from tessel_core.placement import PlacementProblem
from tessel_core.placement.problem import placement_problem
from tessel_core.samples import list_meshes, load_mesh

_CHOICES = {name: ", ".join(each.choices) for name, (each, _) in options_of(CostOptions).items()}

Graph = Annotated[
    str, typer.Argument(help="A sample's name, a tessel-graph or ONNX file, or the published device-placement JSON.")
]
Mesh = Annotated[str | None, typer.Option(help="File, sample or preset (such as h200-16) with devices and links.")]
CommunicationOption = Annotated[
    Communication | None, typer.Option(help="On a mesh, whether transfers keep devices busy; overlapped if not said.")
]
Dtype = Annotated[str | None, typer.Option(help=f"On a mesh, number format: {_CHOICES['dtype']}.")]
Optimizer = Annotated[str | None, typer.Option(help=f"On a mesh, in training: {_CHOICES['optimizer']}.")]
InFlight = Annotated[int | None, typer.Option(help="On a mesh, micro-batches whose activations a device holds.")]
Pin = Annotated[list[str] | None, typer.Option(metavar="OPERATOR=DEVICE[,DEVICE]", help="Where it may go; repeatable.")]
Forbid = Annotated[list[str] | None, typer.Option(metavar="OPERATOR=DEVICE[,DEVICE]", help="Where not; repeatable.")]


@dataclass(frozen=True, slots=True)
class DeviceArguments:
    """What was said of the devices; None is nothing."""

    mesh: str | None
    accelerators: int | None
    cpus: int | None
    memory: float | None


@dataclass(frozen=True, slots=True)
class CostArguments:
    """What was said of costs on a mesh; None is nothing."""

    communication: Communication | None
    dtype: str | None
    optimizer: str | None
    in_flight: int | None


@dataclass(frozen=True)
class Asked:
    """A problem, and what a file that keeps its answer says of it."""

    problem: PlacementProblem
    devices: DevicePool | MeshFile
    terms: PlacementTerms


def asked_problem(
    file: GraphFile, devices: DeviceArguments, costs: CostArguments, pin: Sequence[str] = (), forbid: Sequence[str] = ()
) -> Asked:
    """The problem that the options ask for.

    Raises
    ------
    InputError
        For options that exclude each other, an unknown mesh, operator or device, or costs that cannot be derived.
    """
    asked = _on_pool(file, devices, costs) if devices.mesh is None else _on_mesh(file, devices, devices.mesh, costs)
    allowances = _allowances(pin, forbid, asked.problem, file.aliases)
    problem = replace(asked.problem, allowances=allowances)
    return Asked(problem, asked.devices, replace(asked.terms, allowances=allowances))


def _on_pool(file: GraphFile, devices: DeviceArguments, costs: CostArguments) -> Asked:
    """On the devices that the options ask for, else those that the graph's file says."""
    for name, value in asdict(costs).items():
        if value is not None:
            raise InputError(f"--{name.replace('_', '-')}", "is for costs on a mesh, so give --mesh too")
    if not file.graph.kinds:  # as an ONNX file: no number of devices could take it
        first = file.graph.operators[0].name
        raise InputError(f"operator {first}", "has no time, nor has any other one; they follow from a --mesh")
    known = file.pool
    if known is None and devices.accelerators is None and devices.cpus is None:
        raise InputError("--accelerators", "is missing: the graph does not say how many devices there are; or --mesh")
    pool = DevicePool(
        (known.accelerators if known else 0) if devices.accelerators is None else devices.accelerators,
        (known.cpus if known else 0) if devices.cpus is None else devices.cpus,
        (known.memory if known else None) if devices.memory is None else devices.memory,
    )
    return Asked(placement_problem(file.graph, pool), pool, PlacementTerms())


def _on_mesh(file: GraphFile, devices: DeviceArguments, mesh: str, costs: CostArguments) -> Asked:
    for name in ("accelerators", "cpus", "memory"):
        if getattr(devices, name) is not None:
            raise InputError("--mesh", f"says what the devices are, so leave out --{name}")
    if file.pool is not None:
        why = "is for a tessel-graph: the times of a published one are in ms, and its edges have no bytes"
        raise InputError("--mesh", why)
    kept = find_mesh_file(mesh)
    given = {name: value for name, value in asdict(costs).items() if name != "communication" and value is not None}
    options = config_from(CostOptions, given)
    terms = PlacementTerms(costs.communication or Communication.OVERLAPPED, search_options(options))
    return Asked(placement_problem(file.graph, kept.mesh, options, terms.communication), kept, terms)


def find_mesh_file(words: str) -> MeshFile:
    """A mesh from its file, else the sample or the preset of that name; InputError with the nearest names."""
    path, names = Path(words), [sample.name for sample in list_meshes()]
    if os.path.isfile(words) or path.suffix == ".json":  # unlike Path.is_file, it takes names too long for files
        return read_mesh_file(path)
    if words in names:
        return MeshFile.of(load_mesh(words))
    if words in MESHES:
        return MeshFile.of(find_mesh(words))
    close = get_close_matches(words, [*dict.fromkeys((*names, *MESHES))])
    hint = f"did you mean {' or '.join(close)}?" if close else f"presets are {', '.join(MESHES)}"
    raise InputError("--mesh", f"{words!r} is neither a file nor the name of a mesh, {hint}")


Aliases = Sequence[tuple[str, str]]
"""What a graph's file calls operators besides their names."""


def _allowances(
    pin: Sequence[str], forbid: Sequence[str], problem: PlacementProblem, aliases: Aliases
) -> tuple[Allowance, ...]:
    """Per operator that is named, the devices that are left to it."""
    devices, left = [device.name for device in problem.devices], dict[str, list[str]]()
    for operator, names in (_named("--pin", each, problem, aliases) for each in pin):
        if operator in left:
            raise InputError("--pin", f"operator {operator} is pinned twice: name all of its devices at once")
        left[operator] = names
    for operator, names in (_named("--forbid", each, problem, aliases) for each in forbid):
        left[operator] = [name for name in left.get(operator, devices) if name not in names]
        if not left[operator]:
            raise InputError("--forbid", f"leaves no device for operator {operator}")
    return tuple(Allowance(operator, tuple(names)) for operator, names in left.items())


def _named(option: str, words: str, problem: PlacementProblem, aliases: Aliases) -> tuple[str, list[str]]:
    """OPERATOR=DEVICE[,DEVICE]; an operator's name may hold "=", a device's may not."""
    operator, _, listed = words.rpartition("=")
    names = [name.strip() for name in listed.split(",") if name.strip()]
    if not operator or not names:
        raise InputError(option, f"must be OPERATOR=DEVICE[,DEVICE], got {words!r}")
    operator = _operator(option, operator, problem, aliases)
    for name in names:
        if all(name != device.name for device in problem.devices):
            raise InputError(option, f"unknown device {name!r} for operator {operator}")
    return operator, names


def _operator(option: str, words: str, problem: PlacementProblem, aliases: Aliases) -> str:
    """The operator of that name, else the only one that its file calls so."""
    if words in problem.graph.names:
        return words
    found = [name for alias, name in aliases if alias == words]
    if len(found) > 1:
        raise InputError(option, f"{words!r} are several operators, say which by its id: {', '.join(found[:5])}")
    if not found:
        raise InputError(option, f"unknown operator {words!r}")
    return found[0]


def _known_meshes() -> Iterator[MeshFile]:
    """Those that need no file: samples and presets."""
    yield from (MeshFile.of(load_mesh(sample.name)) for sample in list_meshes())
    yield from (MeshFile.of(find_mesh(name)) for name in MESHES)


def kept_placement(kept: PlacementFile, graphs: Sequence[GraphFile], meshes: Sequence[MeshFile]) -> Placement:
    """The placement on its graph and mesh, found among those by their fingerprints, with the costs that it had.

    Raises
    ------
    InputError
        Where one of the two is missing, or the placement does not fit them.
    """
    file = next((each for each in graphs if each.fingerprint == kept.graph), None)
    if file is None:
        raise InputError("graph", f"{kept.graph:.16} is not among the files")
    if kept.mesh is None:
        return bound_placement(kept, file)
    found = next((each.mesh for each in (*meshes, *_known_meshes()) if each.fingerprint == kept.mesh), None)
    if found is None:
        raise InputError("mesh", f"{kept.mesh:.16} is neither among the files nor a sample or preset")
    graph = costed(file.graph, found, config_from(CostOptions, kept.terms.costs))
    return bound_placement(kept, replace(file, graph=graph), found)
