"""Show a schedule: verdict, numbers, pictures, and the export menu."""

from __future__ import annotations

from functools import lru_cache
from io import StringIO
from typing import Any

import pandas as pd
import streamlit as st

from pages.parts.schedule.by_hand import by_hand_line, changes_by_hand, look_by_hand, switch_by_hand, whole_if_switched
from pages.parts.schedule.price import prices
from pages.parts.schedule.search_history import search_history
from pages.shared.address import keep_address
from pages.shared.contents import go_to
from pages.shared.program_state import SCHEDULE, ProgramState
from pages.shared.session import session, unbroken, workspace
from pages.shared.time_window import time_window
from pages.shared.timeline.component import timeline
from pages.shared.timeline.state import DRAWINGS, PICTURE, TABLE, TimelineState
from pages.shared.to_learn import offers_slide, offers_to_play, play_open_plan
from pages.shared.widgets import MODE_BAR, button, download, file_name, literal, metrics, picture, switch, verdict
from tessel_core.charts.device_bars import cause_chart, idle_chart, savings_chart
from tessel_core.charts.gantt import EVERYTHING, SHARES_CAPTION, Detail, TimeAxis, detail_of, gantt
from tessel_core.charts.timeline import Look
from tessel_core.exports import EXPORTS, export_schedule, schedule_csv
from tessel_core.formats import plan_text
from tessel_core.inspection import IdleSplit, idle_causes, steadiest, steady_idle_causes
from tessel_core.model import MAKESPAN, PERIOD, MicroBatchPlan, Schedule, ScheduleReport, Status
from tessel_core.model.receives import Receives
from tessel_core.scheduling import title_of
from tessel_core.scheduling.finish import BY_HAND
from tessel_core.workbench.as_written import showing
from tessel_core.workbench.messages.as_written import READINGS
from tessel_core.workbench.messages.idle import BY_CAUSE, meanings
from tessel_core.workbench.messages.schedule import key_numbers, limiting_devices
from tessel_core.workbench.messages.schedule import verdict as verdict_text
from tessel_core.workbench.messages.timeline import SAVINGS, savings

_EXPORTS_WIDTH = 260
_MAX_ROWS, _TABLE_HEIGHT = 20_000, 430
_QUIET: dict[str, Any] = {"icon": None, "type": "tertiary"}
_gantt = lru_cache(maxsize=8)(gantt)


def show_answer(report: ScheduleReport, plan: MicroBatchPlan, stale: str) -> None:
    """Show everything about a report, most important first. `stale` is a warning that it no longer matches the form."""
    proved, found = report.status is Status.PROVED_OPTIMAL, report.status is Status.FEASIBLE
    with st.container():  # a container, so that these messages do not change the timeline's position, which resets it
        if stale:
            st.warning(stale, icon=":material/history:")
        made = "Changed by hand. " if report.solver == BY_HAND else ""
        verdict(f"{made}{verdict_text(report, plan)}", proved=proved, found=found)
        hang = workspace().hang_of(report)
        if hang is not None:
            st.error(literal(f"{hang.sentence}."), icon=":material/block:")
    schedule = report.drawable
    if schedule is None:
        return
    metrics(key_numbers(report))
    if changes_by_hand():  # without the charts below, to redraw quickly after each drop
        _timeline(schedule, report, plan)
        by_hand_line()
        return
    st.fragment(_timeline)(schedule, report, plan)
    with st.container(horizontal=True, vertical_alignment="center"):
        if not by_hand_line():
            _objective_switch(report)
            _receives_switch(report)
        _leads_on(report)
    left, right = st.columns(2, gap="medium")
    with left:
        _idle_parts(report)
        search_history(report, plan)
    with right:
        _idle_causes(report, schedule)
        _faster_blocks(schedule)
    prices(report, plan)


