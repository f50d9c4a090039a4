"""The function `simulate`: its checks, its options, and the same from a terminal."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.programs import spread
from helpers.simulations import trained
from helpers.terminal import Tessel, terminal
from helpers.training import mlp_training

from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.formats import mesh_text
from tessel_core.ir import read_program
from tessel_core.ir.program import Op, Program
from tessel_core.ir.project import project
from tessel_core.ir.text import program_text
from tessel_core.ir.transforms.update import SgdUpdate
from tessel_core.ir.types import TensorType
from tessel_core.model import DeviceMesh
from tessel_core.networks.mlp import MlpSpec
from tessel_core.simulation import simulate
from tessel_core.simulation.costs import MeshCosts, costs_on
from tessel_core.simulation.distir_rules import DistIrCosts, with_host
from tessel_core.strategies.families import find_family
from tessel_core.strategies.grid import Grid, evaluate_grid, ranges
from tessel_core.strategies.strategy import Semantics, simulate_strategy

MESH = replace(find_mesh("v100-16"), name="one port", node_uplink=12.5e9)
"""Two nodes of eight, each with one port to the other."""
X = TensorType("fp32", (4,), 1)


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    monkeypatch.chdir(tmp_path)
    Path("port.json").write_text(mesh_text(MESH))
    return terminal(monkeypatch, capsys)


def crossing() -> Program:
    """Return two replicas, one per node, whose all-reductions cross."""
    model = mlp_training(MlpSpec(4, 256, 64, "fp32"))
    return SgdUpdate()(spread(model, 2, 2, 4, 2)).program


def test_the_costs_are_the_mesh_s_unless_others_are_given() -> None:
    program = trained(2, 1, 2, 2)
    assert simulate(program, MESH).latency == simulate(program, costs=costs_on(MESH, program)).latency
    distir = simulate(program, MESH, compat="distir")
    assert distir.latency == simulate(program, costs=DistIrCosts(with_host(MESH)), compat="distir").latency
    assert distir.latency != simulate(program, MESH).latency
    slower = replace(MESH, same_node_link=MESH.default_link)
    assert simulate(program, MESH, costs_on(slower, program)).latency == simulate(program, slower).latency


def test_less_overlap_and_shared_links_are_never_faster() -> None:
    program = crossing()
    alone, shared = simulate(program, MESH), simulate(program, MESH, link_sharing=True)
    in_turn = simulate(program, MESH, overlap=False)
    both = simulate(program, MESH, overlap=False, link_sharing=True)
    assert alone.latency < min(in_turn.latency, shared.latency)
    assert max(in_turn.latency, shared.latency) < both.latency
    assert simulate(program, MESH, compat="distir", overlap=False).latency == pytest.approx(
        simulate(program, MESH, compat="distir").latency
    ), "in DistIR nothing overlaps anyway"


def circular() -> Program:
    return Program("p", (X, X, X), (0,), (Op("relu", (2,), (1,)), Op("relu", (1,), (2,))), (2,))


WRONG: dict[str, tuple[Program, str]] = {
    "circle": (circular(), "operation 0 (relu): uses %2 before it is defined"),
    "unmade": (Program("p", (X,), (), (), (0,)), "outputs: include the undefined value %0"),
    "twice": (
        Program("p", (X, X), (0,), (Op("relu", (0,), (0,)),), (0,)),
        "operation 0 (relu): defines %0 a second time",
    ),
    "untyped": (
        Program("p", (X,), (0,), (Op("relu", (0,), (1,)),), (0,)),
        "operation 0 (relu): defines value 1, which has",
    ),
    "unknown": (
        Program("p", (X, X), (0,), (Op("frob", (0,), (1,)),), (1,)),
        "operation 0 (frob): is not known, the folder",
    ),
    "shape": (
        Program("p", (X, X.shaped((5,))), (0,), (Op("relu", (0,), (1,)),), (1,)),
        "operation 0 (relu): outputs fp32[5]@1, but its inputs imply fp32[4]@1",
    ),
    "alike but not": (
        Program("p", (X, X, X.on(2)), (0,), (Op("relu", (0,), (1,)), Op("relu", (0,), (2,))), (2,)),
        "operation 1 (relu): outputs fp32[4]@2, but its inputs imply fp32[4]@1",
    ),
    "empty": (Program("p", (), (), (), ()), "program p: has no values, so there is nothing to simulate"),
    "device": (
        Program("p", (X.on(17),), (0,), (), (0,)),
        "device 17: is not in mesh one port, whose devices are 1 to 16",
    ),
    "idle device": (
        read_program(
            "program p\n%x: int8[1]@1\n"
            "%y: int8[0]@1 = block(%x) {bytes=(), devices=(1 17), on=(), seconds=1.0}\nreturn\n"
        ),
        "device 17: is not in mesh one port, whose devices are 1 to 16",
    ),
}


@pytest.mark.parametrize("compat", [None, "distir"])
@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_simulated_says_so_in_a_sentence(name: str, compat: str | None) -> None:
    program, error = WRONG[name]
    with pytest.raises(InputError, match=f"^{re.escape(error)}"):
        simulate(program, MESH, compat=compat)


def test_times_and_devices_are_bounded() -> None:
    text = "program p\n%x: int8[1]@{0}\n"
    text += "%y: int8[0]@{0} = block(%x) {{bytes=(), devices=({0}), on=(), seconds={1}}}\nreturn\n"
    with pytest.raises(InputError, match=r"operation 0 \(block\): seconds must be at most 2\^53, got 1e\+300"):
        read_program(text.format(1, 1e300))
    with pytest.raises(
        InputError, match=r"^device 99999999999: is above 1,000,000, the largest device number that can be simulated"
    ):
        simulate(read_program(text.format(99999999999, 1.0)))
    assert simulate(read_program(text.format(1, 2.0**53))).latency == 2**53


def test_what_cannot_be_asked_says_so_in_a_sentence() -> None:
    program = trained(1, 1, 2, 2)
    with pytest.raises(InputError, match=r"^compat: 'calculon' is not known, known is distir$"):
        simulate(program, MESH, compat="calculon")
    with pytest.raises(InputError, match=r"^link sharing: is not available with DistIR, "):
        simulate(program, MESH, compat="distir", link_sharing=True)
    with pytest.raises(InputError, match=r"^link sharing: is not available with DistIR, "):
        evaluate_grid(find_family("mlp"), Grid(ranges()), MESH, link_sharing=True, semantics=Semantics.DISTIR)
    small = find_mesh("v100-1")
    for costs, compat in ((MeshCosts(small), None), (DistIrCosts(with_host(small)), "distir")):
        with pytest.raises(InputError, match=r"^device 2: is not in mesh v100-1, "):
            simulate(program, costs=costs, compat=compat)
    for compat in (None, "distir"):
        with pytest.raises(InputError, match=r"^matmul: does not state its duration, so it needs a mesh$"):
            simulate(program, compat=compat)
        nameless = DeviceMesh("bare", tuple(replace(each, flops=()) for each in MESH.devices[:2]), (), *LINKS)
        with pytest.raises(InputError, match=r"^device gpu0: has no flops"):
            simulate(program, nameless, compat=compat)


LINKS = MESH.same_node_link, MESH.default_link


@pytest.mark.parametrize("compat", [None, "distir"])
def test_a_block_keeps_devices_busy_that_hold_nothing(compat: str | None) -> None:
    text = "%x: int8[7]@1\n%y: int8[0]@1 = block(%x) {bytes=(), devices=(1 3), on=(), seconds=2.0}\n"
    text += "%a: int8[7]@3 = send(%x) {to=3}\n%z: int8[0]@3 = block(%a) {bytes=(), devices=(3), on=(), seconds=1.0}\n"
    program = read_program(f"program p\n{text}return %y, %z\n")
    trace = simulate(program, MESH, compat=compat)
    assert trace.devices == (1, 3)
    assert trace.device_end[1] == pytest.approx(3, abs=1e-3), "the second block waits for the first"
    assert [len(rank.ops) for rank in project(program).values()] == [2, 3]


# From a terminal ------------------------------------------------------------------------------------------------------

HEAD = "program p\n%x: fp32[4]@1\n"
TEXTS: dict[str, tuple[str, str]] = {
    "unknown operator": (
        HEAD + "%y: fp32[4]@1 = frob(%x)\nreturn %y\n",
        "operation 0 (frob): is not known, the folder ",
    ),
    "shape": (HEAD + "%y: fp32[5]@1 = relu(%x)\nreturn %y\n", "outputs fp32[5]@1, but its inputs imply fp32[4]@1"),
    "device": (
        HEAD + "%y: fp32[4]@3 = send(%x) {to=3}\nreturn %y\n",
        "device 3: is not in mesh two, whose devices are 1 to 2",
    ),
    "indivisible": (
        HEAD + "%y: fp32[1]@1, %z: fp32[1]@1, %w: fp32[1]@1 = split(%x) {axis=0, parts=3}\nreturn %y\n",
        "axis 0 of fp32[4]@1 does not divide into 3 equal parts",
    ),
    "circle": (
        HEAD + "%y: fp32[4]@1 = relu(%z)\n%z: fp32[4]@1 = relu(%y)\nreturn %z\n",
        "line 3: uses the undefined value %z",
    ),
    "nothing": ("program p\nreturn\n", "program p: has no values, so there is nothing to simulate"),
    "idle device": (
        HEAD + "%y: int8[0]@1 = block(%x) {bytes=(), devices=(1 9), on=(), seconds=1.0}\nreturn %y\n",
        "device 9: is not in mesh two, whose devices are 1 to 2",
    ),
}
DEVICES = [{"name": f"d{i}", "kind": "gpu", "flops": {"fp32": 1e13}, "memory_bandwidth": 1e12} for i in range(2)]


def mesh_document(bandwidth: float = 1e9) -> str:
    link = {"bandwidth": bandwidth, "latency": 0}
    return json.dumps(
        {"format": "tessel-mesh", "version": 1, "name": "two", "devices": DEVICES, "same_node_link": link}
    )


@pytest.mark.parametrize("name", TEXTS)
def test_a_bad_program_is_one_sentence(tessel: Tessel, name: str) -> None:
    text, error = TEXTS[name]
    Path("p.txt").write_text(text)
    Path("two.json").write_text(mesh_document())
    code, out, err = tessel("simulate", "p.txt", "--mesh", "two.json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert error in err


def test_bad_meshes_and_files_are_one_sentence(tessel: Tessel) -> None:
    Path("p.txt").write_text(HEAD + "return %x\n")
    Path("still.json").write_text(mesh_document(0))
    for words, error in {
        "--mesh still.json": "error: still.json: same_node_link: bandwidth must be above 0, got 0\n",
        "--uniform-mesh 1e13,1e12,0": "error: a link: bandwidth must be above 0, got 0\n",
        "--uniform-mesh 1e13,0,1": "error: device gpu0: memory_bandwidth must be above 0, got 0\n",
        "--out p.json": "error: --out: must end in .trace.json or .csv or .txt, got 'p.json'\n",
        "--out nowhere/p.csv": "error: nowhere/p.csv: cannot be written: its folder is missing or not writable\n",
        "--compat distir --link-sharing": "error: link sharing: is not available with DistIR, whose transfers do not "
        "slow each other down\n",
    }.items():
        assert tessel("simulate", "p.txt", *words.split()) == (2, "", error)
    Path("plan.json").write_text('{"format": "tessel-plan"}')
    wanted = "error: plan.json: is JSON, but a program's text or an ONNX model is needed\n"
    assert tessel("simulate", "plan.json") == (2, "", wanted)
    Path("p.csv").write_text(HEAD + "return %x\n")
    assert "is the input file and would be overwritten" in tessel("simulate", "p.csv", "--out", "p.csv").err
    assert Path("p.csv").read_text().startswith("program p")


def test_a_program_that_never_frees_is_simulated_and_said(tessel: Tessel) -> None:
    Path("p.txt").write_text(HEAD + "%y: fp32[4]@1 = relu(%x)\n%z: fp32[4]@1 = relu(%x)\nreturn %z\n")
    note = "note: p: No operation uses %y, so a system that frees values after their last use keeps these 16 B.\n"
    code, out, err = tessel("simulate", "p.txt", "--json")
    assert (code, err, json.loads(out)["peak_memory"]) == (0, note, [32])
    code, out, err = tessel("simulate", "p.txt", "--json", "--compat", "distir")
    assert (code, err, json.loads(out)["peak_memory"]) == (0, note, [48])


@pytest.mark.parametrize(("overlap", "sharing"), [(True, True), (False, False)])
def test_streams_and_links_from_a_terminal(tessel: Tessel, overlap: bool, sharing: bool) -> None:
    Path("p.txt").write_text(program_text(crossing()))
    words = [*([] if overlap else ["--no-overlap"]), *(["--link-sharing"] if sharing else []), "--json"]
    code, out, err = tessel("simulate", "p.txt", "--mesh", "port.json", *words)
    alone = "note: one port: each transfer gets the whole node_uplink; --link-sharing shares it\n"
    assert (code, err) == (0, "" if sharing else alone)
    assert json.loads(out)["latency_s"] == simulate(crossing(), MESH, overlap=overlap, link_sharing=sharing).latency
    note = "note: v100-8: the mesh has no node_uplink, so --link-sharing has no effect\n"
    assert tessel("simulate", "mlp", "--data", "8", "--mesh", "v100-8", *words).err == (note if sharing else "")


def test_what_does_not_fit_and_devices_in_between_are_said_in_json(tessel: Tessel) -> None:
    words = "simulate gpt --size gpt3-13b --layers 8 --batch 512 --mesh h200-1 --json"
    code, out, err = tessel(*words.split())
    found = json.loads(out)
    assert (code, found["status"], f"does not fit: {found['reason']}\n") == (1, "INFEASIBLE", err)
    Path("p.txt").write_text("program p\n%x: fp32[4]@1\n%y: fp32[4]@3 = send(%x) {to=3}\nreturn %y\n")
    code, out, err = tessel("simulate", "p.txt", "--mesh", "h200-4", "--json")
    assert (code, err, json.loads(out)["peak_memory"]) == (0, "", [16, 0, 16])
    assert tessel("check", "p.txt") == (0, "p.txt: valid\n", "")


def test_what_is_made_at_the_very_end_is_held() -> None:
    """By the host's free transfers, and by an all-reduction of one device."""
    text = "program p\n%x: fp32[4]@0\n%y: fp32[4]@1 = send(%x) {to=1}\n%z: fp32[4]@1 = send(%x) {to=1}\nreturn %y, %z\n"
    assert simulate(read_program(text), MESH).peak_memory == (32,)
    text = "program p\n%x: fp32[4]@1\n%y: fp32[4]@1 = relu(%x)\n%s: fp32[4]@1 = allreduce(%y)\nreturn %y, %s\n"
    assert simulate(read_program(text), MESH).peak_memory == (48,)


