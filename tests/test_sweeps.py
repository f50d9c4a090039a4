"""Sweeps with solvers: questions, answers, storage, and that nothing is lost when workers or sweeps die."""

from __future__ import annotations

import os
import pickle
import sqlite3
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from multiprocessing import forkserver
from pathlib import Path

import pytest
from helpers.sweeps import (
    DEADLY,
    GRAPH,
    OTHER,
    PAIR,
    answers,
    begun,
    break_down,
    die_always,
    die_at_once,
    die_once,
    in_a_loop,
    small_sweep,
    standing_pool,
)

from tessel_core.control import Control, Progress
from tessel_core.costs.costed import CostOptions, costed, with_batch_size
from tessel_core.errors import InputError
from tessel_core.inspection import IdleSplit
from tessel_core.model import Communication, InFlight, Status
from tessel_core.placement import PlacementProblem, solve_placement
from tessel_core.planning import plan_of
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.sweeps import running
from tessel_core.sweeps.pools import open_pool
from tessel_core.sweeps.running import SweepCounts, run_sweep
from tessel_core.sweeps.solving import PointStatus, solve_point
from tessel_core.sweeps.store import COLUMNS, SweepStore, rows_csv
from tessel_core.sweeps.sweep import MAX_POINTS, SolverSweep, SweepTerms
from tessel_core.workbench.store import StoreError
from tessel_core.workbench.store import database as database_module

FILE = "results.sqlite"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only on Linux one server begins all workers")


def swept(folder: Path, sweep: SolverSweep, control: Control | None = None, workers: int | None = None) -> SweepCounts:
    """Run a sweep once, on this many processes of its own or on the shared one."""
    with open_pool(workers=workers) if workers else standing_pool() as pool, SweepStore(folder / FILE, sweep) as store:
        return run_sweep(sweep, pool, store, control or Control())


def kept(folder: Path, sweep: SolverSweep) -> dict[str, dict[str, object]]:
    with SweepStore(folder / FILE, sweep) as store:
        return answers(store.rows())


# What is asked


def test_a_sweep_has_every_combination_once_and_knows_how_many_before() -> None:
    sweep = SolverSweep((GRAPH,), (PAIR, OTHER), (None, 10), in_flight=(1, 2), micro_batches=(1, 2, 3))
    assert sweep.size == len(sweep.points) == len({point.key for point in sweep.points}) == 24
    neighbours = [point.placement_key for point in sweep.points]
    assert len(set(neighbours)) == 8
    assert neighbours == sorted(neighbours, key=neighbours.index), "points of one placement follow each other"