def _leads_on(report: ScheduleReport) -> None:
    if limiting_devices(report) and button("Change the placement", icon=":material/arrow_forward:", type="tertiary"):
        go_to("placement")
    if report.drawable is not None and _is_placed() and button("Program", icon=":material/code:", help=_PROGRAM):
        session().of(ProgramState).show(SCHEDULE)
        go_to("program")
    if offers_to_play(workspace().plan, workspace().micro_batches):
        play_open_plan()
    if report.solution is not None:
        title = f"{title_of(report.solver)}, {workspace().plan.name}"
        offers_slide(title, [(title, report.solution)])


def _is_placed() -> bool:
    """Return whether the plan was made from the open placement of a network."""
    from tessel_core.workbench.placed_step import shows_placement  # imported here, because few visits need it

    return "placement of" in workspace().source and shows_placement(workspace().placing, workspace().source)


_PROGRAM = "Show all operators of this schedule, simulated on the mesh."


def _objective_switch(report: ScheduleReport) -> None:
    """Show the switch between the shortest and the steady schedule. One search finds both, so none is repeated."""
    if report.steady_costs is None:
        return
    # The key names the objective, so that a change in the form makes a new switch with the new value.
    key = session().key(f"shown-{report.objective_name}")
    about = "Shortest: the least makespan found. Steady: the least time per micro-batch found, with a repeating part."
    look = {"format_func": _SHOWN.__getitem__, "help": about, "on_change": _show, "args": (key,)}
    switch("Schedule", list(_SHOWN), key, report.objective_name, **look)


def _receives_switch(report: ScheduleReport) -> None:
    """Show the switch between the two ways in which receives of an opened PyTorch CSV can wait."""
    work = workspace()
    shown = work.written_as(report.solution) if report is work.opened else None
    if shown is None or len(work.written) < 2:
        return
    key = session().key(f"receives-{shown.receives}")
    names = {each.receives: f"Receives {READINGS[Receives(each.receives)]}" for each in work.written}
    look = {"format_func": names.__getitem__, "help": _RECEIVES, "on_change": _receive, "args": (key,)}
    switch("Receives wait", list(names), key, shown.receives, **look)


_RECEIVES = (
    "A receive waits on a separate stream, as PyTorch intends, or blocks all later work of its rank. Click idle time "
    "to see which receive causes it. To see both on one axis, use Compare."
)


@unbroken
def _receive(key: str) -> None:
    work = workspace()
    session().change(showing(work, next(each for each in work.written if each.receives == st.session_state[key])))
    session().begin_again()


@unbroken
def _show(key: str) -> None:
    session().change(workspace().about(st.session_state[key]))
    session().begin_again()


_SHOWN = {MAKESPAN: "Shortest", PERIOD: "Steady"}


def _timeline(schedule: Schedule, report: ScheduleReport, plan: MicroBatchPlan) -> None:
    """Show the timeline, the table, or the picture, which also replaces a timeline that the browser cannot draw."""
    whole_if_switched()
    state, key = session().of(TimelineState), session().key("drawing")
    before, state.drawing = state.drawing, st.session_state.get(key) or state.drawing
    with st.container(gap=None):
        if state.drawing == TABLE:
            _table(schedule)
        else:
            look, change = look_by_hand(report)
            hang = workspace().hang_of(report)
            if look is None and hang is not None:
                look = Look(circle=tuple((pin.block, pin.micro_batch) for pin in hang.runs))
            if state.drawing == PICTURE or not timeline((("", schedule),), "timeline", look=look, change=change):
                _picture(schedule)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        _export_menu(report, plan)
        switch_by_hand(report)
        switch("Drawing", DRAWINGS, key, state.drawing, help=_DRAWINGS)
    if state.drawing != before:
        keep_address()


_DRAWINGS = (
    "Timeline: click and zoom with mouse and keys. Picture: a figure to download with its camera button. Table: every "
    "run of every device."
)


