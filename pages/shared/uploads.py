"""Open uploaded files. Each kind of file opens on its page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath

import streamlit as st

from pages.shared.contents import go_to
from pages.shared.file_field import file_field, size_inputs
from pages.shared.session import session, workspace
from pages.shared.widgets import literal
from tessel_core.errors import InputError
from tessel_core.formats import GraphFile, MeshFile, PlacementFile, ScheduleFile, WorkspaceFile
from tessel_core.formats.fields import looks_like_config
from tessel_core.formats.files import Known, a_kind, foreign_schedule, is_onnx, read_known, reading_of
from tessel_core.formats.graph_file import SplitFile
from tessel_core.formats.onnx import OnnxModel
from tessel_core.formats.pytorch_csv import PyTorchCsv
from tessel_core.formats.pytorch_schedule import ASSUMED
from tessel_core.formats.pytorch_trace import PipelineTrace
from tessel_core.formats.run_file import RunFile
from tessel_core.model import MicroBatchPlan, OperatorGraph
from tessel_core.scheduling import evaluate_file
from tessel_core.workbench.as_written import as_written, hang_of
from tessel_core.workbench.placement_files import with_placement, with_split
from tessel_core.workbench.placing import Placing
from tessel_core.workbench.store import new_token
from tessel_core.workbench.workspace import workspace_of

_MAX_WARNINGS = 3
"""Number of warnings about an ONNX model that are shown. `tessel check` lists all."""


@dataclass
class OpenedModel:
    """ONNX model that this tab opened last, with its sizes and its graph."""

    model: OnnxModel | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    graph: OperatorGraph | None = None


@dataclass
class _Asking:
    """ONNX model with sizes that the user of this tab must still choose, and the key of its upload field."""

    model: OnnxModel | None = None
    key: str = ""


def take_file(key: str) -> None:
    """Show a file field. Open an uploaded file on its page, or show why it is invalid."""
    tab, asking = session(), session().of(_Asking)
    try:
        found = file_field(key, "File", ["json", "onnx", "csv"], _forget)
        if found is not None:
            _lead_on(open_file(*found, key))
    except InputError as error:
        tab.file_complaint = str(error)
    if asking.model is not None and asking.key == key:
        _ask_sizes(asking.model, key)
    if tab.file_complaint:
        st.error(literal(tab.file_complaint))


def paste_config(key: str) -> None:
    """Show a menu to paste the config.json of a Hugging Face model. `take_file` with this key shows its errors."""
    with st.popover("Paste a config", type="tertiary"), st.form(f"{key}-paste", border=False):
        hint = '{"model_type": "llama", …}'
        text = st.text_area("Hugging Face config", height=180, placeholder=hint, key=f"{key}-config")
        if st.form_submit_button("Open its network", width="stretch"):
            _forget()
            _lead_on(_opened("config.json", lambda: _open_config(text.encode(), "config.json")))


def _forget() -> None:
    session().file_complaint, session().of(_Asking).model = "", None


def _lead_on(page: str) -> None:
    if page:
        go_to(page)


def _ask_sizes(model: OnnxModel, key: str) -> None:
    """Show a field for each open size of a model, and the button that opens it with these sizes."""
    with st.form(f"{key}-sizes", border=False):
        st.markdown(f"Choose the open sizes of {literal(model.name)}:")
        sizes = size_inputs(model.open_sizes, key)
        if st.form_submit_button("Open with these sizes", width="stretch"):
            _lead_on(_opened(model.name, lambda: _open_model(model, sizes)))


def open_file(data: bytes, name: str, key: str) -> str:
    """Open a file and return the name of its page.

    Empty if the file is invalid: then only `file_complaint` changes. Also empty for an ONNX model with open sizes:
    fields below the file field ask for them first.
    """
    return _opened(name, lambda: _open(data, name, key))


def _opened(name: str, opening: Callable[[], str]) -> str:
    tab = session()
    tab.file_complaint = ""
    try:
        return opening()
    except InputError as error:
        tab.file_complaint = str(error if error.where.startswith(name) else error.within(name))
        return ""


def _open(data: bytes, name: str, key: str) -> str:
    tab, source = session(), f"file {name}"
    if is_onnx(data, name):
        model = OnnxModel.of(data, name)
        if not model.open_sizes:
            return _open_model(model, {})
        asking = tab.of(_Asking)
        asking.model, asking.key = model, key
        return ""
    if looks_like_config(data):
        return _open_config(data, name)
    return _open_known(read_known(data, name), name, source)


def _open_config(data: bytes, name: str) -> str:
    """Open the training graph, one sample at a time, of the network in a Hugging Face config. Return its page."""
    from tessel_core.networks.graphs.table import build_graph  # late: few files need it
    from tessel_core.networks.huggingface import config_network

    network, tab = config_network(data, name), session()
    graph = build_graph(network.family, replace(network.spec, training=True), network.name)
    tab.open_graph(GraphFile.of(graph), f"config {name}", network.name)
    tab.message = f"Built the training graph for one sample of {network.spec.tokens:,} tokens."
    return "graph"


def _open_known(found: Known, name: str, source: str) -> str:
    tab = session()
    if isinstance(found, WorkspaceFile):
        work, tab.view = workspace_of(found, new_token()), ""
        tab.open_copy(work)
    elif isinstance(found, ScheduleFile):
        tab.open_plan(found.schedule.plan, source, opened=evaluate_file(found))
    elif isinstance(found, RunFile):
        tab.open_plan(found.run.schedule.plan, source, opened=evaluate_file(found.schedule))
        tab.change(replace(workspace(), ran=found.run))
        return "run"
    elif isinstance(found, MicroBatchPlan):
        tab.open_plan(found, source)
    elif isinstance(found, GraphFile):
        tab.open_graph(GraphFile.of(found.graph, found.pool), source, _title(found, name))
        return "graph"
    elif isinstance(found, MeshFile):
        tab.change_placing(workspace().placing.on(found, source))
        return "mesh"
    elif isinstance(found, PyTorchCsv | PipelineTrace):
        made = foreign_schedule([found])
        hang = hang_of(found, made.schedule.plan) if isinstance(found, PyTorchCsv) else None
        tab.open_plan(made.schedule.plan, source, opened=evaluate_file(made), hang=hang)
        said = reading_of(found)
        if isinstance(found, PyTorchCsv) and found.communicates:
            work = as_written(workspace(), found)
            tab.change(work)
            said = ASSUMED if work.written else said
        tab.message = f"Read from {a_kind(found)}: {said}."
    else:
        assert isinstance(found, PlacementFile | SplitFile), "ONNX models never get here"
        tab.change_placing(_placed(found))
        return "placement"
    return "schedule"


def _open_model(model: OnnxModel, sizes: Mapping[str, int]) -> str:
    """Open the graph of an ONNX model, and save the sizes with the workspace. Return its page."""
    from tessel_core.networks.onnx import OnnxSpec, model_graph  # late: slow to load

    tab, found = session(), model_graph(model, OnnxSpec(sizes=sizes))
    said = ", ".join(f"{name} {size}" for name, size in sizes.items())
    source = f"file {model.name}{': ' if said else ''}{said}"
    tab.open_graph(GraphFile.of(found.graph), source, found.graph.name, sizes=sizes)
    tab.of(_Asking).model = None
    opened = tab.of(OpenedModel)
    opened.model, opened.sizes, opened.graph = model, sizes, found.graph
    tab.message = " ".join(f"{each.rstrip('.')}." for each in found.warnings[:_MAX_WARNINGS])
    return "graph"


def _placed(found: PlacementFile | SplitFile) -> Placing:
    placing = workspace().placing
    return with_placement(placing, found) if isinstance(found, PlacementFile) else with_split(placing, found)


def _title(file: GraphFile, name: str) -> str:
    """Return the name of a graph. Published files contain no name, so the name of the file stands in."""
    return PurePath(name).stem if file.pool is not None else file.graph.name