def test_a_key_names_the_question_and_nothing_else() -> None:
    """It is the same in another process and after serialisation. Anything that changes the answer changes it."""
    (point,) = SolverSweep((GRAPH,), (PAIR,)).points
    assert pickle.loads(pickle.dumps(point)).key == point.key
    command = "from helpers.sweeps import *; print(SolverSweep((GRAPH,), (PAIR,)).points[0].key)"
    elsewhere = subprocess.run(
        [sys.executable, "-c", command], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    assert elsewhere.stdout.strip() == point.key
    others = [
        replace(point, mesh=OTHER),
        replace(point, memory=1),
        replace(point, micro_batch_size=2),
        replace(point, in_flight=2),
        replace(point, scheduler="gpipe"),
        replace(point, micro_batches=33),
        *(replace(point, terms=replace(point.terms, **{name: value})) for name, value in OTHER_TERMS.items()),
    ]
    assert len({each.key for each in (point, *others)}) == len(others) + 1
    assert set(OTHER_TERMS) == set(SweepTerms.__slots__)


OTHER_TERMS = {
    "dtype": "fp32",
    "optimizer": "none",
    "communication": "blocking",
    "split_weights": True,
    "time_limit": 21.0,
    "seed": 1,
}


def test_the_order_of_the_axes_makes_no_other_sweep() -> None:
    one, other = (SolverSweep((GRAPH,), (PAIR,), micro_batches=counts) for counts in ((1, 2), (2, 1)))
    assert one.key == other.key
    assert one.key != SolverSweep((GRAPH,), (PAIR,), micro_batches=(1, 3)).key


def test_a_sweep_that_is_too_large_is_refused_with_its_size_before_any_work() -> None:
    with pytest.raises(InputError) as raised:
        SolverSweep((GRAPH,), (PAIR,), in_flight=tuple(range(1, 1001)), micro_batches=tuple(range(1, 10**6 + 1)))
    assert str(raised.value) == (
        "sweep: 1,000 micro-batches in flight × 1,000,000 numbers of micro-batches are 1,000,000,000 points, "
        f"more than the limit of {MAX_POINTS:,}"
    )


@pytest.mark.parametrize(
    ("axes", "why"),
    [
        ({"schedulers": ()}, "schedulers: must have at least one value"),
        ({"schedulers": ("gpipe", "gpipe")}, "schedulers: duplicate name 'gpipe'"),
        ({"schedulers": ("best",)}, "scheduler: 'best' is not known"),
        ({"placers": ("best",)}, "placer: 'best' is not known"),
        ({"micro_batches": (0,)}, "sweep: micro-batches must be at least 1, got 0"),
        ({"micro_batch_sizes": (-1,)}, "sweep: micro-batch size must be at least 1, got -1"),
        ({"memories": (-1,)}, "sweep: memory must be at least 0, got -1"),
        ({"in_flight": (1.5,)}, "sweep: micro-batches in flight must be an integer"),
        ({"terms": SweepTerms(time_limit=0.0)}, "Time limit: must be between 0.2 and 7200, got 0"),
        ({"graphs": (GRAPH, GRAPH)}, "graphs: duplicate name 'network'"),
        ({"graphs": (replace(GRAPH, fingerprint=""),)}, "graph network: is not a tessel-graph"),
    ],
)
def test_what_no_point_could_be_is_refused(axes: dict[str, object], why: str) -> None:
    with pytest.raises(InputError) as raised:
        SolverSweep(**{"graphs": (GRAPH,), "meshes": (PAIR,), **axes})  # type: ignore[arg-type]
    assert str(raised.value).startswith(why)


# What is answered


def test_a_point_is_cost_then_place_then_plan_then_schedule() -> None:
    """The answer equals four separate steps."""
    terms = SweepTerms(dtype="fp32", communication="blocking")
    sweep = SolverSweep(
        (GRAPH,), (PAIR,), (90 * 10**9,), micro_batch_sizes=(2,), in_flight=(2,), micro_batches=(5,), terms=terms
    )
    (point,) = sweep.points
    mesh = PAIR.mesh.with_capacity(90 * 10**9)
    graph = costed(with_batch_size(GRAPH.graph, 2), mesh, CostOptions("fp32", in_flight=2))
    problem = replace(PlacementProblem.on_mesh(graph, mesh, Communication.BLOCKING), in_flight=InFlight(2))
    placed = solve_placement("dp", problem)
    assert placed.solution is not None
    plan = plan_of(placed.solution)
    report = solve_schedule("tessel", plan, 5, TesselConfig(workers=1))
    found = solve_point(point)
    assert (found.status, report.status) == (PointStatus.PROVED_OPTIMAL, Status.PROVED_OPTIMAL)
    assert (found.period_ns, found.makespan_ns) == (report.period_per_micro_batch, report.makespan)
    assert (found.period_bound_ns, found.makespan_bound_ns) == (report.period_bound, report.makespan_bound)
    assert found.peak_memory == max(report.peak_memory or ())
    assert found.samples_per_s == pytest.approx(5 * 2 / (report.makespan or 1) * 1e9)
    assert (found.devices, found.bubble_rate) == (2, report.bubble_rate)
    assert report.solution is not None
    idle = IdleSplit.of(report.solution)
    assert (found.idle_rate, found.imbalance_rate) == (float(idle.idle), float(idle.imbalance))
    assert found.idle_rate == pytest.approx(found.imbalance_rate + (found.bubble_rate or 0.0))
    assert found.time_per_micro_batch_ns == float(report.solution.time_per_micro_batch)


def test_points_without_a_schedule_say_why() -> None:
    by_status = {result["status"]: result for result in in_a_loop(small_sweep((2,), "tessel")).values()}
    assert set(by_status) == {PointStatus.PROVED_OPTIMAL, PointStatus.INFEASIBLE, PointStatus.DOES_NOT_APPLY}
    assert str(by_status[PointStatus.INFEASIBLE]["reason"]).startswith("no placement: ")
    assert str(by_status[PointStatus.DOES_NOT_APPLY]["reason"]).startswith("scheduler zb-v: does not apply to plan")


def test_every_device_but_hosts_takes_the_memory() -> None:
    hosted = replace(PAIR.mesh, devices=(PAIR.mesh.devices[0], replace(PAIR.mesh.devices[1], kind="cpu", flops=())))
    assert [device.memory_capacity for device in hosted.with_capacity(7).devices] == [
        7,
        PAIR.mesh.devices[1].memory_capacity,
    ]


# What is kept


def test_processes_answer_as_a_plain_loop_does_and_news_comes_with_each_point(tmp_path: Path) -> None:
    sweep, news = small_sweep(order="tessel"), list[Progress]()
    control = Control(on_progress=news.append)
    counts = swept(tmp_path, sweep, control, workers=2)
    assert (counts.size, counts.kept, counts.solved, counts.failed) == (36, 0, 36, 0)
    assert kept(tmp_path, sweep) == in_a_loop(sweep) == answers(control.parts)
    assert news[0].phase.startswith("0 of 36 points, 0 failed, 0/s")
    assert news[-1].phase.startswith("36 of 36 points, 0 failed, ")
    assert all("left" in each.phase for each in news[1:])


def test_a_sweep_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    sweep = small_sweep()
    control = Control(on_progress=lambda _: control.cancel() if len(control.parts) >= 5 else None)
    first = swept(tmp_path, sweep, control)
    assert 5 <= first.done < sweep.size
    before = kept(tmp_path, sweep)
    assert len(before) == first.done
    second = swept(tmp_path, sweep)
    assert (second.kept, second.solved) == (first.done, sweep.size - first.done)
    after = kept(tmp_path, sweep)
    assert after == in_a_loop(sweep)
    assert before.items() <= after.items()
    assert swept(tmp_path, sweep).solved == 0


def test_the_time_that_is_left_follows_from_this_run_alone() -> None:
    counts = SweepCounts(size=100, kept=40, solved=20, failed=1, wall_s=10.0)
    assert (counts.done, counts.rate, counts.left_s) == (60, 2.0, 20.0)
    assert counts.summary == "60 of 100 points, 1 failed, 2/s, 20 s left"


def test_a_file_is_of_one_sweep(tmp_path: Path) -> None:
    sweep = small_sweep((2,))
    swept(tmp_path, sweep)
    with pytest.raises(InputError) as raised:
        SweepStore(tmp_path / FILE, small_sweep((2, 3)))
    told = f"{tmp_path / FILE}: holds another sweep (12 points of network on h200-2, a100-2); choose another name"
    assert str(raised.value) == told
    assert len(kept(tmp_path, sweep)) == 12


def test_two_runs_of_one_sweep_into_one_file_keep_every_point_once(tmp_path: Path) -> None:
    """The second run begins in the middle of the first, which then continues."""
    sweep, others = small_sweep(), list[SweepCounts]()

    def begin_another(_: Progress) -> None:
        if len(control.parts) >= 5 and not others:
            others.append(swept(tmp_path, sweep))

    control = Control(on_progress=begin_another)
    counts = swept(tmp_path, sweep, control)
    assert counts.solved == 36
    assert others[0].kept >= 5
    assert kept(tmp_path, sweep) == in_a_loop(sweep)


@pytest.mark.parametrize(
    ("spoil", "why"), [("CREATE TABLE holiday (photo BLOB)", "it belongs to another program"), ("", "it is damaged")]
)
def test_a_foreign_file_is_told_and_not_written(tmp_path: Path, spoil: str, why: str) -> None:
    path = tmp_path / FILE
    if spoil:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(spoil)
    else:
        path.write_bytes(b"no database" * 1000)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=why):
        SweepStore(path, small_sweep())
    assert path.read_bytes() == before


