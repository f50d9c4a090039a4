"""Operator graph and Device mesh: open, edit, undo, save, and report errors without losing data."""

from __future__ import annotations

import json
from typing import Any

import pytest
from helpers.onnx_models import mlp

from tessel_core.costs.meshes import find_mesh
from tessel_core.formats import mesh_text
from tessel_core.formats.graph_file import graph_file_text
from tessel_core.formats.onnx.skeleton import skeleton_of
from tessel_core.formats.onnx.translate import translate
from tessel_core.model import OperatorGraph
from tessel_core.networks.onnx import OnnxSpec, network_graph

pytestmark = pytest.mark.usefixtures("restart")


@pytest.fixture
def network(app) -> Any:
    """Open a small training graph, unchanged from its sample."""
    return app("graph", graph="mlp-8-training")


def graph(tab: Any) -> OperatorGraph:
    return tab.work.placing.graph.graph


def edit(tab: Any, table: str, **edits: Any) -> Any:
    """Set the edits of a table as a browser would. The widget's name begins with `table`."""
    state = {"edited_rows": {}, "added_rows": [], "deleted_rows": [], **edits}
    session = tab.test.session_state["tessel"]
    (key,) = [each for each in session.bases if each.startswith(table) and each.endswith(f"-{session.generation}")]
    tab.test.session_state[key] = state
    return tab.run()


def look_at(tab: Any, view: str) -> Any:
    tab.test.button_group(key="graph-view").set_value(view)
    return tab.run()


def upload(tab: Any, name: str, data: bytes) -> Any:
    tab.test.file_uploader[0].set_value((name, data, "application/json"))
    return tab.run()


# Opening


def test_without_a_graph_the_page_offers_ways_to_one(app) -> None:
    tab = app("graph")
    assert [button.label for button in tab.test.button if button.label.endswith("network")] == [
        "Open network",
        "Build network",
        "Open its network",
    ]
    tab.pick("Sample network", "mlp-8-training").press("Open network")
    assert graph(tab).name == "mlp-8-training"
    assert tab.numbers()["Operators"] == "34"
    assert tab.address["graph"] == "mlp-8-training"
    assert tab.kept == [], "a sample as it came needs no keeping"


def test_a_network_is_built_in_the_size_that_is_asked_for(app) -> None:
    tab = app("graph").choose("Family", "mlp").press("Build network")
    assert len(graph(tab).operators) > 5
    assert tab.kept == [graph(tab).name]


CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "vocab_size": 100,
}


def test_a_pasted_or_uploaded_config_opens_its_network(app) -> None:
    text = json.dumps(CONFIG)
    pasted = app("graph")
    pasted.test.text_area[0].set_value(text)
    pasted.press("Open its network")
    fresh = upload(app("graph"), "tiny.json", text.encode())
    assert (graph(pasted).name, graph(fresh).name) == ("llama-training", "tiny-training")
    assert graph(pasted).names == graph(fresh).names
    assert "layer2/mlp/gate/backward" in graph(pasted).names
    assert pasted.says("Built the training graph for one sample of 8,192 tokens.")


def test_a_config_that_is_not_understood_is_told_and_opens_nothing(app) -> None:
    tab = upload(app("graph"), "config.json", json.dumps(CONFIG | {"num_experts": 4}).encode())
    assert tab.says("config.json: num_experts: changes the computation but is not supported")
    assert tab.work.placing.graph is None


def test_sizes_that_do_not_fit_are_told_and_open_nothing(app) -> None:
    tab = app("graph").choose("Tensor-parallel degree", 64).press("Build network")
    assert tab.says("must divide")
    assert tab.work.placing.graph is None


def test_an_uploaded_graph_opens_and_is_kept(app, network, restart, tab) -> None:
    text = graph_file_text(network.work.placing.graph).encode()
    fresh = upload(app("graph"), "mine.json", text)
    assert graph(fresh) == graph(network)
    assert fresh.kept == ["mlp-8-training"]
    token = fresh.work.token
    restart()
    assert app("graph", work=token).work.placing == fresh.work.placing


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"{", "is not JSON"),
        (b'{"format": "tessel-graph", "version": 1, "operators": [], "edges": []}', "the graph has none"),
        (
            b'{"format": "tessel-graph", "version": 1, "operators": [{"name": "a"}, {"name": "b"}],'
            b' "edges": [{"from": "a", "to": "b"}, {"from": "b", "to": "a"}]}',
            "they form a cycle",
        ),
        (b'{"format": "tessel-placement", "version": 1, "graph": "x", "assignment": {}}', "another operator graph"),
    ],
)
def test_a_bad_file_is_told_in_one_sentence_and_the_page_keeps_what_was_there(
    network, data: bytes, complaint: str
) -> None:
    before = network.work
    upload(network, "bad.json", data)
    (said,) = network.says(complaint)
    assert said.startswith("bad.json: ")
    assert network.work == before
    assert network.numbers()["Operators"] == "34"


