"""`tessel run SCHEDULE`: documents, sentences, files and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.terminal import Tessel, terminal

from tessel_core import torch_extra
from tessel_core.formats import plan_text, schedule_text, write_file
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule

KEYS = [
    *("plan", "scheduler", "micro_batches", "ranks", "blocks", "equal", "difference", "worst", "tensors", "losses"),
    *("makespan_ns", "idle", "peak_bytes", "predicted"),
]


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    monkeypatch.chdir(tmp_path)
    report = solve_schedule("1f1b", load_sample("v-shape-4"), 4)
    assert report.solution is not None
    write_file(Path("v.json"), schedule_text(report.solution, report))
    write_file(Path("tight.json"), plan_text(load_sample("v-shape-4").with_capacity(0)))
    write_file(Path("hang.csv"), "0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n")
    return terminal(monkeypatch, capsys)


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
def test_a_schedule_runs_and_is_compared(tessel: Tessel) -> None:
    ended = tessel("run", "v.json", "--json", "--width", 16, "--out", "toy.json")
    document = ended.document
    assert (ended.code, list(document)) == (0, KEYS)
    assert (document["blocks"], document["equal"], document["predicted"]) == ("toy", True, None)
    assert document["tensors"] == 2 * 4 * 4 + 4
    assert document["difference"] < 1e-12
    assert len(document["losses"]) == len(document["peak_bytes"]) == 4

    ended = tessel("run", "v-shape-4", "--scheduler", "sequential", "--micro-batches", 2, "--stand-ins", "--measure",
                   "--scale", 1e6, "--out", "slept.json")  # fmt: skip
    assert ended.code == 0
    assert "v-shape-4: 2 micro-batches on 4 ranks, stand-ins that sleep" in ended.out
    assert "predicted from an earlier run" in ended.out
    ended = tessel("run", "v-shape-4", "--scheduler", "sequential", "--micro-batches", 3, "--stand-ins",
                   "--search-again", "--scale", 2e6, "--out", "again.json", "--json")  # fmt: skip
    document = ended.document
    assert (ended.code, list(document)) == (0, [*KEYS, "searched_again"])
    assert document["searched_again"]["makespan_ns"] < document["makespan_ns"]
    ended = tessel("check", "toy.json", "slept.json", "again.json", "--channels", "pair")
    assert (ended.code, ended.out.count("json: valid")) == (0, 3)
    assert tessel("export", "toy.json", "--to", "csv").code == 0, "the schedule of a run is one"
    kept = json.loads(Path("slept.json").read_text())
    kept["end_ns"][-1][0] += 10**9
    kept["start_ns"][0] = []
    Path("wrong.json").write_text(json.dumps(kept))
    ended = tessel("check", "wrong.json")
    assert (ended.code, ended.err) == (2, "error: wrong.json: start_ns[0]: has 0 of 1 starts\n")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["v.json", "--compute"], "--compute: needs --stand-ins"),
        (["v.json", "--scale", "3"], "--scale: needs --stand-ins"),
        (["v.json", "--stand-ins", "--scale", "0"], "--scale: must be above 0, got 0"),
        (
            ["v.json", "--stand-ins", "--scale", "1e13"],
            "--scale: must be between 0 and 1000000000000, got 10000000000000.0",
        ),
        (
            ["tight.json", "--scheduler", "1f1b", "--micro-batches", "1"],
            "tight.json: 1f1b found no schedule of 1 micro-batch: does not fit: the order exceeds the memory of "
            "gpu0–gpu3 by 1 slot each",
        ),
        (["v.json", "--width", "0"], "--width: must be between 1 and 1024, got 0"),
        (
            ["v.json", "--out", "v.json"],
            "v.json: is the input file and would be overwritten; choose another name",
        ),
        (["v.json", "--out", "none/x.json"], "none/x.json: cannot be written: its folder is missing or not writable"),
        (["v.json", "--micro-batches", "5"], "--micro-batches: is for plans, and v.json holds a schedule"),
        (["v.json", "--scheduler", "1f1b"], "--scheduler: is for plans, and v.json holds a schedule"),
        (
            ["hang.csv"],
            "hang.csv: ranks that follow this file wait forever. Circle: rank 0 at position 1 (0RECV_B0) waits "
            "for rank 1 at position 0 (1RECV_F0), which waits for the first (one queue for each pair of ranks, no "
            "sends outstanding)",
        ),
        (["v.json"], "ranks: needs PyTorch: pip install 'tessel-explorer[torch]'"),
    ],
)
def test_what_cannot_run_is_one_sentence(
    tessel: Tessel, monkeypatch: pytest.MonkeyPatch, words: list[str], why: str
) -> None:
    monkeypatch.setattr(torch_extra, "why_no_torch", lambda: "needs PyTorch: pip install 'tessel-explorer[torch]'")
    assert tessel("run", *words) == (2, "", f"error: {why}\n")
