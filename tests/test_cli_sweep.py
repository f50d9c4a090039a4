"""`tessel sweep` of schedules (files, resuming, kill -9, Ctrl-C) and of strategies (presets, configs)."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from helpers.sweeps import NETWORK, alive, answers, in_a_loop, offspring, standing_pool
from helpers.terminal import Tessel, terminal

from tessel_core.cli import sweep_schedules
from tessel_core.control import Control
from tessel_core.costs.meshes import find_mesh
from tessel_core.formats import MeshFile, graph_text
from tessel_core.model import OperatorGraph
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.sweeps.pools import WorkerPool, open_pool
from tessel_core.sweeps.running import SweepCounts
from tessel_core.sweeps.store import COLUMNS, SweepStore
from tessel_core.sweeps.sweep import SolverSweep
from tessel_core.units import show_time

WORDS = ("sweep", "schedules", "--graph", "network.json", "--mesh", "h200-2", "--workers", 1)
IN_PROCESSES = (*WORDS[:-1], 2)
"""Questions for sweeps that are killed or stopped. They use processes of their own."""
LINUX = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
LONG, LONGER = 50, 1000
"""Numbers of micro-batches for sweeps that must still run when they are stopped, even on a busy machine."""


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    """Return a function that runs a command in a folder with a graph. The worker process is already running."""

    def opened(executor: str, workers: int | None) -> WorkerPool:
        return standing_pool() if (executor, workers) == ("processes", 1) else open_pool(executor, workers)

    monkeypatch.setattr(sweep_schedules, "open_pool", opened)
    monkeypatch.chdir(tmp_path)
    Path("network.json").write_text(graph_text(NETWORK))
    return terminal(monkeypatch, capsys)


def sweep_of(*counts: int, schedulers: tuple[str, ...] = ("tessel",)) -> SolverSweep:
    """Return the library's questions for these words of the command line."""
    mesh = MeshFile.of(find_mesh("h200-2"))
    return SolverSweep((read_graph_file(Path("network.json")),), (mesh,), schedulers=schedulers, micro_batches=counts)


def test_every_option_is_an_axis_or_a_term(tessel: Tessel) -> None:
    ended = tessel(
        *("sweep", "schedules", "--graph", "network.json", "--mesh", "h200-2", "--mesh", "a100-2", "--workers", 1),
        *("--memory", "4e10, 80000000000", "--placer", "dp,by-order", "--scheduler", "gpipe,1f1b"),
        *("--micro-batches", "2,4", "--micro-batch-size", "1,2", "--in-flight", "1,2", "--communication", "blocking"),
        *("--dtype", "fp32", "--optimizer", "none", "--split-weights", "--time-limit", 5, "--seed", 7),
        *("--out", "r.sqlite", "--json"),
    )
    assert (ended.code, ended.err) == (0, "")
    said = ended.document
    assert said["points"] == said["done"] == sum(said["statuses"].values()) == 128
    assert [list(row) for row in said["best"]] == [list(COLUMNS)] * 10
    rates = [row["samples_per_s"] for row in said["best"]]
    assert rates == sorted(rates, reverse=True)
    with closing(sqlite3.connect("r.sqlite")) as connection:
        (best,) = connection.execute("SELECT MAX(samples_per_s) FROM point").fetchone()
        distinct = [connection.execute(f"SELECT COUNT(DISTINCT {name}) FROM point").fetchone()[0] for name in COLUMNS]
    assert best == rates[0]
    assert (
        dict(zip(COLUMNS, distinct, strict=True)).items() >= {"key": 128, "mesh": 2, "memory": 2, "placer": 2}.items()
    )


