"""The program that the Program page looks at: a strategy's, a schedule's, or one from a file."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from pages.shared.program_state import FILE, SCHEDULE, SOURCES, STRATEGY, Looked, ProgramState, Uploaded
from pages.shared.run_panel import latest_report
from pages.shared.session import session, workspace
from pages.shared.strategy_moves import looked_before
from pages.shared.widgets import choose, literal, room_for, switch
from tessel_core.costs.meshes import MESHES, find_mesh
from tessel_core.errors import InputError
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Program
from tessel_core.model import Schedule
from tessel_core.networks.programs.plan_program import schedule_program
from tessel_core.networks.programs.program_file import is_onnx, open_sizes, read_program_file
from tessel_core.simulation import simulate
from tessel_core.units import TICKS_PER_SECOND, show_time

MOST_OPERATIONS = 60_000
"""The limit of a program that is simulated and drawn while one waits."""
_MOST_DEVICES = 256
_MOST_MB = 512
"""For ONNX models, which bring their weights."""
_LONGEST_TEXT = 16_000_000
"""Bytes of a program's text."""


def chosen_program() -> Looked | None:
    """The program that the row at the top chooses; None, after saying why, where there is none.

    Raises InputError for a program that cannot be simulated.
    """
    tab, report = session().of(ProgramState), latest_report(workspace())
    schedule = None if report is None else report.drawable
    with room_for("heading", "program", horizontal=True, vertical_alignment="center"):
        first = STRATEGY if tab.strategy or workspace().strategies else SCHEDULE if schedule else FILE
        source = tab.source = switch("Program of", SOURCES, f"program-source-{tab.switched}", tab.source or first)
        room = st.container(width="stretch")
    if source == FILE:
        found = _from_file()
    elif source == STRATEGY:
        found = tab.strategy or looked_before()
    else:
        found = None if schedule is None else _lowered(schedule)
    if found is None:
        room.caption(_NOTHING[source])
        return None
    _check_size(found.trace.program)
    unit = ", a step counts as a second" if source == SCHEDULE and found.in_steps else ""
    facts = f"{show_time(found.trace.latency, 's')}, {len(found.trace.program.ops):,} operations{unit}"
    room.markdown(f"**{literal(found.title)}** &ensp; :gray[{literal(facts)}]")
    for warning in found.trace.warnings:
        st.caption(literal(warning))
    return found


_NOTHING = {
    STRATEGY: "Choose a configuration on Strategies; its program is shown here.",
    SCHEDULE: "Search a schedule on Schedule; its program is shown here.",
    FILE: "As the button Program of Strategies writes it, an operation a line; or an ONNX model.",
}


@lru_cache(maxsize=4)
def _lowered(schedule: Schedule) -> Looked:
    plan = schedule.plan
    if len(schedule.start) > MOST_OPERATIONS:
        raise InputError(f"plan {plan.name}", f"its schedule has {len(schedule.start):,} runs, {_TOO_MANY}")
    program = schedule_program(schedule)
    _check_size(program)
    title = f"{plan.name}, {schedule.micro_batches} micro-batches"
    return Looked(title, simulate(program), in_steps=plan.time_unit not in TICKS_PER_SECOND)


_TOO_MANY = f"more than the {MOST_OPERATIONS:,} that are shown here"


def _check_size(program: Program) -> None:
    if len(program.ops) > MOST_OPERATIONS:
        raise InputError(f"program {program.name}", f"has {len(program.ops):,} operations, {_TOO_MANY}")
    if max(program.devices, default=0) > _MOST_DEVICES:
        why = f"names device {max(program.devices)}, and {_MOST_DEVICES} are the most that are shown here"
        raise InputError(f"program {program.name}", why)


def _from_file() -> Looked | None:
    tab = session().of(ProgramState)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        file = st.file_uploader(
            "A program's text, or an ONNX model",
            type=["txt", "onnx"],
            max_upload_size=_MOST_MB,
            key="program-file",
            on_change=setattr,
            args=(tab, "complaint", ""),
            width=420,
        )
        meshes = {name: preset.title for name, preset in MESHES.items()}
        tab.mesh = choose("Mesh", meshes, tab.mesh, key="program-mesh", width=320)
        sizes = st.text_input(
            "Open sizes", key="program-sizes", placeholder="batch=8, sequence=128", width=260, help=_OPEN_SIZES
        )
    if file is not None and (file.file_id, sizes) != tab.taken:
        tab.taken = file.file_id, sizes
        tab.complaint = _read(file.getvalue(), file.name, sizes)
    if tab.complaint:
        st.error(literal(tab.complaint), icon=":material/error:")
    if tab.uploaded is None:
        return None
    for note in tab.uploaded.notes:
        st.caption(literal(f"{note}."))
    return _simulated(tab.uploaded, tab.mesh)


_OPEN_SIZES = "What sizes are that an ONNX model leaves open; else they are taken as 1."


def _read(data: bytes, name: str, sizes: str) -> str:
    """Why the file is no program, in one sentence; empty where it is one, which is then looked at."""
    try:
        if len(data) > _LONGEST_TEXT and not is_onnx(data, name):
            why = f"has {len(data):,} bytes, more than the {_LONGEST_TEXT:,} that a text may have here"
            raise InputError(name, why)
        given = filter(None, (each.strip() for each in sizes.split(",")))
        found = read_program_file(data, name, open_sizes(given, "Open sizes"))
        if not found.program.devices:
            raise InputError(name, "has no values, so there is nothing to see")
        _check_size(found.program)
    except InputError as error:
        return f"{error}."
    session().of(ProgramState).upload(Uploaded(name, found.program, found.warnings))
    return ""


@lru_cache(maxsize=4)
def _simulated(uploaded: Uploaded, mesh: str) -> Looked:
    program = uploaded.program
    if program.ops and all(find_operator(op.kind).stated for op in program.ops):
        return Looked(uploaded.name, simulate(program))
    devices = find_mesh(mesh)
    return Looked(uploaded.name, simulate(program, devices), devices)
