"""Parts of a workspace that several revisions share. Each part is stored once, compressed, under its digest."""

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
    """Return the compressed text. It is typically a tenth as long."""
    return zlib.compress(text.encode())


def unpack(packed: bytes, name: str) -> bytes:
    """Decompress a text, and return it as bytes. Raises InputError with `name` if the data is damaged or too large."""
    try:
        reader = zlib.decompressobj()
        found = reader.decompress(packed, LARGEST_FILE)
    except zlib.error:
        raise InputError(name, "is damaged") from None
    if not reader.eof:
        raise InputError(name, f"is cut short, or is larger than the limit of {LARGEST_FILE:,} bytes")
    return found


Part = tuple[str | None, Callable[[], str]]
"""Digest of a part, and a function that returns its text. The digest is None if the workspace has no such part."""


def parts_of(work: WorkspaceFile) -> tuple[Part, Part, Part]:
    """Return schedule, graph and mesh.

    The text of a part, which can have megabytes, is made only if that part is not stored yet.
    """
    opened, graph, mesh = work.opened, work.graph, work.mesh
    return (
        (_digest(opened), lambda: "" if opened is None else schedule_file_text(opened)),
        (None if graph is None else graph.fingerprint, lambda: "" if graph is None else graph_file_text(graph)),
        (None if mesh is None else mesh.fingerprint, lambda: "" if mesh is None else mesh_text(mesh.mesh)),
    )


def without_parts(work: WorkspaceFile) -> WorkspaceFile:
    """Return the workspace without schedule, graph and mesh."""
    return replace(work, opened=None, graph=None, mesh=None)


def with_parts(
    work: WorkspaceFile, schedule: bytes | None, graph: bytes | None, mesh: bytes | None, *, name: str
) -> WorkspaceFile:
    """Return the workspace with its decompressed parts. Raises InputError with `name` if a part is damaged."""
    return replace(
        work,
        opened=None if schedule is None else read_schedule(unpack(schedule, name), name),
        graph=None if graph is None else _graph(graph, name),
        mesh=None if mesh is None else _mesh(mesh, name),
    )


@lru_cache(maxsize=4)
def _digest(schedule: ScheduleFile | None) -> str | None:
    """Return the digest of a schedule. It is cached, because most edits do not change the schedule."""
    return None if schedule is None else hashlib.sha256(schedule_file_text(schedule).encode()).hexdigest()


@lru_cache(maxsize=8)
def _graph(packed: bytes, name: str) -> GraphFile:
    """Read a graph. It is cached, because most revisions have the same graph."""
    return read_graph(unpack(packed, name), name)


@lru_cache(maxsize=8)
def _mesh(packed: bytes, name: str) -> MeshFile:
    return read_mesh(unpack(packed, name), name)
