"""Files that people upload, whatever they hold: each opens on the page that is for it."""

from __future__ import annotations

from pathlib import PurePath

import streamlit as st

from pages.shared.contents import go_to
from pages.shared.session import session, workspace
from pages.shared.widgets import literal
from tessel_core.errors import InputError
from tessel_core.formats import GraphFile, MeshFile, PlacementFile, ScheduleFile, WorkspaceFile
from tessel_core.formats.files import read_known
from tessel_core.formats.graph_file import SplitFile
from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling import evaluate_file
from tessel_core.workbench.placement_files import with_placement, with_split
from tessel_core.workbench.placing import Placing
from tessel_core.workbench.store import new_token
from tessel_core.workbench.workspace import workspace_of

_MOST_WARNINGS = 3
"""Warnings about an ONNX model that are shown; `tessel check` lists all."""
_MOST_MB = 512
"""For ONNX models, which bring their weights; what JSON may be is bounded where it is read."""


def take_file(key: str) -> None:
    """The field for a file, and what is wrong with it; opens the page of what it holds."""
    tab = session()
    look = {"label_visibility": "collapsed", "key": key, "on_change": setattr, "args": (tab, "file_complaint", "")}
    file = st.file_uploader("File", type=["json", "onnx"], max_upload_size=_MOST_MB, **look)
    # Streamlit hands a file out again while its field is on the page, and a page that opens one draws itself anew.
    if file is not None and not tab.file_complaint and file.file_id != tab.taken:
        page = open_file(file.getvalue(), file.name)
        tab.taken = file.file_id if page else ""
        if page:
            go_to(page)
    if tab.file_complaint:
        st.error(literal(tab.file_complaint))


def open_file(data: bytes, name: str) -> str:
    """Open an uploaded file and return its page; empty on bad input, when nothing but `file_complaint` changes."""
    tab = session()
    try:
        found, source = read_known(data, name), f"file {name}"
        if isinstance(found, WorkspaceFile):
            work, tab.view = workspace_of(found, new_token()), ""
            tab.open_copy(work)
        elif isinstance(found, ScheduleFile):
            tab.open_plan(found.schedule.plan, source, opened=evaluate_file(found))
        elif isinstance(found, MicroBatchPlan):
            tab.open_plan(found, source)
        elif isinstance(found, GraphFile):
            tab.open_graph(GraphFile.of(found.graph, found.pool), source, _title(found, name))
            tab.message = " ".join(f"{each.rstrip('.')}." for each in found.warnings[:_MOST_WARNINGS])
            return "graph"
        elif isinstance(found, MeshFile):
            tab.change_placing(workspace().placing.on(found, source))
            return "mesh"
        else:
            tab.change_placing(_placed(found))
            return "placement"
    except InputError as error:
        tab.file_complaint = str(error if error.where.startswith(name) else error.within(name))
        return ""
    return "schedule"


def _placed(found: PlacementFile | SplitFile) -> Placing:
    placing = workspace().placing
    return with_placement(placing, found) if isinstance(found, PlacementFile) else with_split(placing, found)


def _title(file: GraphFile, name: str) -> str:
    """Published inputs have no name of their own."""
    return PurePath(name).stem if file.pool is not None else file.graph.name
