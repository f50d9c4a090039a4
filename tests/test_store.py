"""The store: saved work is found again, by any number of writers, after any crash."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import store_writer
from helpers.seeds import examples
from helpers.stores import PLAN, number_of, saved, small_work, state
from helpers.workspaces import plain_graph, same, workspace_files
from hypothesis import given, settings, strategies

from tessel_core.costs.meshes import uniform_mesh
from tessel_core.errors import InputError
from tessel_core.formats import MeshFile, WorkspaceFile, workspace_text
from tessel_core.formats.graph_file import graph_file_text
from tessel_core.model import DevicePool
from tessel_core.workbench.placing import Placing
from tessel_core.workbench.store import Conflict, SavedWorkspace, Store, Workspaces, open_store
from tessel_core.workbench.store.parts import pack, without_parts
from tessel_core.workbench.workspace import workspace_file

TESTS = Path(store_writer.__file__).parents[1]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = open_store(tmp_path)
    assert not found.refused
    yield found
    found.database.close()


# What is kept comes back


@given(workspace_files(), strategies.integers(1, 3))
@settings(max_examples=examples(60), deadline=None)
def test_a_workspace_comes_back_whole(tmp_path_factory, work: WorkspaceFile, times: int) -> None:
    folder = tmp_path_factory.mktemp("store")
    store = open_store(folder)
    kept = [store.workspaces.create(work) for _ in range(times)]
    store.database.close()
    again = open_store(folder)
    for each in kept:
        loaded = again.workspaces.load(each.token)
        assert loaded is not None
        assert loaded[0] == each
        assert same(loaded[1], replace(work, name=each.name))
    assert {each.token for each in again.workspaces.all()} == {each.token for each in kept}
    names = [each.name for each in again.workspaces.all()]
    assert len(set(names)) == len(names), "names tell workspaces apart"
    again.database.close()


MOVES = strategies.lists(strategies.sampled_from(["save", "amend", "undo", "redo", "reopen"]), max_size=30)


@given(MOVES)
@settings(max_examples=60, deadline=None)
def test_history_is_what_people_expect_of_undo_and_redo(tmp_path_factory, moves: list[str]) -> None:
    """It agrees with a list and a position: a save removes the later states, an amendment replaces the current one."""
    folder = tmp_path_factory.mktemp("store")
    store = open_store(folder)
    kept, history, here = store.workspaces.create(state(1)), [1], 0
    for number, move in enumerate(moves, 2):
        if move == "save":
            kept = saved(store.workspaces.save(kept.token, kept.revision, state(number)))
            history, here = [*history[: here + 1], number], here + 1
        elif move == "amend":
            kept = saved(store.workspaces.save(kept.token, kept.revision, state(number), step=False))
            history[here] = number
        elif move == "reopen":
            store.database.close()
            store = open_store(folder)
        else:
            found = getattr(store.workspaces, move)(kept.token, kept.revision)
            assert found is not None
            kept = found
            here = max(0, here - 1) if move == "undo" else min(len(history) - 1, here + 1)
        assert store.workspaces.find(kept.token) == kept
        assert number_of(store, kept.token) == history[here]
        assert (kept.can_undo, kept.can_redo) == (here > 0, here < len(history) - 1)
    store.database.close()


def test_histories_are_bounded_in_number_and_in_bytes(store: Store) -> None:
    few = Workspaces(store.database, most_revisions=5)
    kept = few.create(state(1))
    for number in range(2, 20):
        kept = saved(few.save(kept.token, kept.revision, state(number)))
    seen = [number_of(store, kept.token)]
    while kept.can_undo:
        found = few.undo(kept.token, kept.revision)
        assert found is not None
        kept = found
        seen.append(number_of(store, kept.token))
    assert seen == [19, 18, 17, 16, 15]
    small = Workspaces(store.database, most_bytes=1)
    kept = saved(small.save(kept.token, kept.revision, state(20)))
    assert number_of(store, kept.token) == 20, "the present state stays whatever it takes"
    assert not kept.can_undo


def test_a_long_schedule_is_kept_once_and_forgotten_with_its_last_workspace(store: Store) -> None:
    work = workspace_with_schedule()
    kept = store.workspaces.create(work)
    for number in range(2, 6):
        kept = saved(
            store.workspaces.save(kept.token, kept.revision, replace(work, rest={**work.rest, "micro_batches": number}))
        )
    other = store.workspaces.create(work)
    assert count(store, "part") == 1
    store.workspaces.delete(kept.token)
    loaded = store.workspaces.load(other.token)
    assert loaded is not None
    assert loaded[1].opened is not None
    store.workspaces.delete(other.token)
    assert count(store, "part") == count(store, "revision") == 0


def test_a_graph_and_a_mesh_are_kept_once_for_all_steps_and_workspaces(store: Store) -> None:
    work = workspace_with_graph(1)
    kept = store.workspaces.create(work)
    for number in range(2, 30):
        moved = workspace_file(replace(small_work(PLAN), placing=placing_with(1, number)))
        kept = saved(store.workspaces.save(kept.token, kept.revision, moved))
    other = store.workspaces.create(work)
    assert count(store, "part") == 2
    kept = saved(store.workspaces.save(kept.token, kept.revision, workspace_with_graph(2)))
    assert count(store, "part") == 3
    store.workspaces.delete(kept.token)
    assert count(store, "part") == 2
    loaded = store.workspaces.load(other.token)
    assert loaded is not None
    assert loaded[1].placing == work.placing
    store.workspaces.delete(other.token)
    assert count(store, "part") == count(store, "revision") == 0


def test_the_bytes_of_a_history_count_each_graph_once(store: Store) -> None:
    work = workspace_with_graph(1)
    one = len(pack(workspace_text(replace(without_parts(work), name="unnamed"))))
    room = Workspaces(store.database, most_bytes=6 * one + len(pack(graph_file_text(plain_graph(1)))))
    kept = room.create(work)
    for number in range(2, 5):
        moved = workspace_file(replace(small_work(PLAN), placing=placing_with(1, number)))
        kept = saved(room.save(kept.token, kept.revision, moved))
    assert count(store, "revision") == 4
    tight = Workspaces(store.database, most_bytes=3 * one)
    kept = saved(tight.save(kept.token, kept.revision, workspace_with_graph(2)))
    assert count(store, "revision") < 4
    loaded = store.workspaces.load(kept.token)
    assert loaded is not None
    assert loaded[1].placing == workspace_with_graph(2).placing


def workspace_with_graph(seed: int) -> WorkspaceFile:
    return workspace_file(replace(small_work(PLAN), placing=placing_with(seed)))


def placing_with(seed: int, accelerators: int = 1) -> Placing:
    placing = Placing(graph=plain_graph(seed), pool=DevicePool(accelerators))
    return placing.on(MeshFile.of(uniform_mesh("h200", 1, 2)), "a test")


def workspace_with_schedule() -> WorkspaceFile:
    from tessel_core.formats.schedule_file import schedule_file
    from tessel_core.scheduling import solve_schedule

    report = solve_schedule("1f1b", PLAN, 40)
    assert report.solution is not None
    return replace(state(1), opened=schedule_file(report.solution, report))


def count(store: Store, table: str) -> int:
    with store.database.reading() as connection:
        return int(connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])


def test_rename_refuses_what_is_no_name_or_taken_and_keeps_the_history(store: Store) -> None:
    first = store.workspaces.create(state(1, "first"))
    second = store.workspaces.create(state(1, "first"))
    assert second.name == "first 2"
    second = saved(store.workspaces.save(second.token, second.revision, state(2)))
    renamed = store.workspaces.rename(second.token, "  other ")
    assert renamed == replace(second, name="other")
    for name in ("", " ", "x" * 201, "a\tb", "first"):
        with pytest.raises(InputError, match="name: "):
            store.workspaces.rename(second.token, name)
    undone = store.workspaces.undo(second.token, second.revision)
    assert undone is not None
    loaded = store.workspaces.load(second.token)
    assert loaded is not None
    assert loaded[1].name == undone.name == "other", "a name is not undone"
    assert store.workspaces.rename("gone", "somebody") is None
    assert store.workspaces.find(first.token) == first


# Two writers


def everything(store: Store) -> set[int]:
    """Return the numbers of all states that undo can reach in any workspace."""
    found = set()
    for kept in store.workspaces.all():
        here: SavedWorkspace | None = kept
        while here is not None:
            found.add(number_of(store, here.token))
            here = store.workspaces.undo(here.token, here.revision) if here.can_undo else None
    return found


def test_who_comes_second_gets_a_workspace_of_their_own(store: Store) -> None:
    begin = store.workspaces.create(state(1))
    first = saved(store.workspaces.save(begin.token, begin.revision, state(2)))
    outcome = store.workspaces.save(begin.token, begin.revision, state(3))
    assert isinstance(outcome, Conflict)
    assert outcome.other == first
    assert outcome.mine.name == "mine (forked)"
    assert (number_of(store, first.token), number_of(store, outcome.mine.token)) == (2, 3)
    back = store.workspaces.undo(outcome.mine.token, outcome.mine.revision)
    assert back is not None
    assert number_of(store, back.token) == 1, "undo goes to where the two parted"
    assert store.workspaces.redo(back.token, back.revision) is not None
    third = store.workspaces.save(begin.token, begin.revision, state(4))
    assert isinstance(third, Conflict)
    assert third.mine.name == "mine (forked) 2"
    assert everything(store) == {1, 2, 3, 4}


@pytest.mark.parametrize("spoil", ["DELETE FROM revision WHERE number = 1", "UPDATE revision SET document = x'0000'"])
def test_a_second_writer_is_kept_even_where_its_beginning_is_forgotten_or_damaged(store: Store, spoil: str) -> None:
    begin = store.workspaces.create(state(1))
    saved(store.workspaces.save(begin.token, begin.revision, state(2)))
    with store.database.writing() as connection:
        connection.execute(spoil)
    outcome = store.workspaces.save(begin.token, begin.revision, state(3))
    assert isinstance(outcome, Conflict)
    assert number_of(store, outcome.mine.token) == 3
    assert not outcome.mine.can_undo


def test_what_was_deleted_elsewhere_is_kept_anew_when_it_is_changed(store: Store) -> None:
    begin = store.workspaces.create(state(1))
    store.workspaces.delete(begin.token)
    assert store.workspaces.undo(begin.token, begin.revision) is None
    outcome = store.workspaces.save(begin.token, begin.revision, state(2))
    assert isinstance(outcome, Conflict)
    assert outcome.other is None
    assert (outcome.mine.token, outcome.mine.name) == (begin.token, "mine")
    assert number_of(store, begin.token) == 2


def test_who_wants_what_is_already_there_is_in_no_conflict(store: Store) -> None:
    begin = store.workspaces.create(state(1), "token")
    assert store.workspaces.create(state(1), "token") == begin
    second = saved(store.workspaces.save(begin.token, begin.revision, state(2)))
    assert store.workspaces.save(begin.token, begin.revision, state(2, "called otherwise")) == second
    assert store.workspaces.create(state(1), "token").token != begin.token
    assert len(store.workspaces.all()) == 2


def test_undo_does_nothing_where_another_writer_has_moved_on(store: Store) -> None:
    begin = store.workspaces.create(state(1))
    second = saved(store.workspaces.save(begin.token, begin.revision, state(2)))
    third = saved(store.workspaces.save(begin.token, second.revision, state(3)))
    assert store.workspaces.undo(begin.token, second.revision) == third
    assert store.workspaces.redo(begin.token, begin.revision) == third
    assert number_of(store, begin.token) == 3


def writer(folder: Path, token: str, base: int, first: int, saves: int, *deadly: str) -> subprocess.Popen[str]:
    command = [sys.executable, store_writer.__file__, str(folder), token, *map(str, (base, first, saves)), *deadly]
    environment = {"PYTHONPATH": f"{TESTS}:{TESTS.parent}", "PATH": "", "TESSEL_DATA": str(folder)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_writers_in_many_processes_lose_nothing(store: Store, tmp_path: Path) -> None:
    begin = store.workspaces.create(state(1))
    firsts = range(1000, 4000, 1000)
    crowd = [writer(tmp_path, begin.token, begin.revision, first, 25) for first in firsts]
    for each in crowd:
        each.communicate(timeout=60)
        assert each.returncode == 0
    assert everything(store) == {1, *(first + i for first in firsts for i in range(25))}
    assert len(store.workspaces.all()) == len(firsts), "one kept the workspace, every other one has its own"


def test_writers_in_many_threads_lose_nothing(store: Store) -> None:
    begin = store.workspaces.create(state(1))

    def work(first: int) -> None:
        kept = begin
        for number in range(first, first + 25):
            outcome = store.workspaces.save(kept.token, kept.revision, state(number))
            kept = outcome.mine if isinstance(outcome, Conflict) else outcome

    crowd = [threading.Thread(target=work, args=(first,)) for first in range(1000, 6000, 1000)]
    for each in crowd:
        each.start()
    for each in crowd:
        each.join()
    assert everything(store) == {1, *(first + i for first in range(1000, 6000, 1000) for i in range(25))}


def test_processes_that_begin_at_once_share_one_new_store(tmp_path: Path) -> None:
    crowd = [writer(tmp_path, "nobody", 1, first, 3) for first in range(1000, 5000, 1000)]
    for each in crowd:
        each.communicate(timeout=60)
        assert each.returncode == 0, "every one of them can use the store"
    store = open_store(tmp_path)
    assert everything(store) == {first + i for first in range(1000, 5000, 1000) for i in range(3)}
    store.database.close()


# An end in the middle


@pytest.mark.parametrize(
    "statement", ["BEGIN", "SELECT MAX", "INSERT INTO revision", "UPDATE workspace", "SELECT r.number", "COMMIT"]
)
def test_a_process_killed_at_any_statement_leaves_the_state_before(tmp_path: Path, statement: str) -> None:
    store = open_store(tmp_path)
    kept = store.workspaces.create(state(1))
    store.database.close()
    killed = writer(tmp_path, kept.token, kept.revision, 2, 1, statement)
    assert killed.communicate(timeout=60)[0] == ""
    assert killed.returncode == -signal.SIGKILL
    store = open_store(tmp_path)
    assert not store.refused
    assert store.workspaces.find(kept.token) == kept
    assert number_of(store, kept.token) == 1
    store.database.close()


def test_kill_9_again_and_again_loses_at_most_the_last_edit(tmp_path: Path) -> None:
    """Each process continues where the previous one was killed, at a random moment."""
    store = open_store(tmp_path)
    token, chance = store.workspaces.create(state(1)).token, random.Random(0)
    for _ in range(3):
        kept, last = store.workspaces.find(token), number_of(store, token)
        assert kept is not None
        store.database.close()
        running = writer(tmp_path, token, kept.revision, last + 1, 100_000)
        assert running.stdout is not None
        taken = [int(running.stdout.readline()) for _ in range(chance.randint(1, 60))]
        running.kill()
        taken += [int(line) for line in running.stdout.read().split()]
        running.wait()
        store = open_store(tmp_path)
        assert not store.refused
        assert number_of(store, token) in (taken[-1], taken[-1] + 1), "what the store said it has, it has"
        assert len(store.workspaces.all()) == 1
    store.database.close()
