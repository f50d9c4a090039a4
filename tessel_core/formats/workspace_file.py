"""The format tessel-workspace, version 1: a user's work on one plan in one file.

This module reads the parts that have their own file formats: the plans, the opened schedule, the graph and the mesh.
Each plan is stored once, and other parts refer to it by its position. The rest is JSON that only the workbench
interprets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, header, read_inside, read_with
from tessel_core.formats.graph_file import GraphFile, graph_document, graph_from
from tessel_core.formats.mesh_file import MESH, MeshFile, mesh_from
from tessel_core.formats.plan_file import PLAN
from tessel_core.formats.schedule_file import ScheduleFile, schedule_document, schedule_from
from tessel_core.model import MicroBatchPlan

T = TypeVar("T")

FORMAT = "tessel-workspace"
LONGEST_NAME = 200


@dataclass(frozen=True, kw_only=True)
class WorkspaceFile:
    """Contents of a workspace file."""

    name: str
    plans: tuple[MicroBatchPlan, ...]
    """Distinct plans: the open one, those of stored questions, and those that are compared."""
    opened: ScheduleFile | None = None
    """Schedule that was opened with the plan.  The referee has not checked it yet."""
    graph: GraphFile | None = None
    mesh: MeshFile | None = None
    rest: Mapping[str, object] = field(default_factory=dict)
    """Remaining values by key."""
    placing: Mapping[str, object] | None = None
    """Remaining values about the placement by key; None if the user has not worked on a placement."""

    def __post_init__(self) -> None:
        check_name(self.name)

    @property
    def plan(self) -> MicroBatchPlan:
        """The open plan.  Raises InputError if there is none."""
        return self.plan_at(Fields(dict(self.rest), ""))

    def plan_at(self, fields: Fields) -> MicroBatchPlan:
        """Return the plan to which an object of the file refers. Its key `plan` has the position in `plans`."""
        position = fields.integer("plan", least=0)
        if position >= len(self.plans):
            why = f"must be a position in the {len(self.plans)} plans, got {position}"
            raise InputError(fields.place("plan"), why)
        return self.plans[position]


def check_name(name: str) -> None:
    """Raise InputError if `name` is not a valid name of a workspace."""
    if not name.strip():
        raise InputError("name", "is empty")
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise InputError("name", f"must be at most {LONGEST_NAME} printable characters, got {name[:40]!a}")


def read_workspace(data: bytes, name: str = "workspace") -> WorkspaceFile:
    """Read the bytes of a tessel-workspace file.  Raises InputError with `name`, the place and the reason."""
    return read_with(workspace_from, data, name)


_WORKSPACE_KEYS = ("format", "version", "name", "plans", "opened", "placing")
_PLACING_KEYS = ("graph", "mesh")


def workspace_from(fields: Fields) -> WorkspaceFile:
    """Read a workspace from a parsed document."""
    header(fields, FORMAT)
    placing = None if fields.is_null("placing") else fields.fields("placing")
    workspace = WorkspaceFile(
        plans=tuple(PLAN.from_fields(each) for each in fields.objects("plans")),
        name=fields.text("name"),
        opened=_inside(fields, "opened", schedule_from),
        graph=_inside(placing, "graph", graph_from),
        mesh=_inside(placing, "mesh", mesh_from),
        rest=fields.others(*_WORKSPACE_KEYS),
        placing=None if placing is None else placing.others(*_PLACING_KEYS),
    )
    workspace.plan_at(fields)
    return workspace


def _inside(fields: Fields | None, key: str, read: Callable[[Fields], T]) -> T | None:
    return None if fields is None or fields.is_null(key) else read_inside(read, fields.fields(key))


def workspace_text(work: WorkspaceFile) -> str:
    """Return the text of a tessel-workspace file."""
    document: dict[str, object] = {
        "format": FORMAT,
        "version": 1,
        "name": work.name,
        "plans": [PLAN.write(plan) for plan in work.plans],
        "opened": None if work.opened is None else schedule_document(work.opened),
        "placing": None
        if work.placing is None
        else {
            "graph": None if work.graph is None else graph_document(work.graph),
            "mesh": None if work.mesh is None else MESH.write(work.mesh.mesh),
            **work.placing,
        },
        **work.rest,
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n"
