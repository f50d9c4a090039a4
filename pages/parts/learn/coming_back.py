"""Return to the course. A cookie remembers the workspace, so that the same browser needs no link to it."""

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
    """Return the token of the workspace in which this browser last played. Empty if the browser has no cookie."""
    return str(st.context.cookies.get(_COOKIE, ""))


def come_back() -> None:
    """Open the remembered workspace in a tab that has none yet."""
    token = remembered()
    if token and session().work is None:
        session().open_kept(token)


def remember() -> None:
    """Store the token of this workspace in a cookie, once a level was played in it."""
    kept = session().kept
    if kept is not None and _begun():
        with unseen("course"):
            _REMEMBER(key="course", data={"token": kept.token})


def offer_to_go_on() -> None:
    """Show a button that opens the remembered workspace, if no level was played in this one."""
    token = remembered()
    if not token or token == workspace().token or _begun():
        return
    if button("Continue where you left off", icon=":material/history:", type="tertiary", width="stretch"):
        if not session().open_kept(token):
            session().message = session().message or "That workspace no longer exists."
        st.rerun()


def _begun() -> bool:
    return any(each.level != OWN for each in workspace().played)
