"""State of one browser tab: one typed object in Streamlit's session. Every change is saved in the store."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import streamlit as st
from streamlit.runtime.scriptrunner import RerunException

from tessel_core.errors import InputError
from tessel_core.formats import GraphFile
from tessel_core.formats.tables import PlanTables, tables_of
from tessel_core.model import MicroBatchPlan, ScheduleReport
from tessel_core.samples import load_graph, load_sample
from tessel_core.scheduling.finish import BY_HAND
from tessel_core.workbench.placing import Placing
from tessel_core.workbench.store import Conflict, SavedWorkspace, StoreError, find_store, new_token
from tessel_core.workbench.workspace import MICRO_BATCHES, Hang, Workspace, workspace_file, workspace_of

State = TypeVar("State")
P = ParamSpec("P")

FIRST_SAMPLE = "gpt-1m-vocab-m-4"
_MAX_UNSAVED_WORKSPACES = 200


@dataclass
class Session:
    """State of one browser tab."""

    work: Workspace | None = None
    restored: bool = False
    """Whether the address has been read, which happens once."""
    written: Mapping[str, str] = field(default_factory=dict)
    """Address that was written last."""
    kept: SavedWorkspace | None = None
    """Stored record of the workspace. None while it is an unchanged sample."""
    unsaved: bool = False
    """Whether the store could not save the latest change."""
    generation: int = 0
    """Part of every widget's key. A new number makes all widgets show the workspace again."""
    editor_base: PlanTables | None = None
    """First content of the plan's tables. Streamlit keeps edits as differences to it."""
    file_complaint: str = ""
    """Why a file could not be opened, in one sentence."""
    message: str = ""
    """Sentence at the top of every page until the user dismisses it or changes something."""
    other: SavedWorkspace | None = None
    """The other tab's workspace after a conflict."""
    wanted: str = ""
    """Token of the workspace to open at the end of this run, after its edits are saved."""
    name_complaint: str = ""
    deleting: bool = False
    """Whether the menu asks to confirm that the workspace is deleted."""
    trouble_seen: str = ""
    view: str = ""
    """View of the Schedule page. Empty until the page was shown."""
    turned: int = 0
    """Number of times that the address was completed after a change of page."""
    linked: bool = False
    """Whether this tab has just opened a link to a schedule."""
    next_view: str = ""
    """View that the Schedule page must show in its next run. Empty: the one that its switch shows."""
    bases: dict[str, object] = field(default_factory=dict)
    """First content of each table, by key. Streamlit keeps edits as differences to it."""
    states: dict[type[Any], Any] = field(default_factory=dict)
    """States of pages and drawings, by class."""
    states_of: str = ""
    """Token of the workspace that the states belong to."""
    page: str = ""
    """Name of the page that this tab shows."""
    bound_for: str = ""
    """Name of the page that this tab was sent to and has not reached yet."""
    arriving: bool = False
    """Whether the browser may still request fragments of the previous page."""
    pressed: Counter[str] = field(default_factory=Counter)
    """Presses that no run has handled yet, by the button's key or label."""
    again: bool = False
    """Whether the page must run again, because of another workspace or a new message."""

    def of(self, kind: type[State]) -> State:
        """Return the state of a page in this tab. It is created at the first call.

        A state with the attribute `of_workspace` is reset when another workspace opens. It is also reset by undo,
        unless it has the attribute `through_undo`.
        """
        found: State = self.states.setdefault(kind, kind())
        return found

    def key(self, name: str) -> str:
        """Return the key of a widget that shows a part of the workspace."""
        return f"{name}-{self.work.token if self.work else ''}-{self.generation}"

    def change(self, work: Workspace) -> None:
        """Set the workspace, and save it."""
        before, self.work = self.work, work
        if before is None or work == before:
            return
        step = work.differs_in_more_than_answers(before)
        if step:
            self.message = ""
        if step or work.ran is not before.ran or self.kept is not None or self.unsaved:
            self._save(before, step)

    def change_placing(self, placing: Placing) -> None:
        """Set the workspace's placement question and answer, and make every widget show them."""
        self.change(replace(workspace(), placing=placing))
        self.begin_again()

    def _save(self, before: Workspace | None, step: bool = True) -> None:
        """Save the workspace. If it was not saved yet, first save the state `before`, for undo."""
        assert self.work is not None
        shelf, token = find_store().workspaces, self.work.token
        try:
            if self.kept is None:
                self.kept = shelf.create(workspace_file(before or self.work), token)
            if before is not None:
                outcome = shelf.save(self.kept.token, self.kept.revision, workspace_file(self.work), step=step)
                self._kept_as(outcome)
        except StoreError:
            self.again, self.unsaved = self.again or not self.unsaved, True
            _leave(self.work, self.kept)
            return
        self.again, self.unsaved = self.again or self.unsaved, False
        _desk().pop(token, None)
        _clear_desk()
        self.work = replace(self.work, token=self.kept.token, name=self.kept.name)

    def _kept_as(self, outcome: SavedWorkspace | Conflict) -> None:
        if isinstance(outcome, SavedWorkspace):
            self.kept = outcome
            return
        self.kept, self.other, self.again = outcome.mine, outcome.other, True
        self.message = (
            "" if outcome.other else "Another tab has deleted this workspace. The work of this tab is saved again."
        )
        self.begin_again()

    def turned_to(self, page: str) -> None:
        """Record the page that this tab shows. Forget presses of buttons on another page."""
        if page != self.page:
            self.page, self.arriving = page, True
            self.pressed.clear()

    def take_press(self, name: str) -> bool:
        """Return whether this button has an unhandled press, and mark the press as handled."""
        there = self.pressed[name] > 0
        self.pressed[name] -= there
        return there

    def begin_again(self) -> None:
        """Make every widget show the workspace as it is now."""
        self.generation += 1
        self.editor_base = None
        self.bases.clear()

    def _take(self, work: Workspace, kept: SavedWorkspace | None) -> None:
        """Replace the open workspace."""
        self.work, self.kept, self.unsaved, self.other = work, kept, False, None
        self.file_complaint = self.message = self.name_complaint = ""
        self.deleting = False
        same = self.states_of == work.token
        self.states_of = work.token
        self.states = {
            kind: state
            for kind, state in self.states.items()
            if not hasattr(kind, "of_workspace") or (same and hasattr(kind, "through_undo"))
        }
        self.begin_again()

    def open_plan(
        self,
        plan: MicroBatchPlan,
        source: str,
        sample: str = "",
        opened: ScheduleReport | None = None,
        hang: Hang | None = None,
    ) -> None:
        """Open a plan in a new workspace. Unless it is a sample, save it at once, because nothing else restores it."""
        micro_batches = MICRO_BATCHES if opened is None or opened.solution is None else opened.solution.micro_batches
        token, name, draft = new_token(), plan.name or "untitled", tables_of(plan)
        self.view = ""
        work = Workspace(token, name, source, sample, plan, draft, micro_batches=micro_batches, hang=hang)
        if opened is not None:
            by_hand = opened.solver == BY_HAND
            work = work.changed_by_hand(opened) if by_hand else replace(work, opened=opened)
        work = work if self.work is None else work.carrying(self.work)
        self._take(work, None)
        carried = work.comparison.pairs, work.placing.graph, work.strategies, work.played
        if not sample or any(carried):
            self._save(None)

    def open_sample(self, name: str) -> None:
        self.open_plan(load_sample(name), f"sample {name}", sample=name)

    def open_copy(self, work: Workspace) -> None:
        """Open and save a workspace that the store does not have, under a free name."""
        self._take(work, None)
        self._save(None)

    def open_graph_sample(self, name: str) -> None:
        self.open_graph(GraphFile.of(load_graph(name)), f"sample {name}", name, sample=name)

    def open_graph(
        self, file: GraphFile, source: str, name: str, sample: str = "", sizes: Mapping[str, int] | None = None
    ) -> None:
        """Open an operator graph. The first one is added to the open workspace; another one opens a new workspace."""
        work = workspace()
        placing = work.placing.opened(file, source, sample).sized(sizes or {})
        if work.placing.graph is None and self.kept is not None:
            self.change(replace(work, placing=placing))
            self.begin_again()
            return
        untouched = self.kept is None and not self.unsaved
        self._take(replace(work, token=new_token(), name=name, placing=placing), None)
        if not sample or not untouched:
            self._save(None)

    def duplicate(self) -> None:
        """Continue with a copy of the workspace. The original stays unchanged."""
        assert self.work is not None
        self.open_copy(replace(self.work, token=new_token()))

    def open_kept(self, token: str) -> bool:
        """Open a saved workspace. Return False if the token is unknown or the file cannot be read (see `message`)."""
        left = _desk().get(token)
        if left is not None:
            self._take(*left)
            self.unsaved = True
            return True
        try:
            found = find_store().workspaces.load(token)
            if found is None:
                return False
            kept, file = found
            self._take(workspace_of(file, token), kept)
        except InputError as error:
            self.message = f"{error}."
            return False
        return True

    def undo(self) -> None:
        self._move(find_store().workspaces.undo)

    def redo(self) -> None:
        self._move(find_store().workspaces.redo)

    def _move(self, move: Callable[[str, int], SavedWorkspace | None]) -> None:
        """Move one step in the history. If another tab has changed the workspace, show its version instead."""
        self._follow()
        if self.kept is None or self.again:
            return
        try:
            move(self.kept.token, self.kept.revision)
        except StoreError:
            return  # a notice at the top of the page says why
        if not self.open_kept(self.kept.token):
            self.message = self.message or "Another tab has deleted this workspace. Your next change saves it again."

    def rename(self, name: str) -> None:
        """Rename the workspace. Save it first if it was not saved yet."""
        assert self.work is not None
        self.name_complaint = ""
        try:
            if self.kept is None:
                self._save(None)
            if self.kept is not None:
                self.kept = find_store().workspaces.rename(self.kept.token, name) or self.kept
                self.work = replace(self.work, name=self.kept.name)
        except InputError as error:
            self.name_complaint = f"{error}."

    def delete(self) -> None:
        """Delete the workspace and its history."""
        if self.work is not None and self.kept is not None:
            find_store().workspaces.delete(self.kept.token)
            _desk().pop(self.work.token, None)
        self.work = self.kept = self.other = None
        self.unsaved = self.deleting = False
        self.begin_again()

    def settle(self) -> bool:
        """Finish a run of the page: save unsaved changes, and load changes of other tabs.

        Return whether the page must run again.
        """
        self.pressed.clear()  # what is left are presses of buttons that no longer exist
        if self.unsaved:
            self._save(self.work if self.kept else None)
        if self.wanted:
            wanted, self.wanted, self.again = self.wanted, "", True
            self.open_kept(wanted)
        if not self.again:
            self._follow()
        again, self.again = self.again, False
        return again

    def _follow(self) -> None:
        """Load the changes that another tab has made to the workspace."""
        if self.kept is None or self.unsaved:
            return
        try:
            now = find_store().workspaces.find(self.kept.token)
        except StoreError:
            return
        if now is None or now == self.kept:
            return
        if self.open_kept(self.kept.token):
            self.message, self.again = "Another tab has changed this workspace. This is its current state.", True


