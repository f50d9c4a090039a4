"""Background runs: one at a time per question, cancelled soon, ended without watchers, and clear about failure."""

from __future__ import annotations

import threading
import time

import pytest

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.workbench.jobs import Jobs


def until_stopped(control: Control) -> str:
    """A solver that finds a solution at once and then runs until it is stopped."""
    control.report("searching", 8, 6)
    while not control.stopped:
        time.sleep(0.01)
    return "best so far"


def test_a_run_ends_with_its_result() -> None:
    run = Jobs().submit("six times seven", lambda control: 42)
    assert run.wait(5)
    assert (run.result, run.error, run.complaint) == (42, None, "")


def test_news_arrive_while_it_runs_and_cancel_keeps_the_best_so_far() -> None:
    run = Jobs().submit("long", until_stopped)
    while run.progress is None:
        time.sleep(0.01)
    assert run.running
    assert run.result is None
    assert run.progress.gap == pytest.approx(0.25)
    asked = time.monotonic()
    run.cancel()
    assert run.wait(1)
    assert time.monotonic() - asked < 1
    assert (run.result, run.error) == ("best so far", None)
    assert run.elapsed_s == run.elapsed_s


def test_a_first_part_is_waited_for_no_longer_than_it_takes() -> None:
    go_on = threading.Event()

    def call(control: Control) -> None:
        control.deliver("first")
        go_on.wait(5)

    run = Jobs().submit("parts", call)
    run.wait_for_part(60)
    assert run.running
    assert run.parts == ("first",)
    go_on.set()


def test_the_same_question_is_never_solved_twice_at_once() -> None:
    jobs = Jobs()
    calls: list[Control] = []
    gate = threading.Event()

    def counted(control: Control) -> int:
        calls.append(control)
        gate.wait(5)
        return len(calls)

    asked: list[object] = []
    crowd = [threading.Thread(target=lambda: asked.append(jobs.submit("same", counted))) for _ in range(16)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    gate.set()
    run = jobs.find("same")
    assert run is not None
    assert run.wait(5)
    assert len(calls) == 1
    assert set(map(id, asked)) == {id(run)}
    again = jobs.submit("same", counted)
    assert again is not run, "a question whose run has ended may be asked again"
    assert again.wait(5)
    assert len(calls) == 2


def test_different_questions_run_side_by_side() -> None:
    jobs = Jobs()
    both = threading.Barrier(2)
    runs = [jobs.submit(key, lambda control: both.wait(5)) for key in ("one", "other")]
    assert all(run.wait(5) and run.error is None for run in runs)


def test_a_run_without_watchers_ends_by_itself() -> None:
    run = Jobs(patience_s=0.2).submit("forgotten", until_stopped)
    assert run.wait(2)
    assert run.result == "best so far"


@pytest.mark.parametrize("how", ["polling", "presence"])
def test_a_run_goes_on_while_it_is_watched(how: str) -> None:
    run = Jobs(patience_s=0.2).submit("watched", until_stopped)
    leaves = time.monotonic() + 0.8
    if how == "presence":
        run.watch(lambda: time.monotonic() < leaves)
    while time.monotonic() < leaves:
        assert run.running
        if how == "polling":
            run.touch()
        time.sleep(0.02)
    assert run.wait(2)


def test_wrong_input_is_told_in_its_own_words() -> None:
    def refuse(control: Control) -> None:
        raise InputError("micro-batches", "must be at least 1, got 0")

    run = Jobs().submit("wrong", refuse)
    assert run.wait(5)
    assert run.error is not None
    assert run.result is None
    assert run.complaint == "micro-batches: must be at least 1, got 0"


def test_a_bug_is_told_as_ours_and_does_not_kill_the_next_run() -> None:
    def broken(control: Control) -> None:
        raise ZeroDivisionError("by zero")

    jobs = Jobs()
    run = jobs.submit("broken", broken)
    assert run.wait(5)
    assert run.error is not None
    assert isinstance(run.error, ZeroDivisionError)
    assert run.complaint == "a bug in Tessel Explorer stopped this run (ZeroDivisionError: by zero)"
    mended = jobs.submit("broken", lambda control: "well")
    assert mended.wait(5)
    assert mended.result == "well"


def test_closing_ends_all_runs() -> None:
    jobs = Jobs()
    runs = [jobs.submit(key, until_stopped) for key in range(3)]
    jobs.close()
    assert not any(run.running or run.error for run in runs)


def test_old_answers_are_forgotten_and_running_ones_are_not() -> None:
    jobs = Jobs(kept=2)
    going_on = jobs.submit("going on", until_stopped)
    for key in range(4):
        assert jobs.submit(key, lambda control: None).wait(5)
    assert jobs.find("going on") is going_on
    assert jobs.find(0) is None
    assert jobs.find(3) is not None
    going_on.cancel()
