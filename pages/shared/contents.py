"""The pages of the app, in the order of the bar at the top. A new page needs a script and an entry in `PAGES`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.scriptrunner_utils.script_requests import ScriptRequestType

from pages.parts.compare.state import CompareState
from pages.parts.schedule.hand_mode import HandMode
from pages.shared.in_address import InAddress
from pages.shared.learn_state import LearnState
from pages.shared.program_state import ProgramState
from pages.shared.session import session
from pages.shared.strategy_state import StrategyState


@dataclass(frozen=True, slots=True)
class Page:
    """One page. Its name is the name of its script and its path in the address."""

    name: str
    title: str
    icon: str
    state: type[InAddress] | None = None
    """Class of its state, if the address keeps a part of that."""
    slides: str = ""
    """Name of the deck that explains the page. Empty if there is none."""

    @property
    def path(self) -> str:
        return f"pages/{self.name}.py"

    @property
    def for_streamlit(self) -> Any:
        """The page as `st.navigation` takes it."""
        return st.Page(self.path, title=self.title, icon=f":material/{self.icon}:", default=self is PAGES[0])


PAGES = (
    Page("start", "Start", "flag"),
    Page("recommend", "Recommend", "rocket_launch"),
    Page("graph", "Operator graph", "account_tree"),
    Page("mesh", "Device mesh", "hub"),
    Page("placement", "Placement", "grid_view", slides="ideals"),
    Page("schedule", "Schedule", "view_timeline", HandMode, slides="tessel"),
    Page("compare", "Compare", "compare_arrows", CompareState, slides="zero-bubble"),
    Page("strategies", "Strategies", "scatter_plot", StrategyState, slides="strategies"),
    Page("program", "Program", "code", ProgramState, slides="programs"),
    Page("run", "Run", "play_circle"),
    Page("learn", "Learn", "school", LearnState),
)


def arrive(name: str) -> None:
    """Record that the tab is on this page. If another message kept the tab from leaving for a page, go there again."""
    tab = session()
    bound_for, tab.bound_for = tab.bound_for, ""
    if bound_for and bound_for != name:
        go_to(bound_for)
    tab.turned_to(name)


def arrived() -> bool:
    """Return, at the end of a run, whether the browser shows this page.

    It is False while a request for a fragment of the previous page waits. Streamlit would answer it for that page, and
    the browser would show an empty page. Another run of the whole page replaces the request.
    """
    tab, context = session(), get_script_run_ctx()
    requests = None if context is None else context.script_requests
    if tab.arriving and requests is not None:
        waiting = requests._state is ScriptRequestType.RERUN
        tab.arriving = waiting and bool(requests._rerun_data.fragment_id_queue)
    return not tab.arriving


def go_to(name: str) -> NoReturn:
    """Open another page. Code after this call does not run."""
    session().bound_for = name
    st.switch_page(next(page.path for page in PAGES if page.name == name))
