"""Distinguishable states of a workspace, and short forms of answers of the store."""

from __future__ import annotations

from tessel_core.formats import WorkspaceFile
from tessel_core.formats.tables import tables_of
from tessel_core.model import MicroBatchPlan
from tessel_core.networks import build_shape
from tessel_core.workbench.store import Conflict, SavedWorkspace, Store
from tessel_core.workbench.workspace import Workspace, workspace_file, workspace_of

PLAN = build_shape("v-shape")


def small_work(plan: MicroBatchPlan, micro_batches: int = 1, name: str = "mine") -> Workspace:
    """Return a small workspace; `micro_batches` distinguishes its states."""
    return Workspace("token", name, "a test", "", plan, tables_of(plan), micro_batches=micro_batches)


def simple_workspace(plan: MicroBatchPlan, micro_batches: int = 1, name: str = "mine") -> WorkspaceFile:
    """Return the file of `small_work`."""
    return workspace_file(small_work(plan, micro_batches, name))


def state(number: int, name: str = "mine") -> WorkspaceFile:
    """Return a state of a workspace that is identified by its number."""
    return simple_workspace(PLAN, number, name)


def number_of(store: Store, token: str) -> int:
    """Return the number of the state of the workspace."""
    loaded = store.workspaces.load(token)
    assert loaded is not None
    return workspace_of(loaded[1], token).micro_batches


def saved(outcome: SavedWorkspace | Conflict) -> SavedWorkspace:
    """Return the outcome of a save, and assert that there was no conflict."""
    assert isinstance(outcome, SavedWorkspace)
    return outcome
