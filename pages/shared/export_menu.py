"""The menu of files to take away; each is made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from pages.shared.markdown import file_name, literal
from tessel_core.exports import EXPORTS, export_schedule
from tessel_core.formats import plan_text
from tessel_core.model import PERIOD, MicroBatchPlan, Schedule, ScheduleReport

_WIDTH = 260


def export_menu(report: ScheduleReport, plan: MicroBatchPlan) -> None:
    """The plan, and the schedule as everything that it can be; one that does not fit is not handed out."""
    with st.popover("Export", icon=":material/download:"), st.container(width=_WIDTH, gap="xxsmall"):
        name, make = f"{file_name(plan.name)}.plan.json", lambda: plan_text(plan).encode()
        _file("Plan JSON", make, name, "application/json", "to edit, and to open here again")
        if report.solution is not None:
            which = ".steady" if report.objective_name == PERIOD else ""
            _schedule_files(report.solution, report, file_name(f"{plan.name}.{report.solver}{which}"))


def _schedule_files(schedule: Schedule, report: ScheduleReport, stem: str) -> None:
    """A button for every export of the table that can be made, and the reasons of those that cannot."""
    reasons: dict[str, list[str]] = {}
    for export in EXPORTS.values():
        objection = export.objection(schedule)
        if objection:
            reasons.setdefault(objection, []).append(export.title)
            continue
        make = lambda name=export.name: export_schedule(name, schedule, report)  # noqa: E731
        _file(export.title, make, f"{stem}{export.suffix}", export.media_type, export.about)
    for objection, titles in reasons.items():
        st.caption(literal(f"{', '.join(titles)}: {objection}."))


def _file(title: str, make: Callable[[], bytes], name: str, media_type: str, about: str) -> None:
    st.download_button(title, make, name, media_type, help=about, on_click="ignore", type="tertiary")
