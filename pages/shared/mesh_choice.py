"""Choice of the workspace's mesh, which all pages share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pages.shared.session import session, workspace
from pages.shared.widgets import choose
from tessel_core.costs.meshes import MESHES
from tessel_core.formats import MeshFile
from tessel_core.model import DeviceMesh
from tessel_core.strategies.form import MESH, answer_to, mesh_named, mesh_title

_OWN = ""


def open_mesh() -> DeviceMesh | None:
    """Return the workspace's mesh. None if the user has not chosen one yet."""
    placing = workspace().placing
    return placing.mesh.mesh if placing.mesh_is_chosen else None


def mesh_choice(**look: Any) -> DeviceMesh:
    """Show the choice of the mesh. Return the chosen one, which becomes the workspace's."""
    own, titles = open_mesh(), {name: mesh_title(name) for name in MESH.choices}
    now = str(answer_to(MESH, workspace().strategies)) if own is None else _name_of(own)
    if own is not None and now == _OWN:
        titles = {_OWN: f"{own.name} · {workspace().placing.mesh_source}"} | titles
    chosen = choose("Mesh", titles, now, key=session().key("mesh-choice"), **look)
    if chosen == now:
        return mesh_named(now) if own is None else own
    mesh = mesh_named(chosen)
    source = f"preset {chosen}" if chosen in MESHES else mesh_title(chosen)
    # Keep the widgets: no other one shows the mesh, and their unread input would be lost.
    session().change(replace(workspace(), placing=workspace().placing.on(MeshFile.of(mesh), source)))
    return mesh


def _name_of(mesh: DeviceMesh) -> str:
    """Return the name of the preset that equals the mesh, or `_OWN`."""
    return mesh.name if mesh.name in MESH.choices and mesh == mesh_named(mesh.name) else _OWN
