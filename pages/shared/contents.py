"""The pages of the app, in the order of the bar at the top: a new page is a script, and a line here."""

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
    """One page: its script, which is its place in the address as well, and how the bar shows it."""

    name: str
    title: str
    icon: str
    state: type[InAddress] | None = None
    """The class of its state, where a part of that stands in the address."""
    slides: str = ""
    """The name of the deck that explains what it does, where one does."""

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
    """Take note that the tab is on this page; or send it on, where a message of the browser kept it from leaving."""
    tab = session()
    bound_for, tab.bound_for = tab.bound_for, ""
    if bound_for and bound_for != name:
        go_to(bound_for)
    tab.turned_to(name)


def arrived() -> bool:
    """At the end of a run: whether the browser has the page.

    False where a request for a part of the page before is waiting.  Streamlit would answer it for that page, which the
    browser then shows, and it is empty; another run of the whole page takes the request's place.
    """
    tab, context = session(), get_script_run_ctx()
    requests = None if context is None else context.script_requests
    if tab.arriving and requests is not None:
        waiting = requests._state is ScriptRequestType.RERUN
        tab.arriving = waiting and bool(requests._rerun_data.fragment_id_queue)
    return not tab.arriving


def go_to(name: str) -> NoReturn:
    """Leave for another page; nothing after this runs."""
    session().bound_for = name
    st.switch_page(next(page.path for page in PAGES if page.name == name))
