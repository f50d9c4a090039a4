"""Sweeps on a real Dask cluster on loopback: a scheduler and two workers, some of which are killed."""

from __future__ import annotations

import importlib.util
import os
import socket
import time
from functools import cache
from pathlib import Path

import pytest
from helpers.dask_cluster import dask_cluster
from helpers.sweeps import GRAPH, OTHER, PAIR, answers, in_a_loop

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.sweeps.pools import open_pool
from tessel_core.sweeps.running import run_sweep
from tessel_core.sweeps.store import SweepStore
from tessel_core.sweeps.sweep import SolverSweep

SWEEP = SolverSweep(
    (GRAPH,), (PAIR, OTHER), schedulers=("tessel", "1f1b", "gpipe", "zb-v"), micro_batches=tuple(range(2, 42))
)
HALF = SWEEP.size // 2


def test_without_distributed_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "distributed" else find(name))
    with pytest.raises(InputError) as raised:
        open_pool("dask://127.0.0.1:8786")
    told = "--executor dask://127.0.0.1:8786: needs the package distributed: pip install 'tessel-explorer[cluster]'"
    assert str(raised.value) == told


@pytest.fixture
def distributed() -> None:
    """Skip the test if Dask is missing. Fail instead if the environment requires it."""
    there = importlib.util.find_spec("distributed") is not None
    if not there and os.environ.get("TESSEL_REQUIRE_EXTRAS") != "1":
        pytest.skip("distributed is not installed; TESSEL_REQUIRE_EXTRAS=1 makes this a failure")
    assert there


@cache
def expected() -> dict[str, dict[str, object]]:
    """Return the answers of the sweep from a plain loop."""
    return in_a_loop(SWEEP)


def kept(path: Path) -> dict[str, dict[str, object]]:
    with SweepStore(path, SWEEP) as store:
        return answers(store.rows())


@pytest.mark.extras
@pytest.mark.usefixtures("distributed")
def test_a_worker_killed_halfway_loses_nothing(tmp_path: Path) -> None:
    """Each point is there once, with the answer of a plain loop."""
    with dask_cluster(tmp_path) as cluster:
        _, victim, other = cluster.processes

        def kill(_: object) -> None:
            if len(control.parts) >= HALF and victim.poll() is None:
                victim.kill()
                victim.wait()

        control = Control(on_progress=kill)
        with open_pool(f"dask://{cluster.address}") as pool, SweepStore(tmp_path / "r.sqlite", SWEEP) as store:
            counts = run_sweep(SWEEP, pool, store, control)
        assert victim.poll() is not None
        assert other.poll() is None
    assert (counts.solved, counts.failed) == (SWEEP.size, 0)
    assert kept(tmp_path / "r.sqlite") == expected()


@pytest.mark.extras
@pytest.mark.usefixtures("distributed")
@pytest.mark.parametrize("gently", [False, True], ids=["killed", "ended"])
def test_a_scheduler_that_goes_away_is_one_sentence_and_the_sweep_goes_on_later(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], gently: bool
) -> None:
    path = tmp_path / "r.sqlite"
    with dask_cluster(tmp_path) as cluster:
        scheduler, ended = cluster.processes[0], list[float]()

        def end(_: object) -> None:
            if len(control.parts) >= HALF and scheduler.poll() is None:
                scheduler.terminate() if gently else scheduler.kill()
                scheduler.wait()
                ended.append(time.monotonic())

        control, words = Control(on_progress=end), f"dask://{cluster.address}"
        with open_pool(words) as pool, SweepStore(path, SWEEP) as store, pytest.raises(InputError) as raised:
            run_sweep(SWEEP, pool, store, control)
        assert time.monotonic() - ended[0] < 20
    why = "lost its connection; finished points are kept, and the same command resumes"
    assert str(raised.value) == f"cluster {words}: {why}"
    assert capfd.readouterr().err == "", "nothing but the sentence reaches people"
    before = kept(path)
    assert HALF <= len(before) < SWEEP.size
    with open_pool(workers=1) as pool, SweepStore(path, SWEEP) as store:
        counts = run_sweep(SWEEP, pool, store, Control())
    assert (counts.kept, counts.done) == (len(before), SWEEP.size)
    assert kept(path) == expected()


@pytest.mark.extras
@pytest.mark.usefixtures("distributed")
def test_a_scheduler_that_comes_back_is_taken_up_again(tmp_path: Path) -> None:
    """At the same address, with new workers."""
    with dask_cluster(tmp_path, workers=1) as cluster:

        def restart(_: object) -> None:
            if len(control.parts) >= HALF and len(cluster.processes) == 2:
                for process in cluster.processes:
                    process.kill()
                    process.wait()
                cluster.start_scheduler(port=int(cluster.address.rpartition(":")[2]))
                cluster.start_worker()

        control = Control(on_progress=restart)
        with open_pool(f"dask://{cluster.address}") as pool, SweepStore(tmp_path / "r.sqlite", SWEEP) as store:
            counts = run_sweep(SWEEP, pool, store, control)
    assert (counts.solved, counts.failed, len(cluster.processes)) == (SWEEP.size, 0, 4)
    assert kept(tmp_path / "r.sqlite") == expected()


@pytest.mark.extras
@pytest.mark.usefixtures("distributed")
def test_a_cluster_without_workers_is_one_sentence(tmp_path: Path) -> None:
    with dask_cluster(tmp_path, workers=0) as cluster, pytest.raises(InputError) as raised:
        open_pool(f"dask://{cluster.address}")
    assert str(raised.value) == f"cluster dask://{cluster.address}: has a scheduler, but no worker answers"


@pytest.mark.extras
@pytest.mark.usefixtures("distributed")
def test_a_cluster_that_loses_all_workers_for_good_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tessel_core.sweeps.pools.NO_WORKERS_SECONDS", 3.0)
    with dask_cluster(tmp_path) as cluster:
        control = Control(
            on_progress=lambda _: [each.kill() for each in cluster.processes[1:] if len(control.parts) > 9]
        )
        with (
            open_pool(f"dask://{cluster.address}") as pool,
            SweepStore(tmp_path / "r.sqlite", SWEEP) as store,
            pytest.raises(InputError) as raised,
        ):
            run_sweep(SWEEP, pool, store, control)
    why = "has had no workers for 3 s; finished points are kept"
    assert str(raised.value) == f"cluster dask://{cluster.address}: {why}"
    assert len(kept(tmp_path / "r.sqlite")) >= 10


@pytest.mark.extras
@pytest.mark.usefixtures("distributed")
def test_a_cluster_that_is_not_there_is_one_sentence_within_seconds(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(InputError) as raised:
        open_pool(f"dask://127.0.0.1:{port}")
    assert str(raised.value) == f"cluster dask://127.0.0.1:{port}: cannot be reached"
    assert time.monotonic() - began < 15
    assert capfd.readouterr().err == ""
