"""Recommendations by several processes: the same answer, also if a worker dies or the search is stopped."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers.dask_cluster import dask_cluster
from helpers.terminal import Tessel, terminal

from tessel_core.control import Control, Progress
from tessel_core.costs.meshes import uniform_mesh
from tessel_core.strategies.naming import preset_network
from tessel_core.strategies.recommendation import Candidate, Question, SearchRanges, asked_strategies, recommend
from tessel_core.sweeps.pools import ProcessPool, open_pool
from tessel_core.sweeps.shared_search import parts_of, recommend_shared


def asked() -> Question:
    """Return a question with about fifty configurations, in parts for several workers."""
    family, said = preset_network("llama-3-8b") or pytest.fail("a preset is missing")
    sizes = {"layers": 8, "sequence": 1024, "batch": 16, "dtype": "bf16"}
    ranges = SearchRanges(tensor=(1, 2), stages_per_device=(1,), micro_batch_size=(1, 2), zero=(1, 3))
    return Question(family, family.spec(**{**said, **sizes}), uniform_mesh("h100", 1, 4), ranges)


def figures(front: Sequence[Candidate]) -> list[tuple[float, int]]:
    return [(each.outcome.latency, each.peak) for each in front]


def test_parts_have_every_strategy_once() -> None:
    question = asked()
    every = asked_strategies(question)
    parts = parts_of(question, every)
    assert sorted(map(str, (each for part in parts for each in part))) == sorted(map(str, every))


def test_processes_find_what_one_process_finds() -> None:
    alone = recommend(asked())
    with ProcessPool(2) as pool:
        shared = recommend_shared(asked(), pool, Control())
    assert shared.complete
    assert figures(shared.front) == figures(alone.front)
    assert (shared.configurations, shared.bound_s) == (alone.configurations, alone.bound_s)
    assert shared.simulated + shared.ruled_out + sum(shared.infeasible.values()) == shared.configurations


def test_a_killed_worker_loses_nothing() -> None:
    killed = list[int]()

    with ProcessPool(2) as pool:

        def kill(news: Progress) -> None:
            victims = list(getattr(pool.executor, "_processes", {}))
            if not killed and victims:
                killed.append(victims[0])
                os.kill(victims[0], signal.SIGKILL)

        shared = recommend_shared(asked(), pool, Control(on_progress=kill))
    assert killed
    assert shared.complete
    assert figures(shared.front) == figures(recommend(asked()).front)


@pytest.mark.extras
def test_a_killed_worker_of_a_cluster_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("tessel_core.sweeps.pools.CONNECT_SECONDS", 60.0)  # a busy machine starts workers slowly
    with dask_cluster(tmp_path) as cluster:
        victim = cluster.processes[1]

        def kill(news: Progress) -> None:
            if victim.poll() is None:
                victim.kill()
                victim.wait()

        with open_pool(f"dask://{cluster.address}") as pool:
            shared = recommend_shared(asked(), pool, Control(on_progress=kill))
        assert victim.poll() is not None
    assert shared.complete
    assert figures(shared.front) == figures(recommend(asked()).front)


def test_a_stop_keeps_the_best_so_far() -> None:
    control = Control(on_progress=lambda news: control.cancel())
    with ProcessPool(1) as pool:
        shared = recommend_shared(asked(), pool, control)
    assert shared.best is not None
    assert not shared.complete
    assert shared.bound_s is None


def test_the_command_shares_the_search(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    tessel: Tessel = terminal(monkeypatch, capsys)
    words = ("recommend", "llama-3-8b", "--mesh", "h100-4", "--global-batch", "8", "--set", "layers=4")
    more = ("--micro-batch-size", "1", "--order-seconds", "0", "--json")
    alone, shared = (json.loads(tessel(*words, *more, *given)[1]) for given in ((), ("--workers", "2")))
    for each in ("best", "leanest", "half_the_devices", "bound_s", "proved"):
        assert shared[each] == alone[each]
    code, _, error = tessel(*words, *more, "--executor", "dask://nowhere:1")
    assert (code, error.count("\n")) == (2, 1)