def test_the_same_words_go_on_and_a_csv_is_written_anew(tessel: Tessel) -> None:
    first = tessel(*WORDS, "--micro-batches", "2,3", "--out", "r.csv", "--json").document
    assert (first["done"], first["done_before"]) == (2, 0)
    table = Path("r.csv").read_text()
    assert table.splitlines()[0] == ",".join(COLUMNS)
    assert table.count("\n") == 3
    again = tessel(*WORDS, "--micro-batches", "3,2", "--out", "r.csv", "--json").document
    assert (again["done"], again["done_before"]) == (2, 2)
    assert Path("r.csv").read_text() == table
    with SweepStore(Path("r.sqlite"), sweep_of(2, 3)) as store:
        assert answers(store.rows()) == in_a_loop(sweep_of(2, 3))


def test_people_see_the_best_first_and_why_others_have_none(tessel: Tessel) -> None:
    ended = tessel(*WORDS, "--scheduler", "tessel,zb-v", "--memory", "1e9,8e10", "--out", "r.sqlite")
    lines = ended.out.splitlines()
    assert lines[:2] == ["4 points of network on h200-2", "4 of 4 points answered; all answers are in r.sqlite"]
    assert lines[2].split() == ["time", "per"]
    assert lines[3].split() == ["memory", "scheduler", "samples/s", "micro-batch", "idle", "peak", "answer"]
    assert lines[4].split()[:3] == ["80", "GB", "tessel"]
    assert lines[4].split()[-1] == "proved"
    assert lines[5].startswith("2 without a schedule: no placement: ")
    assert lines[6].startswith("1 without a schedule: scheduler zb-v: does not apply to plan network: ")


