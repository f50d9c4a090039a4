"""`tessel place` and `tessel check` on a mesh: costs, pins, dependencies of files, one line per error."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.terminal import Tessel, terminal
from test_placement_formats import PUBLISHED

from tessel_core.costs.meshes import uniform_mesh
from tessel_core.formats import MeshFile, graph_text, mesh_text
from tessel_core.formats.files import read_mesh_file
from tessel_core.model import Device, DeviceMesh, DeviceTime, Edge, Link, Operator, OperatorGraph
from tessel_core.networks.graphs.files import read_graph_file

TIMES = (DeviceTime("gpu", 2.0),)
CHAIN = OperatorGraph(
    "chain",
    tuple(
        Operator(name, times=TIMES, weight_bytes=100, activation_bytes=8, output_bytes=10) for name in ("a", "b", "c=d")
    ),
    (Edge("a", "b"), Edge("b", "c=d", 4)),
)
"""Operators of 2 s each. On MESH, the output of a takes 1 + 10 / 10 s, and that of b 1 + 4 / 10 s."""
MESH = DeviceMesh("pair", tuple(Device(f"d{i}", "gpu", 0, 400) for i in range(2)), same_node_link=Link(10.0, 1.0))
TRAINING = OperatorGraph(
    "training",
    (
        Operator("f", "matmul", flops=1e12, bytes=1e9, weight_bytes=1000, activation_bytes=50),
        Operator("g", "matmul", flops=1e12, bytes=1e9, weight_bytes=1000, activation_bytes=50),
        Operator("b", "matmul", flops=2e12, bytes=1e9, backward=True, forward_of="f"),
    ),
    (Edge("f", "g", 8), Edge("f", "b", 8)),
)


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    """Return a function that runs a command in a folder with three graphs and the mesh `pair.json`."""
    monkeypatch.chdir(tmp_path)
    Path("chain.json").write_text(graph_text(CHAIN))
    Path("t.json").write_text(graph_text(TRAINING))
    Path("p.json").write_text(json.dumps(PUBLISHED))
    Path("pair.json").write_text(mesh_text(MESH))
    return terminal(monkeypatch, capsys)


def document(ended: tuple[int, str, str]) -> Any:
    assert ended[1].count("\n") == 1
    return json.loads(ended[1])


def kept(path: str = "out.json") -> Any:
    return json.loads(Path(path).read_text())


def change(**keys: object) -> None:
    Path("out.json").write_text(json.dumps({**kept(), **keys}))


def verdict(tessel: Tessel, *files: str) -> tuple[int, list[str]]:
    """Return the exit code and the rules that the last file breaks."""
    code, out, err = tessel("check", *files, "out.json", "--json")
    return code, [each["rule"] for each in json.loads(out)[-1]["violations"]] if out else [err]


@pytest.mark.parametrize(
    ("communication", "largest", "loads"), [("overlapped", 4.0, [2.0, 4.0]), ("blocking", 5.4, [3.4, 5.4])]
)
def test_transfers_load_devices_only_where_they_block(
    tessel: Tessel, communication: str, largest: float, loads: list[float]
) -> None:
    """Three operators of 2 s are on two devices. If transfers block, the cut of 4 bytes takes 1.4 s of both devices."""
    place = ("place", "chain.json", "--mesh", "pair.json", "--communication", communication, "--in-flight", "2")
    said = document(tessel(*place, "--json", "--out", "out.json"))
    assert (said["status"], said["time_unit"]) == ("PROVED_OPTIMAL", "s")
    assert (said["objective"], said["bound"]) == (pytest.approx(largest), pytest.approx(largest))
    assert sorted(said["loads"].values()) == pytest.approx(loads)
    assert set(said["loads"]) == {"d0", "d1"}
    file = kept()
    assert (file["graph"], file["mesh"], file["devices"]) == (
        read_graph_file(Path("chain.json")).fingerprint,
        MeshFile.of(MESH).fingerprint,
        None,
    )
    assert file["report"]["communication"] == communication
    assert file["report"]["costs"] == {"dtype": "bf16", "optimizer": "adam-mixed", "in_flight": 2}
    assert verdict(tessel, "chain.json", "pair.json") == (0, [])


def test_overlapped_is_what_a_mesh_means_if_nothing_is_said(tessel: Tessel) -> None:
    tessel("place", "chain.json", "--mesh", "pair.json", "--out", "out.json")
    assert kept()["report"]["communication"] == "overlapped"
    report = {key: value for key, value in kept()["report"].items() if key not in ("communication", "costs")}
    change(report=report)
    assert verdict(tessel, "chain.json", "pair.json") == (0, [])


def test_a_claim_is_judged_by_the_costs_that_it_names(tessel: Tessel) -> None:
    """The placement stays and the costs in the file change. The claimed load, then the memory, become wrong."""
    tessel("place", "chain.json", "--mesh", "pair.json", "--communication", "blocking", "--out", "out.json")
    report = kept()["report"]
    change(report={**report, "communication": "overlapped"})
    assert verdict(tessel, "chain.json", "pair.json") == (1, ["claims"])
    change(report={**report, "costs": {"in_flight": 30}})
    assert verdict(tessel, "chain.json", "pair.json") == (1, ["memory"])
    for costs, why in (({"in_flight": 0}, "must be between 1 and 4096"), ({"speed": 1}, "speed: is no option here")):
        change(report={**report, "costs": costs})
        code, said = verdict(tessel, "chain.json", "pair.json")
        assert code == 2
        assert why in said[0]


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (("chain.json",), "mesh: "),
        (("pair.json",), "graph: "),
        (("pair.json", "t.json"), "graph: "),
        (("chain.json", "other.json"), "mesh: "),
    ],
)
def test_a_placement_without_its_graph_or_mesh_is_an_error(tessel: Tessel, files: tuple[str, ...], why: str) -> None:
    tessel("place", "chain.json", "--mesh", "pair.json", "--out", "out.json")
    Path("other.json").write_text(mesh_text(uniform_mesh("h200", 1, 2)))
    code, out, err = tessel("check", *files, "out.json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: out.json: {why}")
    assert "among the files" in err


def test_a_placement_on_a_preset_needs_no_mesh_file(tessel: Tessel) -> None:
    assert tessel("place", "t.json", "--mesh", "h200-2", "--out", "out.json").code == 0
    assert tessel("check", "t.json", "out.json").out == "t.json: valid\nout.json: valid\n"


def test_a_placement_by_hand_is_judged(tessel: Tessel) -> None:
    """A file without a report is checked with the defaults.

    Each device of a group holds the operator: 3 · 108 of 400 bytes.
    """
    hashes = {"graph": read_graph_file(Path("chain.json")).fingerprint, "mesh": MeshFile.of(MESH).fingerprint}
    by_hand: dict[str, Any] = {"format": "tessel-placement", "version": 1, **hashes}
    for assignment, rules in (
        ({"a": ["d0", "d1"], "b": ["d0", "d1"], "c=d": ["d0", "d1"]}, []),
        ({"a": "d0", "b": "d1", "c=d": "d1"}, []),
        ({"a": "d0", "b": "d1", "c=d": "d0"}, ["contiguous"]),
        ({"a": "d0", "b": "d1"}, ["assigned"]),
    ):
        Path("out.json").write_text(json.dumps({**by_hand, "assignment": assignment}))
        assert verdict(tessel, "chain.json", "pair.json") == (int(bool(rules)), rules)
    Path("out.json").write_text(json.dumps({**by_hand, "assignment": {"a": "d7"}}))
    code, said = verdict(tessel, "chain.json", "pair.json")
    assert code == 2
    assert "assignment.a: unknown device 'd7'" in said[0]


def test_times_and_memory_are_derived_on_a_preset(tessel: Tessel) -> None:
    """1000 bytes of bf16 weights are 500 parameters of 16 bytes in training. In fp32 they are 250 of 20 bytes."""
    for options, held in (((), "16.1 kB"), (("--dtype", "fp32", "--in-flight", "3"), "10.3 kB")):
        code, out, _ = tessel("place", "t.json", "--mesh", "h200-1", "--optimizer", "adam-mixed", *options)
        assert code == 0
        assert re.search(rf"^gpu0 +h200 +3 .* {held} +150 GB *$", out, re.MULTILINE)
    assert document(tessel("place", "t.json", "--mesh", "h200-1", "--json"))["objective"] >= 4e12 / 989e12


def test_too_little_memory_names_what_would_do(tessel: Tessel) -> None:
    ended = tessel("place", "chain.json", "--mesh", "pair.json", "--in-flight", "40", "--json", "--out", "out.json")
    said = document(ended)
    assert (ended[0], said["status"], said["least_memory"]) == (1, "INFEASIBLE", 840)
    assert not Path("out.json").exists()


def test_a_mesh_may_be_a_file_a_sample_or_a_preset(tessel: Tessel) -> None:
    Path("mine").write_text(mesh_text(uniform_mesh("h100", 1, 1, "mine")))
    for mesh, devices in (("mine", 1), ("h200-16", 16), ("h100-2", 2)):
        assert len(document(tessel("place", "t.json", "--mesh", mesh, "--json"))["loads"]) == devices
    tessel("samples", "h200-8-a100-8", "--out", "mixed.json")
    tessel("place", "t.json", "--mesh", "h200-8-a100-8", "--out", "out.json")
    assert kept()["mesh"] == read_mesh_file(Path("mixed.json")).fingerprint
    assert verdict(tessel, "t.json", "mixed.json") == (0, [])


@pytest.mark.parametrize("where", [("--mesh", "pair.json"), ("--accelerators", "2")])
def test_pins_and_forbidden_devices_are_kept(tessel: Tessel, where: tuple[str, ...]) -> None:
    one, other = ("d0", "d1") if where[0] == "--mesh" else ("acc0", "acc1")
    place = ("place", "chain.json", *where, "--json", "--out", "out.json")
    said = document(tessel(*place, "--pin", f"a={other}", "--forbid", f"c=d={other}"))
    assert (said["assignment"]["a"], said["assignment"]["c=d"]) == (other, one)
    assert kept()["report"]["allowances"] == {"a": [other], "c=d": [one]}
    files = ("chain.json", "pair.json") if where[0] == "--mesh" else ("chain.json",)
    assert verdict(tessel, *files) == (0, [])
    change(report={**kept()["report"], "allowances": {"a": [one]}})
    assert verdict(tessel, *files) == (1, ["allowances"])
    said = document(tessel(*place, "--pin", f"b={one},{other}", "--forbid", f"b={one}"))
    assert said["assignment"]["b"] == other


def test_operators_of_a_published_file_answer_to_its_names_too(tessel: Tessel) -> None:
    """An operator can be named as in the file, if that name is text, unique and not an index."""
    nodes = [{**node, "name": name} for node, name in zip(PUBLISHED["nodes"], ("8", "host op", "twin"), strict=True)]
    nodes += [{**nodes[1], "id": 10, "name": "twin"}, {**nodes[1], "id": 11, "name": 5}]
    Path("named.json").write_text(json.dumps({**PUBLISHED, "nodes": nodes}))
    place = ("place", "named.json", "--json", "--cpus", "2")
    for words in ("host op=cpu1", "8=cpu1"):
        assert document(tessel(*place, "--pin", words))["assignment"]["8"] == "cpu1"
    assert document(tessel(*place, "--forbid", "host op=cpu0"))["assignment"]["8"] == "cpu1"
    for words, why in (
        ("twin=cpu1", "several operators are called 'twin'; use an id: 9, 10"),
        ("5=cpu1", "unknown"),
    ):
        code, _, err = tessel(*place, "--pin", words)
        assert code == 2
        assert why in err
    assert tessel(*place, "--pin", "8=cpu0", "--pin", "host op=cpu1").err.startswith(
        "error: --pin: operator 8 is pinned"
    )


MIXED = ("place", "chain.json", "--mesh", "pair.json")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*MIXED, "--accelerators", "2"), "--mesh: already determines the devices, so leave out --accelerators"),
        ((*MIXED, "--cpus", "0"), "so leave out --cpus"),
        ((*MIXED, "--memory", "5"), "so leave out --memory"),
        (("place", "p.json", "--mesh", "pair.json"), "--mesh: needs a tessel-graph: a published graph has times"),
        (("place", "chain.json"), "--accelerators: is missing: the graph has no devices of its own"),
        (("place", "p.json", "--in-flight", "2"), "--in-flight: is an option of costs on a mesh, so give --mesh too"),
        (("place", "p.json", "--communication", "blocking"), "--communication: is an option of costs on a mesh"),
        ((*MIXED[:2], "--mesh", "h20-8"), "--mesh: 'h20-8' is neither a file nor the name of a mesh, did you mean"),
        ((*MIXED[:2], "--mesh", "h200-9"), "mesh h200-9: 9 devices do not fill nodes of 8"),
        ((*MIXED[:2], "--per-node", "4"), "--per-node: is for a --mesh named KIND-COUNT"),
        ((*MIXED[:2], "--mesh", "laptop-cpu", "--per-node", "4"), "--per-node: is for meshes named KIND-COUNT"),
        ((*MIXED[:2], "--mesh", "tpu"), "presets are h200-1, "),
        ((*MIXED[:2], "--mesh", "x" * 5000), "is neither a file nor the name of a mesh"),
        ((*MIXED[:2], "--mesh", "none.json"), "none.json: No such file"),
        ((*MIXED[:2], "--mesh", "t.json"), "t.json: is an operator graph, but a device mesh is needed"),
        ((*MIXED[:2], "--mesh", "h200-2"), "operator a: fits nowhere"),
        (("place", "bare.json", "--mesh", "h200-2"), "operator a: has no time, and no flops or bytes from which"),
        (("place", "edges.json", *MIXED[2:], "--communication", "blocking"), "edge a -> b: has no bytes"),
        (("place", "pair.json", "--mesh", "h200-2"), "pair.json: is a device mesh, but an operator graph is needed"),
        ((*MIXED, "--dtype", "int3"), "--dtype: must be one of fp32, "),
        ((*MIXED, "--optimizer", "lion"), "--optimizer: must be one of adam-mixed, "),
        ((*MIXED, "--in-flight", "0"), "--in-flight: must be between 1 and 4096, got 0"),
        ((*MIXED, "--communication", "free"), "'free' is not one of 'blocking', 'overlapped'"),
        ((*MIXED, "--pin", "a"), "--pin: must be OPERATOR=DEVICE[,DEVICE], got 'a'"),
        ((*MIXED, "--pin", "a=,"), "--pin: must be OPERATOR=DEVICE[,DEVICE], got 'a=,'"),
        ((*MIXED, "--pin", "z=d0"), "--pin: unknown operator 'z'"),
        ((*MIXED, "--forbid", "a=d9"), "--forbid: unknown device 'd9' for operator a"),
        ((*MIXED, "--pin", "a=d0", "--pin", "a=d1"), "--pin: operator a is pinned twice"),
        ((*MIXED, "--forbid", "a=d0", "--forbid", "a=d1"), "--forbid: leaves no device for operator a"),
    ],
)
def test_wrong_use_is_one_line(tessel: Tessel, words: tuple[str, ...], said: str) -> None:
    two = tuple(Operator(name, times=TIMES) for name in "ab")
    Path("bare.json").write_text(graph_text(OperatorGraph("bare", (Operator("a"),))))
    Path("edges.json").write_text(graph_text(OperatorGraph("edges", two, (Edge("a", "b"),))))
    code, out, err = tessel(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    assert said in err
