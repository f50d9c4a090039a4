"""States of a workspace that can be told apart, and short words for what the store says of them."""

from __future__ import annotations

from tessel_core.formats import WorkspaceFile
from tessel_core.formats.tables import tables_of
from tessel_core.model import MicroBatchPlan
from tessel_core.networks import build_shape
from tessel_core.workbench.store import Conflict, SavedWorkspace, Store
from tessel_core.workbench.workspace import Workspace, workspace_file, workspace_of

PLAN = build_shape("v-shape")


def small_work(plan: MicroBatchPlan, micro_batches: int = 1, name: str = "mine") -> Workspace:
    """A small workspace; `micro_batches` serves to tell its states apart."""
    return Workspace("token", name, "a test", "", plan, tables_of(plan), micro_batches=micro_batches)


def simple_workspace(plan: MicroBatchPlan, micro_batches: int = 1, name: str = "mine") -> WorkspaceFile:
    """The same as it is kept."""
    return workspace_file(small_work(plan, micro_batches, name))


def state(number: int, name: str = "mine") -> WorkspaceFile:
    """A state of a workspace that can be told from others by its number."""
    return simple_workspace(PLAN, number, name)


def number_of(store: Store, token: str) -> int:
    """Which state the workspace is in."""
    loaded = store.workspaces.load(token)
    assert loaded is not None
    return workspace_of(loaded[1], token).micro_batches


def saved(outcome: SavedWorkspace | Conflict) -> SavedWorkspace:
    """What a save says when there was no conflict."""
    assert isinstance(outcome, SavedWorkspace)
    return outcome