def test_where_there_is_room_people_see_both_parts_of_idle_time(
    tessel: Tessel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    lines = tessel(*WORDS, "--scheduler", "1f1b,gpipe", "--out", "r.sqlite").out.splitlines()
    headings, *rows = (line.split() for line in lines[3:6])
    assert headings[-6:] == ["idle", "peak", "answer", "imbalance", "bubble", "devices"]
    best = tessel(*WORDS, "--scheduler", "1f1b,gpipe", "--out", "r.sqlite", "--json").document["best"]
    for row, known in zip(rows, best, strict=True):
        shares = [f"{known[f'{part}_rate']:.1%}" for part in ("idle", "imbalance", "bubble")]
        assert [each for each in row if each.endswith("%")] == shares
        assert known["idle_rate"] == pytest.approx(known["imbalance_rate"] + known["bubble_rate"])
        assert show_time(known["time_per_micro_batch_ns"], "ns") in " ".join(row)


def test_no_schedule_at_all_is_exit_code_1(tessel: Tessel) -> None:
    ended = tessel(*WORDS, "--memory", "1e9", "--out", "r.sqlite", "--json")
    assert (ended.code, ended.document["statuses"], ended.document["best"]) == (1, {"INFEASIBLE": 1}, [])


def test_a_sweep_may_take_longer_than_any_search(tessel: Tessel, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    def run(sweep: SolverSweep, pool: object, store: SweepStore, control: Control) -> SweepCounts:
        limits.append(control.remaining_s)
        return SweepCounts(sweep.size, 0, 0, 0, 0.0)

    monkeypatch.setattr(sweep_schedules, "run_sweep", run)
    assert tessel(*WORDS, "--out", "r.sqlite").code == 1
    assert limits == [math.inf]


def counts_to(most: int) -> str:
    return ",".join(map(str, range(1, most + 1)))


def start(most: int, *more: str) -> subprocess.Popen[str]:
    """Start the command line in a process group of its own, so that Ctrl-C reaches its workers too."""
    words = (*map(str, IN_PROCESSES), "--micro-batches", counts_to(most), *more)
    command = [sys.executable, "-m", "tessel_core.cli", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for_rows(path: Path, least: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
                if connection.execute("SELECT COUNT(*) FROM point").fetchone()[0] >= least:
                    return
        except sqlite3.Error:
            pass
        time.sleep(0.01)
    pytest.fail("no results came")


def wait_for_end(processes: list[int]) -> None:
    until = time.monotonic() + 10
    while any(alive(each) for each in processes):
        assert time.monotonic() < until, "workers outlived their sweep"
        time.sleep(0.02)


@LINUX
def test_a_sweep_killed_with_9_goes_on_where_it_was(tessel: Tessel) -> None:
    process = start(LONG, "--out", "r.sqlite")
    try:
        wait_for_rows(Path("r.sqlite"), 5)
        workers = offspring(process.pid)
    finally:
        process.kill()
        process.communicate()
    assert len(workers) >= 2
    wait_for_end(workers)
    said = tessel(*IN_PROCESSES, "--micro-batches", counts_to(LONG), "--out", "r.sqlite", "--json").document
    assert 5 <= said["done_before"] < said["done"] == said["points"] == LONG
    few = sweep_of(*range(1, 13))
    with SweepStore(Path("r.sqlite"), sweep_of(*range(1, LONG + 1))) as store:
        found = answers(store.rows())
    assert len(found) == LONG
    assert in_a_loop(few).items() <= found.items()


@LINUX
def test_control_c_keeps_what_is_done_and_says_so(tessel: Tessel) -> None:
    process = start(LONGER, "--out", "r.csv", "--json")
    try:
        wait_for_rows(Path("r.sqlite"), 5)
        workers = offspring(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    wait_for_end(workers)
    assert (process.returncode, out.count("\n")) == (0, 1)
    lines = Path("r.csv").read_text().count("\n") - 1
    assert 5 <= lines < LONGER
    assert err == f"note: stopped at {lines} of {LONGER:,} points; the same command continues\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--out r.txt", "r.txt: must end in .sqlite, .sqlite3, .db or .csv"),
        ("--out taken.csv", "taken.csv: exists and was not written from taken.sqlite; choose another name"),
        ("--out no/r.sqlite", "no/r.sqlite: cannot be written: its folder is missing or not writable"),
        ("--out other.sqlite", "other.sqlite: holds another sweep (1 point of network on h200-2); choose another name"),
        (
            "--out other.csv",
            "other.csv: stores its results in other.sqlite, which holds another sweep (1 point ",
        ),
        ("--out r.sqlite --micro-batches 2,x", "--micro-batches: must be whole numbers separated by commas, got '2,x'"),
        ("--out r.sqlite --memory 1.5", "--memory: must be whole numbers separated by commas, got '1.5'"),
        ("--out r.sqlite --memory inf", "--memory: must be whole numbers separated by commas, got 'inf'"),
        ("--out r.sqlite --micro-batches ,", "numbers of micro-batches: must have at least one value"),
        ("--out r.sqlite --dtype fp7", "--dtype: must be one of"),
        ("--out r.sqlite --mesh h20-3", "--mesh: 'h20-3' is neither a file nor the name of a mesh"),
        ("--out r.sqlite --graph none.json", "none.json: "),
        ("--out r.sqlite --executor threads", "--executor: must be processes or dask://HOST:PORT, got 'threads'"),
        ("--out r.sqlite --workers 0", "--workers: must be between 1 and 256, got 0"),
    ],
)
def test_what_is_wrong_is_one_line_and_writes_nothing(tessel: Tessel, words: str, why: str) -> None:
    Path("taken.csv").write_text("mine\n")
    with SweepStore(Path("other.sqlite"), sweep_of(7)):
        pass
    before = {path: path.read_bytes() for path in Path().iterdir()}
    ended = tessel(*WORDS, *words.split())
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {why}")
    assert ended.err.count("\n") == 1
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_a_sweep_that_is_too_large_says_its_size(tessel: Tessel) -> None:
    counts = ",".join(map(str, range(1, 1001)))
    ended = tessel(*WORDS, "--micro-batches", counts, "--in-flight", counts, "--out", "r.sqlite")
    assert "are 1,000,000 points, more than the limit of 100,000\n" in ended.err
    assert not Path("r.sqlite").exists()


def test_graphs_need_names_of_their_own(tessel: Tessel) -> None:
    Path("same.json").write_text(graph_text(OperatorGraph("network", NETWORK.operators[:1], ())))
    ended = tessel(*WORDS, "--graph", "same.json", "--out", "r.sqlite")
    assert ended.err == "error: graphs: duplicate name 'network'\n"


CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 32,
}
DEGREES = ("--data", 1, "--pipeline", 1, "--micro-batches", 1, "--tensor", "1,2,4,8")


@pytest.fixture
def config(tessel: Tessel) -> str:
    """Write a Hugging Face config to the current folder."""
    Path("config.json").write_text(json.dumps(CONFIG))
    return "config.json"


def test_strategies_of_a_config_are_those_that_simulate_times(tessel: Tessel, config: str) -> None:
    said = tessel("sweep", config, *DEGREES, "--batch", 8, "--json").document
    assert (said["configurations"], said["feasible"]) == (4, 3)
    (why,) = said["reasons"]
    assert "must divide the number of key-value heads, which is 4, got 8" in why
    best = said["best"]["throughput"]
    alone = tessel("simulate", config, "--tensor", best["tensor"], "--batch", 8, "--json").document
    assert (best["hidden"], best["kv_heads"], best["vocabulary"]) == (64, 4, 100)
    assert best["latency_s"] == pytest.approx(alone["latency_s"])
    assert best["peak_memory"] == max(alone["peak_memory"])


def test_options_of_a_config_are_ranges_and_lists(tessel: Tessel, config: str) -> None:
    axes = ("--layers", "1..3", "--set", "window=0,16", "--set", "style=llama,gemma2")
    ended = tessel("sweep", config, "--tensor", 1, *DEGREES[:-2], *axes, "--out", "r.json", "--json")
    rows = json.loads(Path("r.json").read_text())["rows"]
    found = {(row["layers"], row["window"], row["style"]) for row in rows}
    assert found == {
        (layers, *more) for layers in (1, 2, 3) for more in itertools.product((0, 16), ("llama", "gemma2"))
    }
    assert ended.document["feasible"] == len(rows) == 12
    latency = {(row["layers"], row["window"], row["style"]): row["latency_s"] for row in rows}
    assert latency[3, 0, "llama"] > latency[2, 0, "llama"] > latency[1, 0, "llama"]


def test_a_preset_stands_in_place_of_a_family(tessel: Tessel) -> None:
    few = ("--layers", 1, "--sequence", 128, "--batch", 8, *DEGREES, "--json")
    by_preset = tessel("sweep", "llama-2-7b", *few).document
    assert by_preset["best"] == tessel("sweep", "llama", "--size", "llama-2-7b", *few).document["best"]
    assert by_preset["best"]["throughput"]["inner"] == 11_008


def test_what_all_strategies_have_is_said_once(tessel: Tessel, config: str) -> None:
    lines = tessel("sweep", config, *DEGREES, "--batch", 8).out.splitlines()
    assert lines[1].startswith("llama, layers 2, hidden 64, ")
    assert lines[2].split()[:5] == ["best", "D", "H", "P", "K"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("network.json", "network.json: is not a Hugging Face config; a sweep needs a family, a preset or a "),
        ("llama-4", "tessel sweep: No such command 'llama-4'"),
        ("config.json --set color=1", "--color: is not a size of llama, which has "),
        ("config.json --set window", "--set: must be NAME=VALUE, got 'window'"),
        ("config.json --set style=gemma3", "--set style: must be one of llama, gemma2, got 'gemma3'"),
        ("config.json --layers 0", "--layers: must be between 1 and 1000, got 0"),
    ],
)
def test_what_no_strategies_are_of_is_one_line(tessel: Tessel, config: str, words: str, why: str) -> None:
    ended = tessel("sweep", *words.split(), *DEGREES)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {why}")
