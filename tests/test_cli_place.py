"""`tessel place` and `tessel check` on graphs and placements: documents, exit codes, one line per error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.onnx_models import mlp
from helpers.terminal import Tessel, terminal
from test_placement_formats import GRAPH, PUBLISHED

from tessel_core.placement import PLACERS

KEYS = ["status", "objective_name", "objective", "bound", "gap", "time_unit", "loads", "assignment", "wall_s"]


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    """Return a function that runs a command in a folder with graphs `p.json` and `g.json` and a model `m.onnx`."""
    monkeypatch.chdir(tmp_path)
    Path("p.json").write_text(json.dumps(PUBLISHED))
    Path("g.json").write_text(json.dumps(GRAPH))
    Path("m.onnx").write_bytes(mlp().SerializeToString())
    return terminal(monkeypatch, capsys)


def document(ended: tuple[int, str, str]) -> Any:
    assert ended[1].count("\n") == 1
    return json.loads(ended[1])


def test_a_published_graph_says_its_devices(tessel: Tessel) -> None:
    """Operator 8 only runs on the host, for 4 ms. 7 and 9 stay together: 2.5 ms, and 0.5 ms for the tensor to 8."""
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


@pytest.mark.parametrize(
    "placer", [name for name, each in PLACERS.items() if not each.judges and not each.several_stages]
)
def test_what_fits_nowhere_is_no_wrong_input(tessel: Tessel, placer: str) -> None:
    """Operator a holds 10 bytes. Every placer returns exit code 1 and one document."""
    kind = PLACERS[placer]
    words = ["--objective", kind.objectives[0], *(() if True in kind.contiguous else ("--non-contiguous",))]
    words += [] if False in kind.replicates else ["--replicate"]
    ended = tessel("place", "g.json", "--accelerators", "2", "--memory", "9", "--placer", placer, *words, "--json")
    said = ended.document
    assert (ended.code, said["status"], said["least_memory"]) == (1, "INFEASIBLE", 10)
    assert "operator a" in said["reason"]


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
        (("place", "p.json", "--placer", "magic"), "'magic' is not known, choose from dp"),
        (("place", "p.json", "--accelerators", "0", "--cpus", "0"), "there are none"),
        (("place", "p.json", "--memory", "-1"), "must not be negative"),
        (("place", "p.json", "--cpus", "0"), "operator 8: fits nowhere"),
        (("place", "none.json"), "No such file"),
        (("place", "m.onnx", "--accelerators", "2"), "operator fc1: has no time, nor has any other operator"),
        (("schedule", "m.onnx"), "is an ONNX model, but a plan or a schedule is needed"),
        (("place", "p.json", "--out", "p.json"), "is the input file"),
        (("schedule", "p.json"), "is an operator graph, but a plan or a schedule is needed"),
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


def test_a_latency_says_its_subgraphs_and_is_checked(tessel: Tessel) -> None:
    ended = tessel("place", "p.json", "--objective", "latency", "--subgraphs", "2", "--json", "--out", "out.json")
    said = document(ended)
    assert (ended[0], said["status"], said["objective_name"]) == (0, "PROVED_OPTIMAL", "latency")
    assert said["subgraphs"].keys() == said["assignment"].keys()
    assert set(said["subgraphs"].values()) <= {0, 1}
    assert tessel("check", "p.json", "out.json")[0] == 0
    kept = json.loads(Path("out.json").read_text())
    kept["report"]["objective"] /= 2
    Path("out.json").write_text(json.dumps(kept))
    code, out, _ = tessel("check", "p.json", "out.json")
    assert code == 1
    assert "claims a latency of" in out
    del kept["subgraphs"]
    Path("out.json").write_text(json.dumps(kept))
    code, out, _ = tessel("check", "p.json", "out.json")
    assert code == 1
    assert "a latency needs them" in out


def test_a_latency_has_placers_of_its_own(tessel: Tessel) -> None:
    for placer in ("latency-greedy", "latency-dp"):
        said = document(tessel("place", "p.json", "--objective", "latency", "--placer", placer, "--json"))
        assert said["objective"] > 0
    code, _, err = tessel("place", "p.json", "--objective", "latency", "--placer", "dp")
    assert (code, err.count("\n")) == (2, 1)
    assert "does not support the objective latency" in err
    code, _, err = tessel("place", "p.json", "--objective", "latency", "--non-contiguous")
    assert (code, err.count("\n")) == (2, 1)


def test_any_sets_are_written_as_such_and_checked_without_the_chain(tessel: Tessel) -> None:
    """A chain of 1, 2 and 1 ms: two contiguous parts have a load of 3, both ends together have 2."""
    node = {"supportedOnFpga": 1, "cpuLatency": 9, "isBackwardNode": 0}
    nodes = [{**node, "id": i, "fpgaLatency": time} for i, time in ((1, 1), (2, 2), (3, 1))]
    edges = [{"sourceId": 1, "destId": 2, "cost": 0}, {"sourceId": 2, "destId": 3, "cost": 0}]
    line = {"maxSizePerFPGA": 9, "maxFPGAs": 2, "maxCPUs": 0, "nodes": nodes, "edges": edges}
    Path("line.json").write_text(json.dumps(line))
    assert document(tessel("place", "line.json", "--json"))["objective"] == 3
    ended = tessel(
        "place", "line.json", "--non-contiguous", "--workers", "1", "--seed", "4", "--json", "--out", "o.json"
    )
    said = document(ended)
    assert (said["status"], said["objective"], said["bound"]) == ("PROVED_OPTIMAL", 2, 2)
    assert json.loads(Path("o.json").read_text())["report"]["contiguous"] is False
    assert tessel("check", "line.json", "o.json")[0] == 0
    kept = json.loads(Path("o.json").read_text())
    kept["report"]["contiguous"] = True
    Path("o.json").write_text(json.dumps(kept))
    assert tessel("check", "line.json", "o.json")[0] == 1


def test_passes_apart_are_an_objective_of_their_own(tessel: Tessel) -> None:
    ended = tessel("place", "p.json", "--objective", "forward-backward", "--json", "--out", "o.json")
    said = document(ended)
    assert (said["status"], said["objective_name"]) == ("PROVED_OPTIMAL", "forward-backward")
    assert tessel("check", "p.json", "o.json")[0] == 0
    kept = json.loads(Path("o.json").read_text())
    kept["report"]["objective"] += 1
    Path("o.json").write_text(json.dumps(kept))
    assert tessel("check", "p.json", "o.json")[0] == 1


def test_a_split_by_hand_is_judged(tessel: Tessel) -> None:
    Path("split.json").write_text(json.dumps({"fpgas": [{"nodes": [7]}], "cpus": [{"nodes": [8]}]}))
    said = document(tessel("place", "p.json", "--split", "split.json", "--json"))
    assert said["assignment"] == {"7": "acc0", "8": "cpu0", "9": "acc0"}
    code, _, err = tessel("place", "p.json", "--split", "split.json", "--placer", "dp")
    assert (code, err) == (
        2,
        "error: --placer: dp searches, but --split and --layout already place all operators: leave it out\n",
    )
    code, _, err = tessel("place", "p.json", "--split", "p.json")
    assert (code, err) == (2, "error: p.json: is not a split; a split lists its parts in `fpgas` and `cpus`\n")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--placer", "dp", "--non-contiguous"), "placer dp: is for contiguous placements only"),
        (("--placer", "local-search"), "placer local-search: is for non-contiguous placements only"),
        (("--placer", "dp", "--objective", "forward-backward"), "does not support the objective forward-backward"),
        (("--placer", "expert"), "--placer: expert evaluates a placement made by hand, so give --split or --layout"),
        (("--placer", "cp-sat", "--workers", "0"), "--workers: must be between 1 and 64, got 0"),
    ],
)
def test_a_placer_that_does_not_serve_the_demand_says_so(tessel: Tessel, words: tuple[str, ...], why: str) -> None:
    code, out, err = tessel("place", "p.json", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    assert why in err


def test_replicas_are_asked_for_written_and_checked(tessel: Tessel) -> None:
    words = ("place", "g.json", "--accelerators", "2", "--replicate", "--reduction-bandwidth", "100000")
    said = document(tessel(*words, "--json", "--out", "out.json"))
    assert said["status"] == "PROVED_OPTIMAL"
    assert ["acc0", "acc1"] in said["assignment"].values()
    assert json.loads(Path("out.json").read_text())["report"]["replicas"] == {
        "reduce_every": 1,
        "bandwidth": 100000.0,
    }
    assert tessel("check", "out.json", "g.json")[0] == 0
    planned = document(tessel("plan", "g.json", "out.json", "--json"))
    assert [0, 1] in [block["devices"] for block in planned["plan"]["blocks"]]
    _, shown, _ = tessel(*words)
    assert "2 of 2" in shown


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--accelerators", "2", "--reduce-every", "2"), "--reduce-every: is an option of replicated stages"),
        (("--accelerators", "2", "--replicate", "--reduce-every", "0"), "--reduce-every: must be between"),
        (("--mesh", "h200-8", "--replicate", "--reduction-bandwidth", "2"), "--reduction-bandwidth: is for identical"),
        (("--accelerators", "2", "--replicate", "--non-contiguous"), "replicas: need a contiguous placement"),
        (("--accelerators", "2", "--replicate", "--stages-per-device", "2"), "replicas: need a placement with one"),
        (("--accelerators", "2", "--replicate", "--placer", "greedy"), "placer greedy: cannot replicate"),
        (("--accelerators", "2", "--placer", "data-parallel"), "placer data-parallel: is for replicated"),
    ],
)
def test_wrong_use_of_replicas_is_one_line(tessel: Tessel, words: tuple[str, ...], why: str) -> None:
    code, _, err = tessel("place", "g.json", *words)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"error: {why}")
