"""`tessel plan` turns a placement file into a plan for `tessel schedule`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.terminal import Tessel, terminal
from test_cli_mesh import CHAIN, MESH, TRAINING
from test_placement_formats import PUBLISHED

from tessel_core.formats import MeshFile, graph_text, mesh_text
from tessel_core.formats.files import read_any
from tessel_core.model import MicroBatchPlan
from tessel_core.networks.graphs.files import read_graph_file


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    """Return a function that runs a command in a folder with two graphs, their placements and a mesh."""
    monkeypatch.chdir(tmp_path)
    Path("chain.json").write_text(graph_text(CHAIN))
    Path("t.json").write_text(graph_text(TRAINING))
    Path("p.json").write_text(json.dumps(PUBLISHED))
    Path("pair.json").write_text(mesh_text(MESH))
    run = terminal(monkeypatch, capsys)
    assert run("place", "p.json", "--out", "p-placed.json").code == 0
    assert run("place", "chain.json", "--mesh", "pair.json", "--out", "placed.json").code == 0
    return run


def test_a_placement_becomes_a_plan_that_is_scheduled(tessel: Tessel) -> None:
    """Two stages of about 4 s and 2 s. The tensor between them is a lag."""
    ended = tessel("plan", "chain.json", "placed.json", "--mesh", "pair.json", "--json", "--out", "plan.json")
    assert (ended.code, ended.err) == (0, "")
    said = ended.document
    assert said["busiest_work"] == pytest.approx(said["largest_load"] * 1e9)
    assert read_any(Path("plan.json")).name == said["plan"]["name"] == "chain"  # type: ignore[union-attr]
    assert any(each["lag"] > 0 for each in said["plan"]["dependencies"])
    scheduled = tessel("schedule", "plan.json", "--micro-batches", 4, "--json").document
    assert scheduled["status"] == "PROVED_OPTIMAL"
    assert scheduled["period"] == said["busiest_work"]


def test_transfers_become_work_where_they_block(tessel: Tessel) -> None:
    words = ("plan", "chain.json", "placed.json", "--mesh", "pair.json", "--json")
    overlapped, blocking = (tessel(*words, *more).document for more in ((), ("--communication", "blocking")))
    assert blocking["busiest_work"] > overlapped["busiest_work"]
    assert all(each["lag"] == 0 for each in blocking["plan"]["dependencies"])


def test_a_published_placement_becomes_a_plan_with_its_own_costs(tessel: Tessel) -> None:
    said = tessel("plan", "p.json", "p-placed.json", "--json").document
    assert (said["largest_load"], said["busiest_work"], said["time_unit"]) == (4, 4_000_000, "ms")


def test_larger_micro_batches_take_longer(tessel: Tessel) -> None:
    words = ("plan", "chain.json", "placed.json", "--mesh", "pair.json", "--json")
    one, three = (tessel(*words, *more).document for more in ((), ("--micro-batch-size", 3)))
    assert three["busiest_work"] == 3 * one["busiest_work"]


def test_a_placement_by_hand_takes_the_mesh_that_is_given(tessel: Tessel) -> None:
    graph = read_graph_file(Path("chain.json"))
    by_hand = {"format": "tessel-placement", "version": 1, "graph": graph.fingerprint, "mesh": None}
    by_hand["assignment"] = {"a": "d0", "b": ["d0", "d1"], "c=d": "d1"}
    Path("hand.json").write_text(json.dumps(by_hand))
    said = tessel("plan", "chain.json", "hand.json", "--mesh", "pair.json", "--json").document
    assert [block["devices"] for block in said["plan"]["blocks"]] == [[0], [0, 1], [1]]
    assert MeshFile.of(MESH).fingerprint not in json.dumps(by_hand)


def test_placement_and_schedule_are_searched_together(tessel: Tessel) -> None:
    words = ("joint", "t.json", "--mesh", "h200-2", "--placements", 3, "--micro-batches", 8)
    said = tessel(*words, "--json", "--out", "s.json", "--placement-out", "best.json").document
    assert said["proved"] is True
    periods = [each["period_per_micro_batch"] for each in said["entries"]]
    assert periods == sorted(periods)
    assert said["period_per_micro_batch"] == periods[0]
    assert tessel("check", "s.json").code == 0
    assert tessel("check", "t.json", "best.json").out == "t.json: valid\nbest.json: valid\n"
    assert tessel(*words).out.splitlines()[1].startswith("Proved: no placement")
    wrong = tessel("joint", "t.json", "--mesh", "h200-2", "--out", "x.json", "--placement-out", "x.json")
    assert (wrong.code, wrong.err) == (2, "error: --placement-out: names the same file as --out\n")


def test_people_see_a_row_a_device(tessel: Tessel) -> None:
    out = tessel("plan", "chain.json", "placed.json", "--mesh", "pair.json").out.splitlines()
    assert out[0] == "chain: 2 blocks on 2 devices"
    assert [line.split()[0] for line in out[1:]] == ["device", "d0", "d1"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            "plan chain.json placed.json",
            "error: --mesh: is missing: placed.json is a placement on a mesh, so name that mesh\n",
        ),
        ("plan chain.json pair.json", "error: pair.json: is a device mesh, but a placement is needed\n"),
        ("plan t.json placed.json --mesh pair.json", "error: placed.json: graph: "),
        ("plan chain.json placed.json --mesh h200-8", "error: placed.json: mesh: "),
        (
            "plan chain.json placed.json --mesh pair.json --micro-batch-size 0",
            "error: micro-batch size: it must be at least 1, got 0\n",
        ),
        (
            "plan p.json p-placed.json --communication overlapped",
            "error: --communication: is for a placement on a mesh; without one, transfers block\n",
        ),
        ("plan chain.json placed.json --mesh pair.json --out placed.json", "error: placed.json: "),
    ],
)
def test_what_is_wrong_is_one_line(tessel: Tessel, words: str, why: str) -> None:
    before = {path: path.read_bytes() for path in Path().glob("*.json")}
    ended = tessel(*words.split())
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(why)
    assert ended.err.count("\n") == 1
    assert {path: path.read_bytes() for path in Path().glob("*.json")} == before


def test_the_plan_of_a_file_is_the_plan_of_the_library(tessel: Tessel) -> None:
    tessel("plan", "p.json", "p-placed.json", "--out", "plan.json")
    found = read_any(Path("plan.json"))
    assert isinstance(found, MicroBatchPlan)
    assert tessel("check", "plan.json").code == 0
