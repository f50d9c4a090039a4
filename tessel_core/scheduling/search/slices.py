"""Parallel work in *slices* of bounded length, so that a cancel takes effect between slices."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from tessel_core.control import Abandonable, Control

Slice = TypeVar("Slice")
Result = TypeVar("Result")

_POLL_S = 0.02
_GRACE_S = 0.7
"""Seconds to wait for the running slices after a stop, because CP-SAT must not still run when the process ends."""
SLICES_PER_SECOND = 5
"""Number of slices that count as one second in repeatable searches. A core does at least this many per second."""


def work_off(
    workers: int,
    take: Callable[[], Slice | None],
    work: Callable[[Slice], Result],
    finish: Callable[[Slice, Result], None],
    control: Control,
) -> bool:
    """Let each worker `take` a slice, `work` on it and `finish` it with the result, until `take` returns None.

    Only `work` runs in parallel. A single worker takes the slices in a fixed order. Returns False if the control
    stopped the work. Slices that had started then still run to their end, but `finish` is not called for them, and
    their data must not be used.
    """
    lock, failures, closed = threading.Lock(), list[BaseException](), threading.Event()

    def run() -> None:
        try:
            while not closed.is_set():
                with lock:
                    taken = take()
                if taken is None:
                    return
                result = work(taken)
                with lock:
                    if not closed.is_set():
                        finish(taken, result)
        except BaseException as failure:
            failures.append(failure)
            closed.set()

    threads = [Abandonable(run) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not control.stopped:
            thread.join(_POLL_S)
    stopped = any(thread.is_alive() for thread in threads)
    with lock:
        closed.set()
    patience = time.monotonic() + _GRACE_S
    for thread in threads:
        thread.join(max(0.0, patience - time.monotonic()))
    if failures:
        raise failures[0]
    return not stopped


def side_by_side(tasks: Sequence[Callable[[], Result]], workers: int, control: Control) -> list[Result] | None:
    """Run the tasks in parallel and return their results, or None if the control stopped before all tasks ended."""
    left = list(range(len(tasks)))
    results: dict[int, Result] = {}
    team = min(workers, len(tasks))
    ended = work_off(team, lambda: left.pop(0) if left else None, lambda i: tasks[i](), results.__setitem__, control)
    return [results[i] for i in range(len(tasks))] if ended else None