def test_the_store_of_saved_work_is_no_results_file(tmp_path: Path) -> None:
    database_module.open_on_disk(tmp_path / FILE).close()
    with pytest.raises(StoreError, match="it belongs to another program"):
        SweepStore(tmp_path / FILE, small_sweep())


def test_a_read_only_file_is_told_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = small_sweep((2,))
    swept(tmp_path, sweep)
    real = sqlite3.connect

    def connect(name: str, **options: object) -> sqlite3.Connection:
        """Open the file as SQLite does for a user who may only read it. Root may write any file."""
        return real(f"file:{name}?mode=ro", uri=True, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(database_module.sqlite3, "connect", connect)
    with pytest.raises(StoreError, match="it is read-only"):
        SweepStore(tmp_path / FILE, sweep)


def test_a_full_disk_ends_the_sweep_in_one_sentence_and_loses_nothing(tmp_path: Path) -> None:
    sweep = small_sweep(range(2, 20))
    with standing_pool() as pool, SweepStore(tmp_path / FILE, sweep) as store:
        with store._database.reading() as connection:
            connection.execute("PRAGMA max_page_count = 20")
        with pytest.raises(StoreError) as raised:
            run_sweep(sweep, pool, store, Control())
        assert str(raised.value) == f"{tmp_path / FILE}: the disk is full"
        before = store.done()
    assert 5 < len(before) < sweep.size
    assert swept(tmp_path, sweep).kept == len(before)
    assert kept(tmp_path, sweep).keys() == {point.key for point in sweep.points}


def test_a_csv_has_a_line_a_point(tmp_path: Path) -> None:
    sweep = small_sweep((2,))
    swept(tmp_path, sweep)
    with SweepStore(tmp_path / FILE, sweep) as store:
        lines = rows_csv(store.rows()).splitlines()
    assert lines[0].split(",") == list(COLUMNS)
    assert [line.split(",")[0] for line in lines[1:]] == [point.key for point in sweep.points]


# When workers die


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch):
    """Return a function that makes workers call something else than `solve_point`."""
    return lambda call: monkeypatch.setattr(running, "solve_point", call)


