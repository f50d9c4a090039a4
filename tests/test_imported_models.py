"""Recommendations for models from files: layers, samples, and blocks compared with every operation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.onnx_models import Writer, cnn, mlp, takes, transformer
from helpers.terminal import Tessel, terminal
from onnx import ModelProto

from tessel_core.costs.meshes import uniform_mesh
from tessel_core.errors import InputError
from tessel_core.formats.onnx.skeleton import skeleton_of
from tessel_core.formats.onnx.translate import translate
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.ir.transforms.layering import with_layers
from tessel_core.networks.onnx import onnx_program
from tessel_core.strategies.block_engine import BlockEngine
from tessel_core.strategies.blocks import BlockTable
from tessel_core.strategies.evaluation import Configuration
from tessel_core.strategies.imported import ImportedFamily
from tessel_core.strategies.recommendation import Question, SearchRanges, recommend
from tessel_core.strategies.strategy import Strategy, simulate_places

EIGHT = uniform_mesh("h100", 1, 8)
MODULE = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, layers, hidden):
        super().__init__()
        self.embedding = nn.Embedding(500, hidden)
        self.layers = nn.ModuleList(Block(hidden) for _ in range(layers))
        self.head = nn.Linear(hidden, 500)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Fixed(Net):
    def forward(self, ids):
        return super().forward(ids).view(3, -1)


def build():
    return Net(4, 256), torch.zeros(2, 64, dtype=torch.long)


def fixed():
    return Fixed(4, 256), torch.zeros(3, 64, dtype=torch.long)
"""


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    """Return a function that runs a command in a folder with some models."""
    monkeypatch.chdir(tmp_path)
    Path("gpt.onnx").write_bytes(transformer(4, batch="batch").SerializeToString())
    Path("fixed.onnx").write_bytes(transformer(4, batch=3).SerializeToString())
    Path("module.py").write_text(MODULE)
    return terminal(monkeypatch, capsys)


def program(model: ModelProto, **sizes: int) -> Distributed:
    return onnx_program(translate(skeleton_of(model.SerializeToString()), sizes)).model


def family(layers: int = 4, samples: tuple[int, ...] = (1, 2, 4, 16)) -> ImportedFamily:
    """Return a GPT made of ONNX operators."""
    return ImportedFamily("gpt", {n: program(transformer(layers, 512, 8, 500, 128, batch=n)) for n in samples})


@pytest.mark.parametrize(
    ("model", "layers"), [(mlp(4), 2), (cnn(4), 3), (transformer(1), 6), (transformer(4), 12)], ids=str
)
def test_layers_are_cut_where_one_activation_passes(model: ModelProto, layers: int) -> None:
    """Names in these models contain no layers. Each layer uses earlier outputs, and has a weight of its own."""
    found = with_layers(program(model))
    of_op = [op.tag.stage for op in found.program.ops]
    assert of_op == sorted(of_op)
    assert set(of_op) == set(range(max(of_op) + 1))
    weights = {value for value, piece in found.piece_of.items() if found.role_of(piece).weight}
    for layer in set(of_op):
        taken = {v for op in found.program.ops if op.tag.stage == layer for v in op.inputs}
        assert taken & weights
    assert len(set(of_op)) >= layers // 2


def test_layers_are_those_of_names() -> None:
    """A name such as /encoder/layer.3/attention/MatMul contains a layer.

    Operators between layers belong to the previous one.
    """
    model = program(transformer(2))
    names = ["embedding/x", "encoder/layer.0/a/x", "encoder/layer.0/b/x", "glue/x", "encoder/layer.1/x", "head/x"]
    ops = [replace(op, tag=replace(op.tag, name=name)) for op, name in zip(model.program.ops, names, strict=False)]
    named = replace(model, program=replace(model.program, ops=tuple(ops)))
    assert [op.tag.stage for op in with_layers(named).program.ops] == [0, 0, 0, 0, 1, 1]


STRATEGIES = (
    Strategy(8, micro_batches=1, zero=1),
    Strategy(8, micro_batches=2, zero=3, grad_dtype="fp32"),
    Strategy(2, 1, 4, 8, "1f1b", zero=1),
    Strategy(2, 1, 4, 4, "gpipe", recompute=Recompute.FULL),
    Strategy(2, 1, 4, 4, "interleaved", stages_per_device=2),
)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_blocks_of_a_file_are_near_the_simulation_of_every_operation(strategy: Strategy) -> None:
    found = family()
    spec = found.spec(batch=16)
    trace = simulate_places(found, spec, strategy, EIGHT)
    outcome = BlockEngine(BlockTable(found, spec, EIGHT)).evaluate([Configuration(spec, strategy)])[0]
    assert outcome.latency == pytest.approx(trace.latency, rel=0.07)
    assert max(outcome.peaks) == pytest.approx(max(trace.peak_memory), rel=0.25)


