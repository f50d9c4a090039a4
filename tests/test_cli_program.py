"""`tessel program`: from a graph, its placement and a schedule to a program that simulates, runs and is read back."""

from __future__ import annotations

from pathlib import Path

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
    """In a folder with a small GPT's graph, its placement on two devices, the plan and a schedule of it."""
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


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("mlp", *ASKED[2:]), "error: hidden: is no option here, known are"),
        (("program", "gpt", *ASKED[-4:]), "error: p.json: is of another graph than gpt with these options"),
        ((*ASKED[:-1], "plan.json"), "error: plan.json: is a plan, where a schedule is wanted"),
        ((*ASKED[:-3], "s.json", *ASKED[-2:]), "error: s.json: is a schedule, where a placement is wanted"),
        ((*ASKED, "--optimizer", "lion"), "error: --optimizer: 'lion' is not known"),
        (
            ("program", "g.json", "--set", "layers=2", *ASKED[-4:]),
            "error: --set: is for networks, and g.json is a graph",
        ),
        (("program", "p.json", *ASKED[-4:]), "error: p.json: "),
        (
            ("program", "other.json", *ASKED[-4:]),
            "error: other.json: graph gpt-training: was changed, so it does not show",
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
    """In training and in inference; with other sizes it is another graph."""
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
    assert (other.code, other.err.splitlines()[-1][:41]) == (2, "error: p.json: is of another graph than t")
    assert run("program", "m.onnx", "--preset", "x", *asked).err.startswith("error: --preset: is for networks")
