"""The state of one browser tab: one typed object in the session, whose every change goes to the store."""

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
_DESK_HOLDS = 200


@dataclass
class Session:
    """All that the app remembers for one browser tab."""

    work: Workspace | None = None
    restored: bool = False
    """Whether the address has been followed, which happens once."""
    written: Mapping[str, str] = field(default_factory=dict)
    """The address that was written last."""
    kept: SavedWorkspace | None = None
    """The stored record; None while it is a sample as it came, which needs no keeping."""
    unsaved: bool = False
    """Whether the store could not take the latest change."""
    generation: int = 0
    """Part of every widget's key: a new one makes the widgets begin again from the workspace."""
    editor_base: PlanTables | None = None
    """The first rows of the plan's tables; Streamlit keeps edits as differences to them."""
    file_complaint: str = ""
    """One sentence about a file that could not be opened."""
    message: str = ""
    """One sentence at the top of every page until it is dismissed or something changes."""
    other: SavedWorkspace | None = None
    """After a conflict, what the other tab has."""
    wanted: str = ""
    """The token of the workspace to open at the end of this run, when every edit that came with it is kept."""
    name_complaint: str = ""
    deleting: bool = False
    """Whether the question is open if the workspace should be deleted."""
    trouble_seen: str = ""
    view: str = ""
    """The view that the schedule page shows; empty until it has been there."""
    turned: int = 0
    """How many addresses of pages were completed."""
    linked: bool = False
    """Whether this tab has just followed a link to a schedule."""
    next_view: str = ""
    """The view that the schedule page shows in its next run, whatever its switch said."""
    bases: dict[str, object] = field(default_factory=dict)
    """The first content of each table, by its key; Streamlit keeps edits as differences to it."""
    states: dict[type[Any], Any] = field(default_factory=dict)
    """The states of pages and drawings, by class."""
    states_of: str = ""
    """The token of the workspace that they are about."""
    page: str = ""
    """The page that this tab is on."""
    bound_for: str = ""
    """The page that it was sent to and has not reached yet."""
    arriving: bool = False
    """Whether the browser may still ask for parts of the page before."""
    pressed: Counter[str] = field(default_factory=Counter)
    """Presses of buttons, by the button's key or label, that no run has come by yet."""
    again: bool = False
    """Whether the page must be drawn again, because the workspace became another one or there is a message."""

    def of(self, kind: type[State]) -> State:
        """The state of a page in this tab, made when it is first needed.

        One that is about the workspace, as its attribute `of_workspace` says, begins again with every other one, and
        with every step of undo unless it has an attribute `through_undo`.
        """
        found: State = self.states.setdefault(kind, kind())
        return found

    def key(self, name: str) -> str:
        """The key of a widget that shows a part of the workspace."""
        return f"{name}-{self.work.token if self.work else ''}-{self.generation}"

    def change(self, work: Workspace) -> None:
        """Make `work` the present state, for this tab and for the store."""
        before, self.work = self.work, work
        if before is None or work == before:
            return
        step = work.differs_in_more_than_answers(before)
        if step:
            self.message = ""
        if step or work.ran is not before.ran or self.kept is not None or self.unsaved:
            self._save(before, step)

    def change_placing(self, placing: Placing) -> None:
        """Make `placing` the workspace's, and have every widget show it."""
        self.change(replace(workspace(), placing=placing))
        self.begin_again()

    def _save(self, before: Workspace | None, step: bool = True) -> None:
        """Give the store the present state; where nothing is kept yet, what was `before` as well, for undo."""
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
            "" if outcome.other else "Another tab has deleted this workspace; what this tab has is kept anew."
        )
        self.begin_again()

    def turned_to(self, page: str) -> None:
        """Forget presses of buttons of another page."""
        if page != self.page:
            self.page, self.arriving = page, True
            self.pressed.clear()

    def take_press(self, name: str) -> bool:
        """Whether the button of this name was pressed and nothing has answered that; from now on it is answered."""
        there = self.pressed[name] > 0
        self.pressed[name] -= there
        return there

    def begin_again(self) -> None:
        """Have every widget show the workspace as it is now."""
        self.generation += 1
        self.editor_base = None
        self.bases.clear()

    def _take(self, work: Workspace, kept: SavedWorkspace | None) -> None:
        """Put a workspace on the desk, in place of what was there."""
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
        """Open a plan; one that is no sample is kept at once, since nothing else brings it back."""
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
        """Open a workspace that is not kept here yet, under the nearest name that is free."""
        self._take(work, None)
        self._save(None)

    def open_graph_sample(self, name: str) -> None:
        self.open_graph(GraphFile.of(load_graph(name)), f"sample {name}", name, sample=name)

    def open_graph(
        self, file: GraphFile, source: str, name: str, sample: str = "", sizes: Mapping[str, int] | None = None
    ) -> None:
        """Open an operator graph: the workspace's first one joins it, another one begins a workspace of its own."""
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
        """Go on with a copy; the original stays as it is."""
        assert self.work is not None
        self.open_copy(replace(self.work, token=new_token()))

    def open_kept(self, token: str) -> bool:
        """Open the workspace of this token; False where it is unknown or, as `message` says then, cannot be read."""
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
        """One step in the history, unless another tab has gone elsewhere: then that is shown instead."""
        self._follow()
        if self.kept is None or self.again:
            return
        try:
            move(self.kept.token, self.kept.revision)
        except StoreError:
            return  # the store says so itself, at the top of the page
        if not self.open_kept(self.kept.token):
            self.message = self.message or "Another tab has deleted this workspace; it is kept anew when you change it."

    def rename(self, name: str) -> None:
        """Call the workspace something else, and keep it if it was not kept yet."""
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
        """Forget the workspace for good."""
        if self.work is not None and self.kept is not None:
            find_store().workspaces.delete(self.kept.token)
            _desk().pop(self.work.token, None)
        self.work = self.kept = self.other = None
        self.unsaved = self.deleting = False
        self.begin_again()

    def settle(self) -> bool:
        """At the end of a run: keep what could not be kept before, and follow other tabs.

        True when the page must be drawn again.
        """
        self.pressed.clear()  # of buttons that are no longer there
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
        """Take over what another tab has made of the workspace."""
        if self.kept is None or self.unsaved:
            return
        try:
            now = find_store().workspaces.find(self.kept.token)
        except StoreError:
            return
        if now is None or now == self.kept:
            return
        if self.open_kept(self.kept.token):
            self.message, self.again = "Another tab has changed this workspace: this is how it is now.", True


