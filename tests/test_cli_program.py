"""`tessel program` turns a graph, its placement and a schedule into a program that simulates, runs and reads back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.onnx_models import cnn
from helpers.terminal import Tessel, terminal

from tessel_core.ir.text import read_program

OPTIONS = {
    **{"training": "true", "micro-batch": 2, "layers": 2, "hidden": 32, "heads": 4},
    **{"sequence": 8, "positions": 8, "vocabulary": 64, "dtype": "fp32"},
}
NETWORK = ("gpt", *(word for name, value in OPTIONS.items() for word in ("--set", f"{name}={value}")))
ASKED = ("program", *NETWORK, "--placement", "p.json", "--schedule", "s.json")


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    """Return a function that runs a command in a folder with test files.

    They are a small GPT, its placement on two devices, its plan and a schedule.
    """
    monkeypatch.chdir(tmp_path)
    run = terminal(monkeypatch, capsys)
    assert run("graph", *NETWORK, "--out", "g.json").code == 0
    assert run("place", "g.json", "--mesh", "h200-2", "--out", "p.json").code == 0
    assert run("plan", "g.json", "p.json", "--mesh", "h200-2", "--out", "plan.json").code == 0
    Path("other.json").write_text(Path("g.json").read_text().replace("layers=2", "layers=3"))
    assert run("schedule", "plan.json", "--scheduler", "1f1b", "--micro-batches", 4, "--out", "s.json").code == 0
    return run


def test_the_whole_road(tessel: Tessel) -> None:
    said = tessel(*ASKED, "--out", "step.txt", "--json")
    assert (said.code, said.err) == (0, "")
    found = said.document
    program = read_program(Path("step.txt").read_text(), "step.txt")
    assert found["operations"] == len(program.ops)
    assert found["devices"] == [1, 2]
    parts = found["difference_s"]
    assert found["latency_s"] == pytest.approx(found["schedule_s"] + parts["transfers"] + parts["optimizer"])
    assert parts["optimizer"] > 0
    of_graph = tessel("program", "g.json", *ASKED[-4:], "--json").document
    assert of_graph == found
    simulated = tessel("simulate", "step.txt", "--mesh", "h200-2", "--json").document
    assert simulated["latency_s"] == found["latency_s"]
    assert simulated["peak_memory"] == found["peak_memory"]
    alone = tessel(*ASKED, "--optimizer", "none", "--json").document
    assert alone["latency_s"] == pytest.approx(found["latency_s"] - parts["optimizer"])
    shown = tessel(*ASKED)
    assert shown.code == 0
    assert "transfers that wait for each other" in shown.out
    ran = tessel("run", "step.txt", "--engine", "numpy", "--json")
    assert ran.code == 0
    assert ran.document["devices"] == [1, 2]


@pytest.mark.parametrize("degree", [1, 2], ids=["copies", "shares"])
@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
def test_groups_of_devices(tessel: Tessel, degree: int) -> None:
    """Each stage is on two devices. The program is simulated on the mesh, and both engines run it."""
    network = (*NETWORK, "--set", f"tensor-parallel={degree}")
    assert tessel("graph", *network, "--out", "g.json").code == 0
    assert tessel("place", "g.json", "--mesh", "h200-4", "--out", "p.json").code == 0
    placed = json.loads(Path("p.json").read_text())
    pairs = {"gpu0": ["gpu0", "gpu1"], "gpu1": ["gpu0", "gpu1"], "gpu2": ["gpu2", "gpu3"], "gpu3": ["gpu2", "gpu3"]}
    placed["assignment"] = {operator: pairs[device] for operator, device in placed["assignment"].items()}
    Path("p.json").write_text(json.dumps(placed))
    assert tessel("plan", "g.json", "p.json", "--mesh", "h200-4", "--out", "plan.json").code == 0
    asked = ("plan.json", "--scheduler", "sequential", "--micro-batches", 3)
    assert tessel("schedule", *asked, "--out", "s.json").code == 0
    written = ("--mesh", "h200-4", "--optimizer", "none", "--out", "step.txt", "--json")
    said = tessel("program", *network, *ASKED[-4:], *written)
    assert (said.code, said.document["devices"]) == (0, [1, 2, 3, 4])
    assert 0 <= said.document["difference_s"]["transfers"] < 0.1 * said.document["schedule_s"]
    for engine in ("numpy", "torch"):
        assert tessel("run", "step.txt", "--engine", engine, "--out", f"{engine}.npz", "--json").code == 0
    one, other = (np.load(f"{engine}.npz") for engine in ("numpy", "torch"))
    assert set(one.files) == set(other.files)
    for name in one.files:
        np.testing.assert_allclose(one[name], other[name], rtol=0, atol=1e-5 * max(1e-3, np.abs(one[name]).max()))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("mlp", *ASKED[2:]), "error: hidden: is no option here, choose from"),
        (("program", "gpt", *ASKED[-4:]), "error: p.json: belongs to another graph than gpt with these options"),
        ((*ASKED[:-1], "plan.json"), "error: plan.json: is a plan, but a schedule is needed"),
        ((*ASKED[:-3], "s.json", *ASKED[-2:]), "error: s.json: is a schedule, but a placement is needed"),
        ((*ASKED, "--optimizer", "lion"), "error: --optimizer: 'lion' is not known"),
        (
            ("program", "g.json", "--set", "layers=2", *ASKED[-4:]),
            "error: --set: is for networks, and g.json is a graph",
        ),
        (("program", "p.json", *ASKED[-4:]), "error: p.json: "),
        (
            ("program", "other.json", *ASKED[-4:]),
            "error: other.json: graph gpt-training: was changed, so it no longer shows",
        ),
        ((*ASKED, "--per-node", 2), "error: --per-node: is for a --mesh named KIND-COUNT"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(tessel: Tessel, words: tuple[object, ...], complaint: str) -> None:
    words = words if words[0] == "program" else ("program", *words)
    ended = tessel(*words, "--out", "step.txt")
    assert ended.code == 2
    assert complaint in ended.err
    assert ended.err.count("\n") == 1
    assert not Path("step.txt").exists()


@pytest.mark.parametrize("training", [True, False])
def test_a_placed_model_has_a_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, training: bool
) -> None:
    """In training and in inference. With other sizes it is another graph."""
    monkeypatch.chdir(tmp_path)
    run = terminal(monkeypatch, capsys)
    Path("m.onnx").write_bytes(cnn("batch").SerializeToString())
    words = ("m.onnx", "--set", "batch=2", *(("--set", "training=true") if training else ()))
    assert run("graph", *words, "--out", "g.json").code == 0
    assert run("place", "g.json", "--mesh", "h200-2", "--out", "p.json").code == 0
    assert run("plan", "g.json", "p.json", "--mesh", "h200-2", "--out", "plan.json").code == 0
    assert run("schedule", "plan.json", "--scheduler", "1f1b", "--micro-batches", 4, "--out", "s.json").code == 0
    asked = ("--placement", "p.json", "--schedule", "s.json")
    found = run("program", *words, *asked, "--out", "step.txt", "--json").document
    parts = found["difference_s"]
    assert found["latency_s"] == pytest.approx(found["schedule_s"] + parts["transfers"] + parts["optimizer"])
    assert (parts["optimizer"] > 0) == training
    program = read_program(Path("step.txt").read_text(), "step.txt")
    assert len(program.ops) == found["operations"]
    other = run("program", "m.onnx", *asked)
    assert (other.code, other.err.splitlines()[-1][:39]) == (2, "error: p.json: belongs to another graph")
    assert run("program", "m.onnx", "--preset", "x", *asked).err.startswith("error: --preset: is for networks")
