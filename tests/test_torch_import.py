"""A user's PyTorch modules as graphs, and modules compared with our definitions of the same networks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.decoders import weights
from helpers.terminal import Tessel, terminal

from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.networks.graphs.table import build_graph
from tessel_core.networks.llama import LlamaSpec, llama
from tessel_core.networks.program_graph import graph_of

pytestmark = [pytest.mark.extras, pytest.mark.usefixtures("torch_is_there")]

MODULE = """
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, hidden, heads, shared, size):
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, size
        self.queries = nn.Linear(hidden, heads * size, bias=False)
        self.keys = nn.Linear(hidden, shared * size, bias=False)
        self.values = nn.Linear(hidden, shared * size, bias=False)
        self.projection = nn.Linear(heads * size, hidden, bias=False)

    def forward(self, x, cos, sin):
        batch, tokens, _ = x.shape
        q = self.queries(x).view(batch, tokens, self.heads, self.size).transpose(1, 2)
        k = self.keys(x).view(batch, tokens, self.shared, self.size).transpose(1, 2)
        v = self.values(x).view(batch, tokens, self.shared, self.size).transpose(1, 2)

        def turned(z):
            one, other = z.chunk(2, -1)
            return z * cos + torch.cat((-other, one), -1) * sin

        y = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True, enable_gqa=True)
        return self.projection(y.transpose(1, 2).reshape(batch, tokens, -1))


class Block(nn.Module):
    def __init__(self, hidden, heads, shared, size, inner):
        super().__init__()
        self.first, self.second = nn.RMSNorm(hidden, 1e-6), nn.RMSNorm(hidden, 1e-6)
        self.attention = Attention(hidden, heads, shared, size)
        self.gate = nn.Linear(hidden, inner, bias=False)
        self.up = nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.first(x), cos, sin)
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, layers, hidden, heads, shared, size, inner, vocabulary, tokens, base=500000.0):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList(Block(hidden, heads, shared, size, inner) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(hidden, 1e-6), nn.Linear(hidden, vocabulary, bias=False)
        speeds = base ** (-torch.arange(0, size, 2).double() / size)
        angles = torch.outer(torch.arange(tokens).double(), speeds).repeat(1, 2)
        self.register_buffer("cos", angles.cos().float())
        self.register_buffer("sin", angles.sin().float())

    def forward(self, ids):
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(self.norm(x))


def build():
    return Llama(3, 64, 4, 2, 16, 96, 50, 32), torch.zeros(2, 32, dtype=torch.long)


class Masked(nn.Module):
    def forward(self, q, mask):
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)


def masked():
    return Masked(), (torch.zeros(2, 4, 8, 16), torch.zeros(8, 8))


class Loop(nn.Module):
    def forward(self, x):
        while x.sum() > 0:
            x = x - 1
        return x


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(self.conv(x)).relu().flatten(2).cumsum(1)


def loop():
    return Loop(), torch.zeros(2, 2)


def odd():
    return Odd(), torch.zeros(2, 3, 8, 8)


def raising():
    raise ValueError("no such size\\nand more")


def number():
    return 3