def test_a_second_graph_begins_a_workspace_of_its_own(network) -> None:
    first = network.choose("Depth of a layer", 1).press("Merge layers").work
    network.pick("Sample network", "flava-inference").press("Open network")
    assert network.work.token != first.token
    assert sorted(network.kept) == ["flava-inference", "mlp-8-training"]


def test_an_onnx_model_opens_with_the_sizes_that_are_said(app) -> None:
    """An uploaded ONNX model with open sizes asks for them, with the last answers as defaults.

    Without open sizes it opens at once.
    """
    tab = app("graph")
    tab.test.file_uploader[0].set_value(("model.onnx", mlp().SerializeToString(), "application/octet-stream"))
    tab.run()
    assert tab.work.placing.graph is None
    next(each for each in tab.test.number_input if each.label == "batch").set_value(8)
    tab.press("Open with these sizes")
    assert (graph(tab).batch_size, tab.kept) == (8, [graph(tab).name])
    assert tab.work.placing.graph_source == "file model.onnx: batch 8"
    upload(tab, "again.onnx", mlp().SerializeToString())
    assert next(each for each in tab.test.number_input if each.label == "batch").value == 8
    upload(tab, "fixed.onnx", mlp(3).SerializeToString())
    assert (graph(tab).batch_size, tab.work.placing.graph_source) == (3, "file fixed.onnx")
    assert tab.work.placing.sizes == {"batch": 8}


def test_a_file_on_this_machine_is_opened_by_its_path(app, tmp_path, monkeypatch) -> None:
    """A file that cannot be opened gives a message of one sentence. A hosted app has no field for paths."""

    def type_path(text: str) -> None:
        next(each for each in tab.test.text_input if each.label.endswith("on this machine")).set_value(text)
        tab.run()

    tab, path = app("graph"), tmp_path / "fixed.onnx"
    path.write_bytes(mlp(3).SerializeToString())
    (tmp_path / "text.onnx").write_text("text")
    (tmp_path / "empty.json").touch()
    (tmp_path / "large.json").open("w").truncate(64_000_001)
    bad = {
        "fixed.onnx": "fixed.onnx: is not an absolute path, such as",
        "~nobody-of-this-name/x": "~nobody-of-this-name",
        f"{tmp_path}/missing.onnx": "missing.onnx: No such file or directory",
        f"{tmp_path}": "is a folder, not a file",
        "/dev/zero": "/dev/zero: is not a regular file",
        f"{tmp_path}/text.onnx": "text.onnx: the model: is not ONNX: it does not begin with an IR version",
        f"{tmp_path}/empty.json": "empty.json: is empty",
        f"{tmp_path}/large.json": "has 64,000,001 bytes, more than the limit of 64,000,000",
        f"{tmp_path}/a\0b": "cannot be the name of a file",
        f"{tmp_path}/{'a' * 300}": "File name too long",
    }
    for text, why in bad.items():
        type_path(text)
        assert len(tab.says(why)) == 1, (text, [each.value for each in tab.test.error])
    type_path(f" {path} ")
    assert (tab.work.placing.graph_source, len(tab.test.error)) == ("file fixed.onnx", 0)
    monkeypatch.setattr("streamlit.get_option", lambda name: "0.0.0.0" if name == "server.address" else 2049)
    assert [each.label for each in app("graph").test.text_input] == ["Name"]


# Editing


def test_cells_rows_and_names_are_edited_and_undone(network) -> None:
    look_at(network, "Operators")
    name = graph(network).operators[0].name
    edit(network, "operators", edited_rows={0: {"operator": "first", "flops": 7.0}})
    assert (graph(network).operators[0].name, graph(network).operators[0].flops) == ("first", 7.0)
    assert graph(network).edges[0].source == "first"
    assert network.kept == ["mlp-8-training"]
    network.press("Undo")
    assert graph(network).operators[0].name == name
    network.press("Redo")
    assert graph(network).operators[0].name == "first"


def test_an_edit_that_makes_no_graph_is_told_and_changes_nothing(network) -> None:
    before = graph(network)
    look_at(network, "Operators")
    edit(network, "operators", edited_rows={0: {"flops": -1}})
    assert network.says("column flops: must not be negative, got -1. The graph was not changed.")
    assert graph(network) == before
    look_at(network, "Edges")
    first, last = before.edges[0], before.edges[-1]
    edit(network, "edges", added_rows=[{"from": last.target, "to": first.source}])
    assert network.says("The graph was not changed")
    assert graph(network) == before
    edit(network, "edges", edited_rows={0: {"bytes": 1}})
    assert {edge.bytes for edge in graph(network).edges if edge.source == first.source} == {1}


