"""Show the gain from more memory, faster links or a moved layer. A search of each changed plan finds its gain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import pandas as pd
import streamlit as st

from pages.shared.run_panel import answer, report_of, search_in_turn, unanswered
from pages.shared.session import session, workspace
from pages.shared.widgets import button
from tessel_core.editing.price_tags import price_tags
from tessel_core.model import MicroBatchPlan, ScheduleReport
from tessel_core.scheduling import Question
from tessel_core.workbench.messages.price_tags import ABOUT, price_rows

_tags = lru_cache(maxsize=8)(price_tags)


@dataclass
class PriceState:
    """Question for which the gains are shown."""

    asked: Question | None = None
    of_workspace: ClassVar[bool] = True


def prices(report: ScheduleReport, plan: MicroBatchPlan) -> None:
    """Show a button that solves the changed plans, then one row per change. Show nothing for an outdated answer."""
    question, state = workspace().question, session().of(PriceState)
    tags = _tags(plan)
    if report.solution is None or question.plan != plan or not tags:
        return
    st.markdown("**Gain from changes**", help=ABOUT)
    if state.asked != question:
        changes = "one change" if len(tags) == 1 else f"{len(tags)} changes"
        if button(f"Solve {changes}", icon=":material/sell:", key=session().key("prices")):
            state.asked = question
            st.rerun()
        return
    questions = {name: replace(question, plan=each) for name, each in tags.items()}
    names = {each: name for name, each in questions.items()}
    search_in_turn(unanswered(questions.values()), names.__getitem__)
    runs = {name: answer(each) for name, each in questions.items()}
    found = {name: None if run is None else report_of(questions[name], run) for name, run in runs.items()}
    st.dataframe(pd.DataFrame(price_rows(report, found)), hide_index=True, width="stretch")
