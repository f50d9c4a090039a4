"""Parts of a workspace that revisions share, each stored once by digest; all text is stored compressed."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from tessel_core.errors import InputError
from tessel_core.formats.fields import LARGEST_FILE
from tessel_core.formats.graph_file import GraphFile, graph_file_text, read_graph
from tessel_core.formats.mesh_file import MeshFile, mesh_text, read_mesh
from tessel_core.formats.schedule_file import ScheduleFile, read_schedule, schedule_file_text
from tessel_core.formats.workspace_file import WorkspaceFile


def pack(text: str) -> bytes:
    """`text`, compressed: a tenth of it or less for documents of ours."""
    return zlib.compress(text.encode())


def unpack(packed: bytes, name: str) -> bytes:
    """The bytes of the text; InputError, `name` first, where they are damaged or too many."""
    try:
        reader = zlib.decompressobj()
        found = reader.decompress(packed, LARGEST_FILE)
    except zlib.error:
        raise InputError(name, "is damaged") from None
    if not reader.eof:
        raise InputError(name, f"is cut short, or has more than the {LARGEST_FILE:,} bytes that are read")
    return found


Part = tuple[str | None, Callable[[], str]]
"""A digest, None where there is no such part, and what makes the text."""


def parts_of(work: WorkspaceFile) -> tuple[Part, Part, Part]:
    """Schedule, graph and mesh; text is only made of what is not kept yet, since a graph may have megabytes."""
    opened, graph, mesh = work.opened, work.graph, work.mesh
    return (
        (_digest(opened), lambda: "" if opened is None else schedule_file_text(opened)),
        (None if graph is None else graph.fingerprint, lambda: "" if graph is None else graph_file_text(graph)),
        (None if mesh is None else mesh.fingerprint, lambda: "" if mesh is None else mesh_text(mesh.mesh)),
    )


def without_parts(work: WorkspaceFile) -> WorkspaceFile:
    """The rest of it."""
    return replace(work, opened=None, graph=None, mesh=None)


def with_parts(
    work: WorkspaceFile, schedule: bytes | None, graph: bytes | None, mesh: bytes | None, *, name: str
) -> WorkspaceFile:
    """The whole again, from packed parts; InputError, `name` first, where one is damaged."""
    return replace(
        work,
        opened=None if schedule is None else read_schedule(unpack(schedule, name), name),
        graph=None if graph is None else _graph(graph, name),
        mesh=None if mesh is None else _mesh(mesh, name),
    )


@lru_cache(maxsize=4)
def _digest(schedule: ScheduleFile | None) -> str | None:
    """A long schedule is not spelled out again for every edit beside it."""
    return None if schedule is None else hashlib.sha256(schedule_file_text(schedule).encode()).hexdigest()


@lru_cache(maxsize=8)
def _graph(packed: bytes, name: str) -> GraphFile:
    """Undo goes from revision to revision, most of which have the same graph."""
    return read_graph(unpack(packed, name), name)


@lru_cache(maxsize=8)
def _mesh(packed: bytes, name: str) -> MeshFile:
    return read_mesh(unpack(packed, name), name)
