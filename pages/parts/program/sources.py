"""Source of the program on the Program page: a strategy, a schedule, or a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.shared.file_field import file_field, size_inputs
from pages.shared.keeping import keeping
from pages.shared.mesh_choice import mesh_choice
from pages.shared.program_state import FILE, SCHEDULE, SOURCES, STRATEGY, Looked, ProgramState, Uploaded
from pages.shared.run_panel import latest_report
from pages.shared.session import session, workspace
from pages.shared.strategy_moves import looked_before
from pages.shared.widgets import heading_room, literal, switch, switch_room
from tessel_core.errors import InputError
from tessel_core.formats.files import is_onnx
from tessel_core.formats.onnx import OnnxModel
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Program
from tessel_core.model import DeviceMesh, OperatorGraph, Placement, Schedule
from tessel_core.networks.programs.plan_program import schedule_program
from tessel_core.networks.programs.program_file import ProgramFile, model_program, read_program_file
from tessel_core.simulation import simulate
from tessel_core.units import TICKS_PER_SECOND, counted, show_time
from tessel_core.workbench.placed_step import placed_step, samples_of, shows_placement

MAX_OPERATIONS = 100_000
"""Largest program that the page simulates and draws."""
_MAX_DEVICES = 256
_MAX_TEXT_BYTES = 16_000_000
"""Largest text file of a program."""


def chosen_program() -> Looked | None:
    """Show the row that chooses the source. Return its program; without one, show why and return None.

    Raises InputError for a program that cannot be simulated.
    """
    tab, report = session().of(ProgramState), latest_report(workspace())
    schedule = None if report is None else report.drawable
    with heading_room("program", horizontal=True, vertical_alignment="center"):
        first = STRATEGY if tab.strategy or workspace().strategies else SCHEDULE if schedule else FILE
        with switch_room(width="content"):
            source = tab.source = switch("Program of", SOURCES, f"program-source-{tab.switched}", tab.source or first)
        room = st.container(width="stretch", horizontal=True, vertical_alignment="center")
        keeping()
    if source == FILE:
        found = _from_file()
    elif source == STRATEGY:
        found = tab.strategy or looked_before()
    else:
        found = None if schedule is None else _of_schedule(schedule, room)
    if found is None:
        room.caption(_NOTHING[source])
        return None
    _check_size(found.trace.program)
    unit = ", one step drawn as one second" if source == SCHEDULE and found.in_steps else ""
    facts = f"{show_time(found.trace.latency, 's')}, {len(found.trace.program.ops):,} operations{unit}"
    room.markdown(f"**{literal(found.title)}** &ensp; :gray[{literal(facts)}]")
    for note in (*found.notes, *found.trace.warnings):
        st.caption(literal(note))
    return found


_NOTHING = {
    STRATEGY: "Choose a configuration on Strategies to see its program here.",
    SCHEDULE: "Search a schedule on Schedule to see its program here.",
    FILE: "Upload the text of a program (the button Text on Strategies writes it) or an ONNX model.",
}


def _of_schedule(schedule: Schedule, room: DeltaGenerator) -> Looked:
    """Return the program of a schedule: by operators if it schedules the open placement, or else by blocks."""
    placing = workspace().placing
    if not shows_placement(placing, workspace().source):
        return _lowered(schedule)
    with room, switch_room(width="content"):
        shown = switch("Shown as", (_OPERATORS, _BLOCKS), session().key("program-of-placement"))
    if shown == _BLOCKS:
        return _lowered(schedule)
    try:
        graph, placement = placing.graph, placing.placement
        assert graph is not None
        assert placement is not None
        return _placed(graph.graph, placement, placing.mesh.mesh, schedule)
    except InputError as error:
        st.caption(literal(f"Shown as blocks, because the operators cannot be shown: {error}."))
        return _lowered(schedule)


_OPERATORS, _BLOCKS = "Operators", "Blocks"


@lru_cache(maxsize=4)
def _placed(graph: OperatorGraph, placement: Placement, mesh: DeviceMesh, schedule: Schedule) -> Looked:
    program = placed_step(graph, placement, schedule).program
    _check_size(program)
    title = f"{schedule.plan.name} as placed, {counted(schedule.micro_batches, 'micro-batch')}"
    return Looked(title, simulate(program, mesh), mesh, samples=samples_of(graph, schedule))


@lru_cache(maxsize=4)
def _lowered(schedule: Schedule) -> Looked:
    plan = schedule.plan
    if len(schedule.start) > MAX_OPERATIONS:
        raise InputError(f"plan {plan.name}", f"its schedule has {len(schedule.start):,} runs, {_TOO_MANY}")
    program = schedule_program(schedule)
    _check_size(program)
    title = f"{plan.name}, {counted(schedule.micro_batches, 'micro-batch')}"
    return Looked(title, simulate(program), in_steps=plan.time_unit not in TICKS_PER_SECOND)


_TOO_MANY = f"more than the {MAX_OPERATIONS:,} that are shown here"


def _check_size(program: Program) -> None:
    if len(program.ops) > MAX_OPERATIONS:
        raise InputError(f"program {program.name}", f"has {len(program.ops):,} operations, {_TOO_MANY}")
    if max(program.devices, default=0) > _MAX_DEVICES:
        why = f"names device {max(program.devices)}, but this page shows at most {_MAX_DEVICES} devices"
        raise InputError(f"program {program.name}", why)


def _from_file() -> Looked | None:
    tab = session().of(ProgramState)
    left, right = st.columns(2, gap="medium")
    with left:
        _take(tab)
    with right:
        mesh = mesh_choice(width=320)
        if tab.model is not None:
            _ask_sizes(tab, tab.model)
    if tab.complaint:
        st.error(literal(tab.complaint), icon=":material/error:")
    if tab.uploaded is None:
        return None
    for note in tab.uploaded.notes:
        st.caption(literal(f"{note}."))
    return _simulated(tab.uploaded, mesh)


def _take(tab: ProgramState) -> None:
    """Show the file field, and read a new file."""

    def forget() -> None:
        tab.complaint, tab.model, tab.read = "", None, None

    try:
        found = file_field("program-file", "Program", ["txt", "onnx"], forget, wide=True)
        if found is None:
            return
        data, name = found
        if is_onnx(data, name):
            tab.model = OnnxModel.of(data, name)
        else:
            _look_at(name, lambda: _from_text(data, name))
    except InputError as error:
        tab.complaint = f"{error}."


def _ask_sizes(tab: ProgramState, model: OnnxModel) -> None:
    """Show a field for each open size of an ONNX model, and read the model with these sizes."""
    try:
        names = model.open_sizes
    except InputError as error:
        tab.complaint, tab.model = f"{error}.", None
        return
    sizes = size_inputs(names, f"program-sizes-{model.name}") if names else {}
    if tab.read != (model, sizes):
        tab.read, tab.complaint = (model, sizes), ""
        _look_at(model.name, lambda: model_program(model, sizes))
        if sizes and not tab.complaint:
            session().change(replace(workspace(), placing=workspace().placing.sized(sizes)))


def _from_text(data: bytes, name: str) -> ProgramFile:
    if len(data) > _MAX_TEXT_BYTES:
        why = f"has {len(data):,} bytes, more than the {_MAX_TEXT_BYTES:,} that this page reads"
        raise InputError(name, why)
    return read_program_file(data, name)


def _look_at(name: str, read: Callable[[], ProgramFile]) -> None:
    """Show the program of a file. If the file is invalid, keep the previous program and show why."""
    tab = session().of(ProgramState)
    try:
        found = read()
        if not found.program.devices:
            raise InputError(name, "has no values on any device")
        _check_size(found.program)
    except InputError as error:
        tab.complaint = f"{error}."
        return
    tab.upload(Uploaded(name, found.program, found.warnings))


@lru_cache(maxsize=4)
def _simulated(uploaded: Uploaded, mesh: DeviceMesh) -> Looked:
    program = uploaded.program
    if program.ops and all(find_operator(op.kind).stated for op in program.ops):
        return Looked(uploaded.name, simulate(program))
    return Looked(uploaded.name, simulate(program, mesh), mesh)
