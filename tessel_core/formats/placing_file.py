"""The part of a tessel-workspace that leads from an operator graph over a mesh to a placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, as_integer, as_items, as_number, as_text, read_inside
from tessel_core.formats.graph_file import GraphFile
from tessel_core.formats.kept_graph import kept_graph_document, kept_graph_from
from tessel_core.formats.mesh_file import MeshFile, mesh_document, mesh_from
from tessel_core.model import DevicePool, Status

Options = Mapping[str, bool | int | float | str]
"""Options by name; which names and values there are is not the file's business."""

Assignment = tuple[tuple[int, ...], ...]
"""Per operator of the graph, positions of its devices."""


@dataclass(frozen=True, slots=True)
class KeptOutcome:
    """What a placer said at last, without its placement; times are in the graph's unit."""

    placer: str
    status: Status
    objective_name: str
    objective: float | None
    bound: float | None
    wall_s: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class KeptPlacing:
    """A graph, the devices, what is asked of a placer, and where the operators are."""

    graph: GraphFile | None
    graph_source: str
    """Where the graph comes from, in a few words."""
    graph_sample: str
    """Name of the sample; empty for everything else."""
    mesh: MeshFile | None
    mesh_source: str
    pool: DevicePool
    on_mesh: bool
    """Whether the mesh says the devices; else the pool does."""
    objective: str
    contiguous: bool
    placer: str
    options: Mapping[str, Options]
    """By placer, where they were changed."""
    costs: Options
    communication: str
    pins: tuple[tuple[str, tuple[str, ...]], ...]
    """Operators that may only go to some devices, by name."""
    assignment: Assignment | None
    subgraphs: tuple[int, ...] | None
    """For a latency, per operator its subgraph on its device."""
    by_hand: bool
    """Whether a person has moved operators since a placer placed them."""
    outcome: KeptOutcome | None


_KEYS = (
    *("graph", "graph_source", "graph_sample", "mesh", "mesh_source", "pool", "on_mesh", "objective", "contiguous"),
    *("placer", "options", "costs", "communication", "pins", "assignment", "subgraphs"),
    *("by_hand", "outcome"),
)


def placing_from(fields: Fields) -> KeptPlacing:
    """What was kept, from a parsed document."""
    fields.only(*_KEYS)
    options, pins = fields.fields("options"), fields.fields("pins")
    return KeptPlacing(
        graph=None if fields.is_null("graph") else read_inside(kept_graph_from, fields.fields("graph")),
        graph_source=fields.text("graph_source"),
        graph_sample=fields.text("graph_sample"),
        mesh=None if fields.is_null("mesh") else read_inside(mesh_from, fields.fields("mesh")),
        mesh_source=fields.text("mesh_source"),
        pool=_pool(fields.fields("pool")),
        on_mesh=fields.truth("on_mesh"),
        objective=fields.text("objective"),
        contiguous=fields.truth("contiguous"),
        placer=fields.text("placer"),
        options={placer: options_from(options.fields(placer)) for placer in options.named()},
        costs=options_from(fields.fields("costs")),
        communication=fields.text("communication"),
        pins=tuple((name, tuple(as_text(each, at) for each, at in pins.items(name))) for name in pins.named()),
        assignment=None if fields.is_null("assignment") else _assignment(fields),
        subgraphs=None if fields.is_null("subgraphs") else _subgraphs(fields),
        by_hand=fields.truth("by_hand"),
        outcome=None if fields.is_null("outcome") else _outcome(fields.fields("outcome")),
    )


def options_from(fields: Fields) -> Options:
    """Options by name: text, truth values and finite numbers."""
    return {name: _option(fields.take(name), fields.place(name)) for name in fields.named()}


def _option(value: object, where: str) -> bool | int | float | str:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return as_text(value, where)
    number = as_number(value, where)
    return value if isinstance(value, int) else number


def _pool(fields: Fields) -> DevicePool:
    fields.only("accelerators", "cpus", "memory")
    return DevicePool(fields.integer("accelerators", least=0), fields.integer("cpus", least=0), fields.amount("memory"))


def _assignment(fields: Fields) -> Assignment:
    """A position, or a list of positions for an operator on several devices or on none."""
    return tuple(
        tuple(as_integer(value, at, least=0) for value, at in as_items(each, where))
        if isinstance(each, list)
        else (as_integer(each, where, least=0),)
        for each, where in fields.items("assignment")
    )


def _subgraphs(fields: Fields) -> tuple[int, ...]:
    return tuple(as_integer(each, where, least=0) for each, where in fields.items("subgraphs"))


def _outcome(fields: Fields) -> KeptOutcome:
    fields.only("placer", "status", "objective_name", "objective", "bound", "wall_s", "reason")
    status = fields.text("status")
    if status not in tuple(Status):
        raise InputError(fields.place("status"), f"must be one of {', '.join(Status)}, got {status!r}")
    return KeptOutcome(
        fields.text("placer"),
        Status(status),
        fields.text("objective_name"),
        fields.amount("objective"),
        fields.amount("bound"),
        fields.number("wall_s"),
        fields.text("reason"),
    )


def placing_document(placing: KeptPlacing) -> dict[str, object]:
    """What is kept, as a JSON-ready document."""
    pool = placing.pool
    return {
        "graph": None if placing.graph is None else kept_graph_document(placing.graph),
        "graph_source": placing.graph_source,
        "graph_sample": placing.graph_sample,
        "mesh": None if placing.mesh is None else mesh_document(placing.mesh.mesh),
        "mesh_source": placing.mesh_source,
        "pool": {"accelerators": pool.accelerators, "cpus": pool.cpus, "memory": pool.memory},
        "on_mesh": placing.on_mesh,
        "objective": placing.objective,
        "contiguous": placing.contiguous,
        "placer": placing.placer,
        "options": {placer: dict(options) for placer, options in placing.options.items()},
        "costs": dict(placing.costs),
        "communication": placing.communication,
        "pins": {operator: list(devices) for operator, devices in placing.pins},
        "assignment": None if placing.assignment is None else [_short(each) for each in placing.assignment],
        "subgraphs": None if placing.subgraphs is None else list(placing.subgraphs),
        "by_hand": placing.by_hand,
        "outcome": None if placing.outcome is None else _outcome_document(placing.outcome),
    }


def _short(devices: Sequence[int]) -> int | list[int]:
    return devices[0] if len(devices) == 1 else list(devices)


def _outcome_document(outcome: KeptOutcome) -> dict[str, object]:
    return {
        "placer": outcome.placer,
        "status": str(outcome.status),
        "objective_name": outcome.objective_name,
        "objective": outcome.objective,
        "bound": outcome.bound,
        "wall_s": outcome.wall_s,
        "reason": outcome.reason,
    }