@lru_cache(maxsize=1)
def _desk() -> dict[str, tuple[Workspace, SavedWorkspace | None]]:
    """Workspaces that the store could not take, by token, so that a reload finds them while the server runs."""
    return {}


def _leave(work: Workspace, kept: SavedWorkspace | None) -> None:
    desk = _desk()
    desk.pop(work.token, None)
    desk[work.token] = (work, kept)
    for token in list(desk)[:-_DESK_HOLDS]:
        desk.pop(token, None)


def _clear_desk() -> None:
    """Keep at last what other tabs, or this one before it opened something else, could not keep."""
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
    """The one object in Streamlit's session state.

    A run of a page is a thread, and looks it up once: wherever it looks into Streamlit's state, the browser's next
    message may break it off, and a change must be made whole or not at all.
    """
    if not hasattr(_HERE, "session"):
        _HERE.session = st.session_state.setdefault("tessel", Session())
    found: Session = _HERE.session
    return found


def unbroken(callback: Callable[P, None]) -> Callable[P, None]:
    """As `callback`, begun again where the browser's next message broke it off at its first look at session or widget.

    Streamlit answers that message, but takes the callback for done.  For callbacks that look before they change
    anything, and ask for no run themselves.
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
    """The open workspace; the first sample where there is none."""
    if session().work is None:
        session().open_sample(FIRST_SAMPLE)
    work = session().work
    assert work is not None
    return work