def test_micro_batches_of_other_sizes_are_no_configurations() -> None:
    found = family(samples=(2,))
    answer = recommend(Question(found, found.spec(batch=16), EIGHT, SearchRanges(micro_batch_size=found.samples)))
    assert answer.best is not None
    assert {16 // (c.strategy.data * c.strategy.micro_batches) for c in answer.candidates} == {2}
    assert {c.strategy.tensor for c in answer.candidates} == {1}
    with pytest.raises(InputError, match="has programs for 2 samples"):
        found.forward(found.spec(batch=4))


def test_a_network_without_weights_is_refused() -> None:
    writer = Writer()
    writer.add("Relu", "x", to="y")
    with pytest.raises(InputError, match="no weights"):
        ImportedFamily("relu", {2: program(writer.model([takes("x", 2, 3)], ["y"]))})


def test_the_command_takes_onnx(tessel: Tessel) -> None:
    code, text, error = tessel("recommend", "gpt.onnx", "--mesh", "h100-4", "--global-batch", "16", "--json")
    found = json.loads(text)
    assert (code, found["proved"], found["best"]["tensor"]) == (0, True, 1)
    assert "batch is taken" not in error
    asked = ("recommend", "gpt.onnx", "--mesh", "h100-4", "--global-batch", "16", "--set", "mode=inference", "--json")
    inference = json.loads(tessel(*asked)[1])
    assert inference["best"]["latency_s"] < found["best"]["latency_s"]
    assert inference["best"]["zero"] == 0


def test_a_fixed_batch_is_that_of_every_micro_batch(tessel: Tessel) -> None:
    code, text, error = tessel("recommend", "fixed.onnx", "--mesh", "h100-4", "--global-batch", "12", "--json")
    best = json.loads(text)["best"]
    assert (code, best["data"] * best["micro_batches"]) == (0, 4)
    assert "every micro-batch has its 3 samples" in error


def test_the_command_takes_the_graph_of_a_network(tessel: Tessel) -> None:
    sizes = ("--set", "layers=4")
    tessel("graph", "llama-3-8b", *sizes, "--out", "graph.json")
    asked = ("--mesh", "h100-8", "--global-batch", "16", "--micro-batch-size", "1", "--json")
    assert tessel("recommend", "graph.json", *asked)[1] == tessel("recommend", "llama-3-8b", *sizes, *asked)[1]


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
def test_the_command_takes_a_module(tessel: Tessel) -> None:
    asked = ("--torch", "--mesh", "h100-4", "--global-batch", "12", "--json")
    found = json.loads(tessel("recommend", "module.py:build", *asked)[1])
    assert found["proved"] is True
    assert "4 stages need" not in "".join(found["infeasible"])
    best = json.loads(tessel("recommend", "module.py:fixed", *asked)[1])["best"]
    assert best["data"] * best["micro_batches"] == 4


@pytest.mark.parametrize(
    ("what", "more", "why"),
    [
        ("gpt.onnx", ("--sequence", "8"), "applies only to presets and configs"),
        ("gpt.onnx", ("--dtype", "bf16"), "does not apply to an ONNX model"),
        ("gpt.onnx", ("--set", "wheels=4"), "is not an open size"),
        ("fixed.onnx", ("--micro-batch-size", "2"), "fixes its batch at 3"),
        ("fixed.onnx", (), "the nearest batches that do: 15 and 18"),
        ("module.py", (), "is"),
        ("nothing", (), "is not a preset, family or file"),
        ("bert12", (), "is not a preset"),
    ],
)
def test_bad_models_get_one_sentence(tessel: Tessel, what: str, more: tuple[str, ...], why: str) -> None:
    code, out, error = tessel("recommend", what, "--mesh", "h100-2", "--global-batch", "16", *more)
    assert (code, out) == (2, "")
    assert why in error.splitlines()[-1]


def test_a_graph_of_no_network_is_placed(tessel: Tessel) -> None:
    tessel("graph", "llama-3-8b", "--set", "layers=2", "--out", "graph.json")
    document = json.loads(Path("graph.json").read_text())
    Path("bare.json").write_text(json.dumps({**document, "network": ""}))
    asked = ("--mesh", "h100-2", "--global-batch", "16", "--stages-per-device", "1", "--order-seconds", "0", "--json")
    code, text, _ = tessel("recommend", "bare.json", *asked)
    assert code == 0
    assert json.loads(text)["best"]["replicas"]