@pytest.mark.parametrize("victim", [os.getpid, pytest.param(os.getppid, marks=LINUX)])
def test_a_worker_or_the_server_that_begins_them_dies_and_nothing_is_lost(tmp_path: Path, deadly, victim) -> None:
    sweep = SolverSweep((GRAPH,), (PAIR,), schedulers=("gpipe",), micro_batches=(2, DEADLY, 4, 5))
    words = tmp_path / "words"
    words.mkdir()
    deadly(partial(die_once, words, victim))
    counts = swept(tmp_path, sweep, workers=2)
    assert len(list(words.iterdir())) == 1, "the deadly point has killed"
    assert (counts.solved, counts.failed) == (4, 0)
    assert kept(tmp_path, sweep) == in_a_loop(sweep)


@LINUX
def test_one_server_begins_the_workers_of_all_pools_with_what_they_need() -> None:
    found = set()
    for _ in range(2):
        with open_pool(workers=1) as pool:
            found.add(pool.executor.submit(begun).result())
    ((server, ready),) = found
    assert server != os.getpid()
    assert ready


@LINUX
def test_where_no_server_can_begin_workers_begin_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError("AF_UNIX path too long")

    monkeypatch.setattr(forkserver, "ensure_running", refuse)
    with open_pool(workers=1) as pool:
        assert pool.executor.submit(begun).result()[0] == os.getpid()


def test_a_point_that_kills_every_worker_fails_alone_and_can_be_tried_again(
    tmp_path: Path, deadly, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = SolverSweep((GRAPH,), (PAIR,), schedulers=("gpipe",), micro_batches=(2, DEADLY, 4, 5))
    with monkeypatch.context():
        deadly(die_always)
        counts = swept(tmp_path, sweep, workers=2)
    assert (counts.solved, counts.failed) == (4, 1)
    expected = in_a_loop(sweep)
    found = kept(tmp_path, sweep)
    failed = {key for key, row in found.items() if row["status"] is PointStatus.FAILED}
    assert failed == {point.key for point in sweep.points if point.micro_batches == DEADLY}
    assert {found[key]["reason"] for key in failed} == {
        "its worker died 2 times while no other point ran, perhaps for lack of memory"
    }
    assert all(found[key] == expected[key] for key in expected.keys() - failed)
    deadly(solve_point)
    with SweepStore(tmp_path / FILE, sweep) as store:
        store.forget_failed()
    assert swept(tmp_path, sweep).solved == 1
    assert kept(tmp_path, sweep) == expected


def test_a_bug_fails_its_point_in_one_sentence(tmp_path: Path, deadly) -> None:
    sweep = SolverSweep((GRAPH,), (PAIR,), schedulers=("gpipe",), micro_batches=(2, DEADLY, 4))
    deadly(break_down)
    assert swept(tmp_path, sweep).failed == 1
    (failed,) = [row for row in kept(tmp_path, sweep).values() if row["status"] is PointStatus.FAILED]
    assert (failed["micro_batches"], failed["reason"]) == (
        DEADLY,
        "a bug in Tessel Explorer (AssertionError: two lines)",
    )


def test_workers_that_all_die_end_the_sweep_in_one_sentence(
    tmp_path: Path, deadly, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = SolverSweep((GRAPH,), (PAIR,), schedulers=("gpipe",), micro_batches=tuple(range(1, 40)))
    monkeypatch.setattr(running, "MAX_POOL_BREAKS", 2)
    deadly(die_at_once)
    with pytest.raises(InputError) as raised:
        swept(tmp_path, sweep, workers=1)
    assert str(raised.value).startswith("workers: broke 2 times in a row without solving a point; ")
    deadly(solve_point)
    with SweepStore(tmp_path / FILE, sweep) as store:
        store.forget_failed()
    assert swept(tmp_path, sweep).done == 39


def test_workers_that_cannot_start_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(ProcessPoolExecutor, "submit", refuse)
    with pytest.raises(InputError) as raised:
        swept(tmp_path, small_sweep())
    why = "cannot be started (Resource temporarily unavailable); finished points are kept"
    assert str(raised.value) == f"workers: {why}"


@pytest.mark.parametrize(
    ("words", "workers", "why"),
    [
        ("threads", None, "--executor: must be processes or dask://HOST:PORT, got 'threads'"),
        ("processes", 0, "--workers: must be between 1 and 256, got 0"),
        ("dask://here:1", 2, "--workers: applies only to processes; the cluster decides its own number of workers"),
        ("dask://here", None, "--executor: must be dask://HOST:PORT for a cluster, got 'dask://here'"),
    ],
)
def test_a_pool_that_cannot_be_is_one_sentence(words: str, workers: int | None, why: str) -> None:
    with pytest.raises(InputError) as raised:
        open_pool(words, workers)
    assert str(raised.value) == why