"""
SPEC = LlamaSpec(
    micro_batch=2,
    dtype="fp32",
    layers=3,
    hidden=64,
    heads=4,
    kv_heads=2,
    head_size=16,
    inner=96,
    sequence=32,
    vocabulary=50,
)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MODULE, encoding="utf-8")
    return tmp_path / "mine.py"


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tessel:
    return terminal(monkeypatch, capsys)


def test_a_module_has_the_flops_of_the_family_of_the_same_sizes(file: Path) -> None:
    from tessel_core.networks.pytorch import import_module

    found = import_module("mine.py:build")
    assert (found.opaque, found.batch_size) == ({}, 2)
    graph, family = graph_of(found.model, "mine", 2), build_graph("llama", SPEC)
    for kind in ("matmul", "attention"):
        mine, theirs = (
            sum(each.flops or 0 for each in g.operators if each.kind.startswith(kind)) for g in (graph, family)
        )
        assert mine == pytest.approx(theirs, rel=1e-3)
    total, wanted = (sum(each.flops or 0 for each in g.operators) for g in (graph, family))
    assert total == pytest.approx(wanted, rel=0.03)  # at such small sizes, rotations as single operators matter
    assert sum(each.weight_bytes or 0 for each in graph.operators) == sum(
        each.weight_bytes or 0 for each in family.operators
    )
    assert {name.partition("/")[0] for name in graph.names} == {
        "tokens",
        "layers.0",
        "layers.1",
        "layers.2",
        "norm",
        "head",
    }


def test_the_program_of_a_module_means_what_the_module_does(file: Path) -> None:
    import torch

    from tessel_core.networks.pytorch import import_module
    from tessel_core.networks.pytorch.source import made_by

    model = import_module("mine.py:build").model
    module, _ = made_by("mine.py", "build")
    given: dict[str, Any] = {name: each.detach().numpy() for name, each in module.state_dict().items()}
    ids = np.random.default_rng(0).integers(0, 50, (2, 32))
    ((_, found),) = model.run({**given, "ids": ids})
    np.testing.assert_allclose(found, module(torch.from_numpy(ids)).detach().numpy(), rtol=2e-4, atol=2e-5)


def test_the_family_means_what_the_module_does(file: Path) -> None:
    """The module gets the family's weights, transposed as PyTorch stores them. Logits and gradients agree."""
    import torch

    from tessel_core.networks.pytorch.source import made_by

    module, _ = made_by("mine.py", "build")
    model = llama(replace(SPEC, dtype="fp32"))
    w = {name: each.astype(np.float32) * 0.2 for name, each in weights(model).items()}
    names = {
        "tokens.weight": "embedding/tokens.table",
        "norm.weight": "head/norm.scale",
        "head.weight": "head/projection.weight",
    }
    for i in range(3):
        at = f"layers.{i}"
        names |= {
            f"{at}.first.weight": f"layer{i}/attention/norm.scale",
            f"{at}.second.weight": f"layer{i}/mlp/norm.scale",
        }
        names |= {
            f"{at}.attention.{part}.weight": f"layer{i}/attention/{part}.weight"
            for part in ("queries", "keys", "values", "projection")
        }
        names |= {f"{at}.{part}.weight": f"layer{i}/mlp/{part}.weight" for part in ("gate", "up")}
        names[f"{at}.down.weight"] = f"layer{i}/mlp/projection.weight"
    state = {
        mine: torch.from_numpy(w[ours].T.copy() if ours.endswith(".weight") else w[ours])
        for mine, ours in names.items()
    }
    module.load_state_dict(state, strict=False)
    ids = np.random.default_rng(0).integers(0, 50, (2, 32))
    found = {piece.name: array for piece, array in model.run({**w, "tokens": ids})}
    logits = module(torch.from_numpy(ids))
    np.testing.assert_allclose(found["logits"], logits.detach().numpy(), rtol=2e-3, atol=2e-4)
    targets = np.random.default_rng(1).integers(0, 50, (2, 32))
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(targets).flatten())
    loss.backward()
    trained = Gradients()(llama(replace(SPEC, dtype="fp32", training=True)))
    slopes = {p.name: a for p, a in trained.run({**w, "tokens": ids, "targets": targets, "n": np.array(64)})}
    for mine, ours in names.items():
        gradient = module.get_parameter(mine).grad.numpy()
        wanted = gradient.T if ours.endswith(".weight") else gradient
        np.testing.assert_allclose(slopes[f"d.{ours}"], wanted, rtol=2e-2, atol=1e-4, err_msg=ours)


def test_what_is_not_known_is_opaque_and_named(tessel: Tessel, file: Path) -> None:
    ended = tessel("graph", "mine.py:odd", "--torch", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["operators"] >= 4
    assert "executing mine.py:odd" in ended.err
    assert "only the costs of " in ended.err
    assert "cumsum" in ended.err
    trained = tessel("graph", "mine.py:odd", "--torch", "--backward", "--set", "dtype=bf16", "--json")
    assert json.loads(trained.out)["training"] is True


def test_attention_with_a_mask_is_known_by_its_costs_alone(tessel: Tessel, file: Path) -> None:
    """Two products of 8 x 8 scores with 16 numbers for each of 8 heads. Our attention would ignore the mask."""
    found = json.loads(tessel("graph", "mine.py:masked", "--torch", "--json").out)
    assert found["flops"] == 2 * 2 * (2 * 4) * 8 * 8 * 16
    assert "cannot be executed" in tessel("run", "mine.py:masked", "--torch", "--engine", "numpy").err


def test_a_module_is_simulated_and_run(tessel: Tessel, file: Path) -> None:
    found = json.loads(tessel("simulate", "mine.py:build", "--torch", "--set", "dtype=bf16", "--json").out)
    assert found["latency_s"] > 0
    assert json.loads(tessel("run", "mine.py:build", "--torch", "--engine", "numpy", "--json").out)["steps"] == 1
    refused = tessel("simulate", "mine.py:build", "--torch", "--tensor", "2")
    assert refused.err.startswith("error: --tensor: is for networks")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("mine.py:loop", "error: mine.py:loop: cannot be exported: raised GuardOnDataDependentSymNode"),
        ("mine.py:raising", "error: mine.py:raising: raised ValueError in line"),
        ("mine.py:number", "error: mine.py:number: must return a module and its inputs"),
        ("mine.py:nothing", "error: mine.py: has no function nothing"),
        ("mine.py", "error: mine.py: must be FILE.py:FUNCTION"),
        ("other.py:build", "error: other.py: is not a file"),
    ],
)
def test_what_cannot_be_imported_is_one_sentence(tessel: Tessel, file: Path, source: str, why: str) -> None:
    ended = tessel("graph", source, "--torch")
    last = [line for line in ended.err.splitlines() if not line.startswith("executing")]
    assert (ended.code, len(last)) == (2, 1)
    assert last[0].startswith(why)
