"""Output of `tessel run`, for people and for programs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from helpers.onnx_models import mlp
from helpers.terminal import Tessel, terminal

from tessel_core.exports.tensors import tensors_npz

SMALL = ("--layers", 2, "--width", 8, "--batch", 8, "--dtype", "fp32")

_DECODER = (*("--layers", 2, "--hidden", 8, "--heads", 4, "--sequence", 8, "--vocabulary", 8, "--batch", 4),
            *("--dtype", "fp32", "--set", "head_size=4", "--set", "inner=6"))  # fmt: skip
LLAMA = (*_DECODER, "--set", "kv_heads=2")
MOE = (*_DECODER, "--set", "kv_heads=4", "--set", "experts=4", "--set", "active=2", "--set", "expert_inner=6")


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    monkeypatch.chdir(tmp_path)
    Path("step.txt").write_text("program pair\n%x: fp32[4]@1\n%2: fp32[4]@2 = send(%x) {to=2}\nreturn %2\n")
    Path("mlp.onnx").write_bytes(mlp().SerializeToString())
    Path("schedule.json").write_text("{}")
    return terminal(monkeypatch, capsys)


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))


@pytest.mark.usefixtures("no_torch")
def test_numpy_runs_without_pytorch(tessel: Tessel) -> None:
    """The second step uses the first one's weights and other samples. All strategies start with the same weights."""
    alone = tessel("run", "mlp", *SMALL, "--engine", "numpy", "--steps", 2, "--out", "alone.npz", "--json")
    spread = ("--data", 2, "--pipeline", 2, "--micro-batches", 2)
    both = tessel("run", "mlp", *SMALL, *spread, "--engine", "numpy", "--steps", 2, "--out", "spread.npz", "--json")
    assert (alone.code, both.code) == (0, 0)
    assert {name: both.document[name] for name in ("engine", "seed", "steps", "devices", "peak_memory", "out")} == {
        "engine": "numpy",
        "seed": 0,
        "steps": 2,
        "devices": [1, 2, 3, 4],
        "peak_memory": None,
        "out": "spread.npz",
    }
    assert both.document["loss"] == pytest.approx(alone.document["loss"], rel=1e-5)
    assert both.document["loss"][0] != both.document["loss"][1]
    assert len(both.document["step_s"]) == 2
    with np.load("alone.npz") as wanted, np.load("spread.npz") as found:
        assert set(found) == set(wanted) == {"loss", "d.x", "d.w0", "d.w1", "w0", "w1"}
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
    people = tessel("run", "mlp", *SMALL, "--engine", "numpy", "--seed", 3).out.splitlines()
    assert people[0] == "mlp-2x8, 1 device, in NumPy, in one process"
    assert people[1].split() == ["step", "time", "loss"]


@pytest.mark.usefixtures("no_torch")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("mlp",), "--engine torch: needs PyTorch: pip install 'tessel-explorer[torch]'"),
        (("mlp", "--out", "o.csv"), "o.csv: must end in .npz"),
        (("mlp", "--out", "no/o.npz"), "no/o.npz: cannot be written: its folder is missing or not writable"),
        (("mlp", "--steps", 0), "--steps: must be between 1 and 1,000,000, got 0"),
        (("mlp", "--tensor", 3), "strategy 1/3/1/1 pipedream: a width of 512 does not divide among 3 devices"),
        (("mlp", "--set", "n=2"), "--n: is not a size of mlp, which has layers, width, batch, dtype"),
        (
            ("nothing",),
            "nothing: is neither a sample nor a file, `tessel samples` lists all samples; families are mlp, gpt",
        ),
        (("gone.onnx",), "gone.onnx: No such file or directory"),
        (("step.txt", "--tensor", 2), "--tensor: is for networks; a file takes only "),
        (("step.txt", "--measure"), "--measure: is for schedules, and step.txt is a program"),
        (("v-shape-4", "--steps", 2), "--steps: is for networks and programs, and v-shape-4 is neither"),
        (("v-shape-4", "--set", "n=2"), "--set: is for networks and programs, and v-shape-4 is neither"),
        (("v-shape-4", "--scale", 2), "--scale: needs --stand-ins"),
        (("v-shape-4", "--dtype", "fp16"), "--dtype: must be one of fp64, fp32, got 'fp16'"),
        (
            ("gpt", "--size", "gpt3-175b", "--dtype", "fp64"),
            "gpt-96x12288: needs at least 4.21 TB, and the machine has ",
        ),
    ],
)
def test_what_cannot_be_run_is_one_sentence(tessel: Tessel, words: tuple[object, ...], why: str) -> None:
    ended = tessel("run", *words)
    assert ended.code == 2
    assert ended.err.splitlines()[-1].startswith(f"error: {why}")
    assert not list(Path().glob("*.npz"))


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
def test_both_engines_write_the_same_file(tessel: Tessel) -> None:
    """For a family, and for programs from files, whose weights are drawn from the seed."""
    asked = [
        ("mlp", *SMALL, "--data", 2, "--zero", 1),
        ("llama", *LLAMA, "--context", 2),
        ("llama", *LLAMA, "--tensor", 2, "--sequence-parallel"),
        ("moe", *MOE, "--data", 2, "--expert", 2, "--zero", 3),
        ("mlp.onnx", "--set", "batch=4", "--data", 2),
        ("step.txt",),
    ]
    for words in asked:
        ran = [tessel("run", *words, "--engine", each, "--out", f"{each}.npz") for each in ("torch", "numpy")]
        assert [each.code for each in ran] == [0, 0]
        noted = f"note: {words[0]}: all inputs, including weights, are drawn from the seed\n"
        assert (noted in ran[0].err) == ("." in words[0])
        assert "2 devices, on PyTorch, 2 processes" in ran[0].out
        assert "peak memory per device: " in ran[0].out
        with np.load("torch.npz") as found, np.load("numpy.npz") as wanted:
            assert set(found) == set(wanted)
            for name, array in wanted.items():
                np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


def test_a_file_of_tensors_is_the_same_for_the_same_tensors(tmp_path: Path) -> None:
    tensors = {"file": np.arange(3), "a/b": np.ones((2, 0)), "x.d0": np.float32(2)}
    (tmp_path / "t.npz").write_bytes(tensors_npz(tensors))
    assert tensors_npz(tensors) == (tmp_path / "t.npz").read_bytes()
    with np.load(tmp_path / "t.npz") as found:
        assert list(found) == list(tensors)
        for name, array in tensors.items():
            np.testing.assert_array_equal(found[name], array)
