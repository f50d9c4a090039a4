"""Who comes back to the course in the same browser goes on where they were, without the link to their workspace."""

from __future__ import annotations

import streamlit as st

from pages.shared.session import session, workspace
from pages.shared.widgets import button, unseen
from tessel_core.workbench.workspace import OWN

_COOKIE = "tessel_course"
_REMEMBER = st.components.v2.component(
    "tessel_course",
    js=f"""export default ({{ data }}) => {{
  document.cookie = `{_COOKIE}=${{data.token}}; path=/; max-age=31536000; SameSite=Strict`;
}};""",
)


def remembered() -> str:
    """The workspace in which this browser was last in the course; empty where none is known."""
    return str(st.context.cookies.get(_COOKIE, ""))


def come_back() -> None:
    """Open that workspace in a tab that has none yet."""
    token = remembered()
    if token and session().work is None:
        session().open_kept(token)


def remember() -> None:
    """Have the browser know this workspace, once something was played in it."""
    kept = session().kept
    if kept is not None and _begun():
        with unseen("course"):
            _REMEMBER(key="course", data={"token": kept.token})


def offer_to_go_on() -> None:
    """The way to what was played in another workspace, where nothing was in this one."""
    token = remembered()
    if not token or token == workspace().token or _begun():
        return
    if button("Go on where you were", icon=":material/history:", type="tertiary", width="stretch"):
        if not session().open_kept(token):
            session().message = session().message or "That workspace is not kept any more."
        st.rerun()


def _begun() -> bool:
    return any(each.level != OWN for each in workspace().played)