def test_edits_count_from_the_rows_that_are_shown(network) -> None:
    look_at(network, "Operators")
    wanted = next(i for i, each in enumerate(graph(network).operators) if "relu" in each.kind)
    key = next(each.key for each in network.test.text_input if each.key.startswith("find-operators"))
    network.test.text_input(key=key).set_value("relu")
    network.run()
    edit(network, "operators-relu", edited_rows={0: {"colour": "red"}})
    assert graph(network).operators[wanted].colour == "red"


def test_its_numbers_are_about_the_mesh_that_is_chosen(app) -> None:
    tab = app("graph", graph="gpt2-xl-training")
    assert tab.numbers()["Ways to cut"] == "51"
    assert "Time on h200" in tab.numbers()
    tab.go("mesh").choose("Preset", "v100-1").press("Open preset").go("graph")
    assert "Time on v100" in tab.numbers()
    assert "Time on h200" not in tab.numbers()


def test_a_backward_is_added_and_layers_are_merged(app) -> None:
    tab = app("graph", graph="gpt2-small-inference")
    before = len(graph(tab).operators)
    tab.press("Add backward")
    assert graph(tab).is_training
    tab.press("Merge layers")
    assert len(graph(tab).operators) < before
    tab.press("Undo").press("Undo")
    assert len(graph(tab).operators) == before


def test_the_backward_of_an_open_model_comes_from_its_program(app) -> None:
    """After an edit of the graph, it comes from the kinds of the operators."""
    tab = app("graph")
    upload(tab, "fixed.onnx", mlp(3).SerializeToString())
    tab.press("Add backward")
    network = translate(skeleton_of(mlp(3).SerializeToString()), {})
    assert graph(tab) == network_graph(network, OnnxSpec(training=True)).graph
    tab.press("Undo")
    look_at(tab, "Operators")
    edit(tab, "operators", edited_rows={0: {"flops": 7.0}})
    tab.press("Add backward")
    assert graph(tab).operator("fc1/backward").flops == 7.0


# The mesh


def test_a_mesh_of_any_size_opens_and_one_that_does_not_fill_its_nodes_says_so(network) -> None:
    network.go("mesh").choose("Kind", "h100-500w-96gb").choose("Devices", 12).press("Open mesh")
    assert "12 devices do not fill nodes of 8" in network.test.error[0].value
    network.choose("Per node", 4).press("Open mesh")
    mesh = network.work.placing.mesh.mesh
    assert (mesh.name, [device.node for device in mesh.devices]) == (
        "h100-500w-96gb-12",
        [0] * 4 + [1] * 4 + [2] * 4,
    )


def test_a_preset_opens_and_is_kept_with_the_graph(network, restart, app) -> None:
    network.go("mesh").choose("Preset", "h200-16").press("Open preset")
    assert len(network.work.placing.mesh.mesh.devices) == 16
    assert network.kept == ["mlp-8-training"]
    restart()
    again = app("mesh", work=network.work.token)
    assert again.work == network.work
    again.press("Undo")
    assert again.work.placing.mesh.mesh.name == "h200-8"


def test_devices_kinds_and_links_are_edited(app) -> None:
    tab = app("mesh")
    edit(tab, "mesh-devices", edited_rows={0: {"memory (GB)": 80}}, added_rows=[{"device": "old", "kind": "a100"}])
    mesh = tab.work.placing.mesh.mesh
    assert (mesh.devices[0].memory_capacity, mesh.devices[-1].kind, len(mesh.devices)) == (80 * 10**9, "a100", 9)
    tab.choose("In a node, GB/s", 100.0)
    assert tab.work.placing.mesh.mesh.same_node_link.bandwidth == 1e11
    tab.test.button_group(key="mesh-table").set_value("Kinds")
    tab.run()
    edit(tab, "mesh-kinds", edited_rows={1: {"bf16 (TFLOP/s)": 1}})
    assert tab.work.placing.mesh.mesh.devices[-1].peak("bf16") == 1e12
    tab.press("Undo").press("Undo").press("Undo")
    assert tab.work.placing.mesh.mesh == find_mesh("h200-8")


def test_an_edit_that_makes_no_mesh_is_told_and_changes_nothing(app) -> None:
    tab = app("mesh")
    edit(tab, "mesh-devices", edited_rows={0: {"node": 3}})
    assert tab.says("nothing links gpu0 and gpu1: list the link or give default_link. The mesh was not changed")
    assert tab.work.placing.mesh.mesh == find_mesh("h200-8")


def test_a_mesh_file_opens_on_its_page(app) -> None:
    tab = app()
    tab.test.file_uploader[0].set_value(("two.json", mesh_text(find_mesh("h200-2")).encode(), "application/json"))
    tab.run()
    assert tab.work.placing.mesh.mesh == find_mesh("h200-2")
    assert tab.work.placing.mesh_source == "file two.json"
    assert tab.test.get("download_button"), "the mesh page is open"


def test_the_graph_leads_on_to_its_placement(network) -> None:
    network.press("Place it")
    assert "Place" in [button.label for button in network.test.button]
