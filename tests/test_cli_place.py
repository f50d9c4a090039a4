"""`tessel place` and `tessel check` on graphs and placements: documents, exit codes, one line for every error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.onnx_models import mlp
from test_placement_formats import GRAPH, PUBLISHED

from tessel_core import cli

KEYS = ["status", "objective_name", "objective", "bound", "gap", "time_unit", "loads", "assignment", "wall_s"]
Tessel = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    """Runs a command in a folder with a published graph `p.json`, a graph of ours `g.json` and a model `m.onnx`."""
    monkeypatch.chdir(tmp_path)
    Path("p.json").write_text(json.dumps(PUBLISHED))
    Path("g.json").write_text(json.dumps(GRAPH))
    Path("m.onnx").write_bytes(mlp().SerializeToString())

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tessel", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, said.out, said.err

    return run


def document(ended: tuple[int, str, str]) -> Any:
    assert ended[1].count("\n") == 1
    return json.loads(ended[1])


def test_a_published_graph_says_its_devices(tessel: Tessel) -> None:
    """8 runs on the host only: 4 ms.  7 and 9 stay together: 2.5 ms and 0.5 ms for the tensor to 8."""
    ended = tessel("place", "p.json", "--json", "--out", "out.json")
    said = document(ended)
    assert ended[0] == 0
    assert list(said)[: len(KEYS)] == KEYS
    assert (said["status"], said["objective_name"], said["time_unit"]) == ("PROVED_OPTIMAL", "throughput", "ms")
    assert (said["objective"], said["bound"], said["gap"]) == (4, 4, 0)
    assert set(said["loads"]) == {"acc0", "acc1", "cpu0"}
    assert max(said["loads"].values()) == 4
    assert said["assignment"]["8"] == "cpu0"
    assert said["assignment"]["7"] == said["assignment"]["9"]
    assert tessel("check", "p.json", "out.json")[0] == 0


def test_a_graph_of_ours_takes_its_devices_from_the_options(tessel: Tessel) -> None:
    said = document(tessel("place", "g.json", "--accelerators", "2", "--json", "--out", "out.json"))
    assert (said["time_unit"], said["objective"]) == ("s", 4e-3)
    assert said["assignment"]["b"] == said["assignment"]["c"] != said["assignment"]["a"]
    assert tessel("check", "out.json", "g.json")[0] == 0
    code, _, err = tessel("place", "g.json")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("error: --accelerators: is missing")


def test_options_replace_what_the_file_says(tessel: Tessel) -> None:
    said = document(tessel("place", "p.json", "--cpus", "2", "--accelerators", "1", "--json"))
    assert set(said["loads"]) == {"acc0", "cpu0", "cpu1"}


def test_too_little_memory_is_infeasible_and_says_what_would_do(tessel: Tessel) -> None:
    ended = tessel("place", "g.json", "--accelerators", "2", "--memory", "9", "--json", "--out", "none.json")
    said = document(ended)
    assert (ended[0], said["status"], said["assignment"], said["least_memory"]) == (1, "INFEASIBLE", None, 10)
    assert "operator a" in said["reason"]
    assert not Path("none.json").exists()
    said = document(tessel("place", "g.json", "--accelerators", "1", "--memory", "10", "--json"))
    assert (said["status"], said["least_memory"], said["least_accelerators"]) == ("INFEASIBLE", 17, 2)


def test_a_changed_placement_is_not_valid(tessel: Tessel) -> None:
    tessel("place", "p.json", "--out", "out.json")
    kept = json.loads(Path("out.json").read_text())
    kept["assignment"]["9"] = "acc1" if kept["assignment"]["9"] == "acc0" else "acc0"
    Path("out.json").write_text(json.dumps(kept))
    code, out, _ = tessel("check", "p.json", "out.json", "--json")
    assert code == 1
    assert [each["valid"] for each in json.loads(out)] == [True, False]


def test_a_placement_without_its_graph_is_an_error(tessel: Tessel) -> None:
    tessel("place", "p.json", "--out", "out.json")
    code, _, err = tessel("check", "g.json", "out.json")
    assert (code, err.count("\n")) == (2, 1)
    assert "is not among the files" in err


def test_a_split_by_hand_is_checked_on_the_published_graph(tessel: Tessel) -> None:
    Path("split.json").write_text(json.dumps({"fpgas": [{"nodes": [7]}], "cpus": [{"nodes": [8]}]}))
    assert tessel("check", "p.json", "split.json")[0] == 0
    Path("split.json").write_text(json.dumps({"fpgas": [{"nodes": [7, 8]}], "cpus": []}))
    code, out, _ = tessel("check", "p.json", "split.json")
    assert code == 1
    assert "operator 8" in out
    assert tessel("check", "split.json")[0] == 2


def test_a_model_is_checked_and_what_it_leaves_open_is_noted(tessel: Tessel) -> None:
    code, out, err = tessel("check", "m.onnx")
    assert (code, out) == (0, "m.onnx: valid\n")
    assert err == "note: m.onnx: the file leaves batch open; it is taken as 1\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("place", "p.json", "--objective", "speed"), "'speed' is not known"),
        (("place", "p.json", "--placer", "magic"), "'magic' is not known, known are dp"),
        (("place", "p.json", "--accelerators", "0", "--cpus", "0"), "there are none"),
        (("place", "p.json", "--memory", "-1"), "must not be negative"),
        (("place", "p.json", "--cpus", "0"), "operator 8: fits nowhere"),
        (("place", "none.json"), "No such file"),
        (("place", "m.onnx", "--accelerators", "2"), "operator fc1: has no time, nor has any other one"),
        (("schedule", "m.onnx"), "is an operator graph, where a plan or a schedule is wanted"),
        (("place", "p.json", "--out", "p.json"), "is the file that is read"),
        (("schedule", "p.json"), "is an operator graph, where a plan or a schedule is wanted"),
    ],
)
def test_wrong_use_is_one_line(tessel: Tessel, words: tuple[str, ...], why: str) -> None:
    code, out, err = tessel(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    assert why in err


def test_people_see_a_table(tessel: Tessel) -> None:
    code, out, _ = tessel("place", "p.json")
    assert code == 0
    assert "Largest load 4 ms, proved optimal" in out
    assert "cpu0" in out