def test_sweeps_join_streams_and_share_links_too(tessel: Tessel) -> None:
    """Each configuration then has the time that it has alone."""
    family, grid = find_family("mlp"), Grid(ranges(layers=(4,), batch=(64,)), (1, 2), (2,), (1, 4), (1, 4))
    plain = evaluate_grid(family, grid, MESH).columns["latency"]
    for how in ({"overlap": False}, {"link_sharing": True}, {"overlap": False, "link_sharing": True}):
        found = evaluate_grid(family, grid, MESH, **how)
        for each, outcome in zip(found.configurations, found.outcomes, strict=True):
            alone = simulate_strategy(family, each.spec, each.strategy, MESH, **how)
            assert outcome.latency == alone.trace.latency
        assert (found.columns["latency"] >= plain * (1 - 1e-9)).all()
        assert (found.columns["latency"] > plain * (1 + 1e-9)).any()
    words = "sweep mlp --layers 4 --batch 64 --data 1,2 --tensor 2 --pipeline 1,4 --micro-batches 1,4 --mesh port.json"
    code, out, err = tessel(*words.split(), "--no-overlap", "--link-sharing", "--out", "all.csv")
    assert (code, err) == (0, "")
    assert "8 configurations on one port, 8 feasible" in out
    rows = csv.DictReader(io.StringIO(Path("all.csv").read_text()))
    assert [float(row["latency_s"]) for row in rows] == found.columns["latency"].tolist()
