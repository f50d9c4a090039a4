"""Undo, the menu of saved workspaces, and notices about saving."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NoReturn

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.shared.contents import PAGES, go_to
from pages.shared.learn_state import DECK, WORDS, LearnState
from pages.shared.run_panel import latest_report
from pages.shared.session import session, unbroken, workspace
from pages.shared.widgets import button, complain, download, file_name, literal, text_beside, unseen
from tessel_core.editing.asked import number_of
from tessel_core.formats import workspace_text
from tessel_core.hosting import hosted
from tessel_core.workbench.store import SavedWorkspace, StoreError, find_store, new_token
from tessel_core.workbench.workspace import Workspace, workspace_file


def notices() -> None:
    """Show messages at the top of every page until the user dismisses them."""
    tab = session()
    if tab.message and _dismissed("message", tab.message, ":material/info:"):
        tab.message = ""
        st.rerun()
    if tab.other is not None:
        _conflict(tab.other)
    trouble = _trouble()
    if trouble and trouble != tab.trouble_seen and _dismissed("trouble", trouble, ":material/cloud_off:"):
        tab.trouble_seen = trouble
        st.rerun()


def _conflict(other: SavedWorkspace) -> None:
    text = (
        f"Another tab has also changed “{other.name}”. Nothing is lost: the work of this tab is saved as "
        f"“{workspace().name}”."
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.warning(literal(text), icon=":material/call_split:", width="stretch")
        if button("Open the other version", key="open-other"):
            session().wanted = other.token
        if button("Keep working here", key="dismiss-other"):
            session().other = None
            st.rerun()


def _dismissed(key: str, text: str, icon: str) -> bool:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.warning(literal(text), icon=icon, width="stretch")
        return button("Dismiss", key=f"dismiss-{key}")


def _trouble() -> str:
    """Return the reason why changes are not saved, in one sentence. Empty if they are saved."""
    store = find_store()
    if store.refused:
        return f"Work is lost when the app stops. Export what you want to keep ({store.refused})."
    if store.trouble:
        return f"The latest changes are not saved yet. The next change tries again ({store.trouble})."
    return ""


def keeping() -> None:
    """Show undo, redo and the workspace menu in one row. Call this after all edits of the run are saved."""
    tab, kept = session(), session().kept
    room = unseen("keys")
    about = "Undo the last change of this workspace (Ctrl + Z)."
    _step("Undo", tab.undo, about, off=kept is None or not kept.can_undo)
    _step("Redo", tab.redo, "Redo the last undone change (Ctrl + Y).", off=kept is None or not kept.can_redo)
    _workspace_menu()
    _keyed_steps(room)


def _step(label: str, step: Callable[[], None], about: str, *, off: bool) -> None:
    if button(label, icon=f":material/{label.lower()}:", type="tertiary", disabled=off, help=about):
        step()
        st.rerun()


_KEYS = st.components.v2.component("tessel_keys", js=text_beside(__file__, "keys.mjs"))


@dataclass
class Presses:
    """Number of handled presses of Ctrl + Z, Ctrl + Y and Ctrl + Shift + Z in this tab, so that none is lost."""

    answered: int = 0
    of: str = field(default_factory=new_token)
    """Token of the session that counts the presses."""


def _keyed_steps(room: DeltaGenerator) -> None:
    """Undo or redo one step for each press since the last run, in their order."""
    tab, state = session(), session().of(Presses)
    with room:
        told = _KEYS(key="undo-keys", data={"of": state.of}, on_presses_change=lambda: None).get("presses") or {}
    total, last = number_of(told.get("total")), str(told.get("last") or "")
    fresh = last[len(last) - max(0, total - state.answered) :] if told.get("of") == state.of else ""
    state.answered += len(fresh)
    for press in fresh:
        step, there = (tab.redo, "can_redo") if press == "r" else (tab.undo, "can_undo")
        if tab.kept is not None and getattr(tab.kept, there):
            step()
    if fresh:
        st.rerun()


def _workspace_menu() -> None:
    """Show the menu that renames, duplicates, exports or deletes the open workspace, and opens another one."""
    with st.popover("Workspace", icon=":material/folder_open:", type="tertiary"):
        work, key = workspace(), session().key("name")
        st.text_input("Name", work.name, max_chars=200, key=key, on_change=_rename, args=(key,))
        if session().name_complaint:
            st.error(literal(session().name_complaint))
        if session().deleting:
            _really_delete(work)
        else:
            _actions(work)
        if open_another("Open another workspace …"):
            st.rerun()
        slides = next((page.slides for page in PAGES if page.name == session().page), "")
        with st.container(horizontal=True):
            if button("Words explained", icon=":material/menu_book:", type="tertiary"):
                explain(WORDS)
            if slides and button("How this page works", icon=":material/slideshow:", type="tertiary"):
                explain(f"{DECK}{slides}")


def explain(what: str, *, goes: bool = False) -> NoReturn:
    """Open the glossary or a deck on the Learn page. With `goes`, slides advance by themselves."""
    session().of(LearnState).open(what, goes=goes)
    go_to("learn")


@unbroken
def _rename(key: str) -> None:
    session().rename(st.session_state[key])


def _actions(work: Workspace) -> None:
    with st.container(horizontal=True):
        if button(
            "Duplicate", icon=":material/content_copy:", help="Continue with a copy. The original stays unchanged."
        ):
            session().duplicate()
            st.rerun()
        name = f"{file_name(work.name, 'workspace')}.workspace.json"
        download("Export", lambda: workspace_text(workspace_file(_with_answer(work))), name, help=_EXPORT)
        if button("Delete", icon=":material/delete:", disabled=session().kept is None):
            session().deleting = True
            st.rerun()


_EXPORT = "Download the workspace and its schedule as one file. Upload it on Start, here or on another machine."


def _really_delete(work: Workspace) -> None:
    st.warning(literal(f"Delete “{work.name}” and its history? This cannot be undone."))
    with st.container(horizontal=True):
        if button("Delete for good", type="primary"):
            try:
                session().delete()
            except StoreError:
                st.rerun()  # the notice at the top of the page says why
            go_to("start")
        if button("Keep it"):
            session().deleting = False
            st.rerun()


def open_another(invitation: str) -> bool:
    """Show the other saved workspaces, the latest first. Return True in the run in which one was opened.

    A hosted app lists none, because they belong to other people. A link still opens a workspace.
    """
    if hosted():
        return False
    tab = session()
    try:
        others = {kept.token: kept for kept in find_store().workspaces.all()}
    except StoreError as error:
        complain(error)
        return False
    if tab.kept is not None:
        others.pop(tab.kept.token, None)
    token = None
    if others:
        titles = {each: f"{kept.name} · {_when(kept)}" for each, kept in others.items()}
        look: dict[str, Any] = {"placeholder": invitation, "label_visibility": "collapsed"}
        token = st.selectbox("Workspaces", list(titles), None, titles.__getitem__, key=session().key("another"), **look)
    if token is None or tab.open_kept(token):
        return token is not None
    tab.message = tab.message or "That workspace no longer exists."
    tab.begin_again()
    tab.again = True
    return False


def _when(kept: SavedWorkspace) -> str:
    return datetime.fromtimestamp(kept.saved_at).strftime("%d %b %H:%M")


def _with_answer(work: Workspace) -> Workspace:
    """Return the workspace with the schedule that the page shows, for its file."""
    report = latest_report(work)
    return work if report is None or report.solution is None else replace(work, opened=report)