def _picture(schedule: Schedule) -> None:
    axis = TimeAxis.of([schedule])
    slider = detail_of([schedule], axis.windows[EVERYTHING]) is Detail.SHARES
    window = time_window(axis, "answer", slider=slider)
    st.plotly_chart(_gantt(schedule, window=window), key="gantt", config=MODE_BAR)
    if detail_of([schedule], window) is Detail.SHARES:
        st.caption(f"{SHARES_CAPTION} Choose a shorter window to see blocks.")


def _table(schedule: Schedule) -> None:
    """Show the runs as a table, for screen readers and for sorting."""
    runs = _runs(schedule)
    st.dataframe(runs.head(_MAX_ROWS), hide_index=True, height=_TABLE_HEIGHT)
    about_them = f"Times are in {schedule.plan.time_unit}, memory in {schedule.plan.memory_unit}."
    if len(runs) > _MAX_ROWS:
        about_them += f" These are the first {_MAX_ROWS:,} of {len(runs):,} rows. Export has all of them as CSV."
    st.caption(literal(about_them))


@lru_cache(maxsize=2)
def _runs(schedule: Schedule) -> pd.DataFrame:
    return pd.read_csv(StringIO(schedule_csv(schedule)))


def _idle_parts(report: ScheduleReport) -> None:
    """Show idle time by remedy, for the whole schedule and for its steady state."""
    found = zip(_SPANS, IdleSplit.of_report(report), strict=True)
    st.markdown("**Idle time by remedy**", help=meanings())
    picture(idle_chart([(name, split) for name, split in found if split is not None]), "idle")


def _idle_causes(report: ScheduleReport, schedule: Schedule) -> None:
    """Show idle time by cause for each device, for the whole schedule or for its steady state."""
    st.markdown("**Idle time by cause, per device**", help=BY_CAUSE)
    steady = steadiest(report)
    span = _SPANS[0] if steady is None else switch("Of", list(_SPANS), session().key("idle-of"), _SPANS[0])
    causes = idle_causes(schedule) if steady is None or span == _SPANS[0] else steady_idle_causes(steady)
    picture(cause_chart(causes, schedule.plan), "causes")


_SPANS = ("whole schedule", "steady state")


def _faster_blocks(schedule: Schedule) -> None:
    """Show how much the makespan falls if a block is faster. Show nothing if no block has an effect."""
    saved = savings(schedule)
    if any(saved):
        st.markdown("**If a block were 10% faster**", help=SAVINGS)
        picture(savings_chart(schedule, saved), "faster")


def _export_menu(report: ScheduleReport, plan: MicroBatchPlan) -> None:
    """Show the export menu. A schedule that does not fit in memory cannot be exported, only its plan."""
    with st.popover("Export", icon=":material/download:"), st.container(width=_EXPORTS_WIDTH, gap="xxsmall"):
        name, about = f"{file_name(plan.name)}.plan.json", "The plan as a file, to edit or to open here again."
        download("Plan JSON", lambda: plan_text(plan).encode(), name, help=about, **_QUIET)
        if report.solution is not None:
            which = ".steady" if report.objective_name == PERIOD else ""
            _schedule_files(report.solution, report, file_name(f"{plan.name}.{report.solver}{which}"))


def _schedule_files(schedule: Schedule, report: ScheduleReport, stem: str) -> None:
    """Show a button for every possible export, and the reasons why others are not possible."""
    reasons: dict[str, list[str]] = {}
    for export in EXPORTS.values():
        objection = export.objection(schedule)
        if objection:
            drawn = (
                "; use the image buttons above the timeline instead" if export.media_type.startswith("image/") else ""
            )
            reasons.setdefault(f"{objection}{drawn}", []).append(export.title)
            continue
        make = lambda name=export.name: export_schedule(name, schedule, report)  # noqa: E731
        download(export.title, make, f"{stem}{export.suffix}", export.media_type, help=export.about, **_QUIET)
    for objection, titles in reasons.items():
        st.caption(literal(f"{', '.join(titles)}: {objection}."))
