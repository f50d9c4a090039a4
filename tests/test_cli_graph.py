"""`tessel graph` writes networks to files, and derives graphs from files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.onnx_models import mlp
from helpers.terminal import Tessel, terminal
from test_placement_formats import PUBLISHED

from tessel_core.formats import graph_text
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.networks.graphs.table import GRAPHS, build_graph, of_layers
from tessel_core.samples import load_graph


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    """Return a function that runs a command in a folder with a published graph `p.json` and our graph `g.json`."""
    monkeypatch.chdir(tmp_path)
    Path("p.json").write_text(json.dumps(PUBLISHED))
    Path("g.json").write_text(graph_text(load_graph("gpt2-small-inference")))
    return terminal(monkeypatch, capsys)


def document(ended: tuple[int, str, str]) -> Any:
    assert (ended[0], ended[1].count("\n")) == (0, 1)
    return json.loads(ended[1])


def test_networks_are_listed(tessel: Tessel) -> None:
    listed = document(tessel("graph", "--json"))
    assert [each["name"] for each in listed] == list(GRAPHS)
    for each in listed:
        assert list(each["presets"]) == list(GRAPHS[each["name"]].presets)
        assert each["options"]["micro_batch"] >= 1
    shown = tessel("graph")[1]
    assert all(name in shown for name in ("evoformer", "swin-l", "tensor_parallel"))


def test_a_preset_with_changes_is_written(tessel: Tessel) -> None:
    words = ("--preset", "gpt2-medium", "--set", "layers=3", "--set", "micro-batch=2", "--set", "training=true")
    said = document(tessel("graph", "gpt", *words, "--json", "--out", "o.json"))
    graph = read_graph_file(Path("o.json")).graph
    spec = GRAPHS["gpt"].spec(layers=3, hidden=1024, heads=16, micro_batch=2, training=True)
    assert graph == build_graph("gpt", spec, "gpt2-medium")
    assert (said["name"], said["operators"], said["edges"]) == (graph.name, len(graph.operators), len(graph.edges))
    assert said["training"] is True
    assert said["batch_size"] == 2
    for what in ("flops", "weight_bytes", "activation_bytes"):
        assert said[what] == sum(getattr(each, what) or 0 for each in graph.operators) > 0
    assert tessel("check", "o.json")[0] == 0


def test_a_preset_is_found_by_its_name(tessel: Tessel) -> None:
    by_name = document(tessel("graph", "swin-s", "--json"))
    assert by_name == {**document(tessel("graph", "swin", "--preset", "swin-s", "--json"))}
    assert by_name["activation_bytes"] is None
    assert "swin-s" in tessel("graph", "swin-s")[1]


def test_words_for_the_backward_and_layers_mean_the_options(tessel: Tessel) -> None:
    words = ("--backward", "--recompute", "full", "--split-weights", "--by-layer")
    said = document(tessel("graph", "mlp", *words, "--json", "--out", "o.json"))
    spec = GRAPHS["mlp"].spec(training=True, recompute="full", split_weights=True, granularity="layers")
    assert read_graph_file(Path("o.json")).graph == build_graph("mlp", spec)
    assert said["operators"] == 3 * 8 + 2  # forward, backward and weights of each layer, and both passes of the loss


def test_a_file_gets_its_backward_and_its_layers(tessel: Tessel) -> None:
    assert tessel("graph", "g.json", "--backward", "--out", "t.json")[0] == 0
    forward = load_graph("gpt2-small-inference")
    graph = build_graph("gpt", replace(GRAPHS["gpt"].spec(), training=True), forward.name)
    assert read_graph_file(Path("t.json")).graph == graph
    assert tessel("graph", "t.json", "--by-layer", "--out", "l.json")[0] == 0
    assert read_graph_file(Path("l.json")).graph == of_layers(graph, "bf16")
    assert tessel("place", "l.json", "--mesh", "h200-2", "--json")[0] == 0


def test_a_model_gets_its_backward_from_its_program(tessel: Tessel) -> None:
    Path("m.onnx").write_bytes(mlp().SerializeToString())
    code, _, said = tessel("graph", "m.onnx", "--set", "batch=4", "--backward", "--split-weights", "--out", "t.json")
    assert (code, said) == (0, "")
    graph = read_graph_file(Path("t.json")).graph
    assert [each.name for each in graph.operators if each.kind.endswith("weight_gradient")]
    words = ("--set", "batch=4", "--set", "training=true", "--set", "split_weights=true")
    assert tessel("graph", "m.onnx", *words, "--out", "again.json")[0] == 0
    assert read_graph_file(Path("again.json")).graph == graph
    assert document(tessel("graph", "m.onnx", "--backward", "--by-layer", "--json"))["training"]


def test_a_published_graph_can_be_looked_at_but_not_kept(tessel: Tessel) -> None:
    assert document(tessel("graph", "p.json", "--by-layer", "--json"))["flops"] is None
    code, _, said = tessel("graph", "p.json", "--out", "o.json")
    assert code == 2
    assert "has times in ms and costs of transfers" in said
    assert not Path("o.json").exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("gtp",), "error: graph: 'gtp' is neither a network nor a file, did you mean gpt?"),
        (("???",), "error: graph: '???' is neither a network nor a file, `tessel graph` lists the networks"),
        (("gpt", "--preset", "swin-t"), "error: --preset: 'swin-t' is not known, choose from gpt2-small"),
        (("g.json", "--set", "layers=3"), "error: --set: is for networks and ONNX models, and g.json is neither"),
        (("g.json", "--preset", "gpt2-xl"), "error: --preset: is for networks, and g.json is not one"),
        (("gpt", "--set", "layers"), "error: --set: must be OPTION=VALUE, got 'layers'"),
        (("gpt", "--set", "depth=3"), "error: depth: is no option here, choose from micro_batch"),
        (("gpt", "--set", "layers=many"), "error: --set layers: must be of type int, got 'many'"),
        (("gpt", "--set", "heads=5"), "error: Heads: must divide the hidden size, which is 768, got 5"),
        (
            ("gpt", "--recompute", "selective"),
            "error: --recompute: is an option of the backward pass, so give --backward too",
        ),
        (("p.json", "--backward"), "error: graph published graph: already has backward operators"),
        (("g.json", "--out", "g.json"), "error: g.json: is the input file"),
        (("gpt", "--out", "nowhere/g.json"), "error: nowhere/g.json: cannot be written"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tessel: Tessel, words: tuple[str, ...], complaint: str) -> None:
    code, out, said = tessel("graph", *words)
    assert (code, out, said.count("\n")) == (2, "", 1)
    assert said.startswith(complaint)