@lru_cache(maxsize=1)
def _desk() -> dict[str, tuple[Workspace, SavedWorkspace | None]]:
    """Return the workspaces that the store could not save, by token. A reload finds them while the server runs."""
    return {}


def _leave(work: Workspace, kept: SavedWorkspace | None) -> None:
    desk = _desk()
    desk.pop(work.token, None)
    desk[work.token] = (work, kept)
    for token in list(desk)[:-_MAX_UNSAVED_WORKSPACES]:
        desk.pop(token, None)


def _clear_desk() -> None:
    """Try again to save the workspaces that the store could not save before."""
    for token, (work, kept) in list(_desk().items()):
        try:
            if kept is None:
                find_store().workspaces.create(workspace_file(work), token)
            else:
                find_store().workspaces.save(token, kept.revision, workspace_file(work))
        except StoreError:
            return
        _desk().pop(token, None)


_HERE = threading.local()


def session() -> Session:
    """Return the state of this browser tab.

    It is looked up once per run, and a run is a thread. At every access to Streamlit's session state, the browser's
    next message may abort the run, and a change must be made completely or not at all.
    """
    if not hasattr(_HERE, "session"):
        _HERE.session = st.session_state.setdefault("tessel", Session())
    found: Session = _HERE.session
    return found


def unbroken(callback: Callable[P, None]) -> Callable[P, None]:
    """Return a callback that starts again if the browser's next message aborts it.

    Streamlit answers that message, but treats the callback as done. Use this for callbacks that read session and
    widgets before they change anything, and that do not request a rerun themselves.
    """

    @wraps(callback)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        broken: RerunException | None = None
        while True:
            try:
                callback(*args, **kwargs)
            except RerunException as message:
                broken = message
                continue
            break
        if broken is not None:
            raise broken

    return run


def workspace() -> Workspace:
    """Return the open workspace. If there is none, open the first sample."""
    if session().work is None:
        session().open_sample(FIRST_SAMPLE)
    work = session().work
    assert work is not None
    return work
