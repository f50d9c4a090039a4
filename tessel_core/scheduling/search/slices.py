"""Work in bounded slices, side by side, so that a cancel is heard between them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from tessel_core.control import Abandonable, Control

Slice = TypeVar("Slice")
Result = TypeVar("Result")

_WATCH_S = 0.02
_GRACE_S = 0.7
"""How long a stopped slice may take to end by itself: CP-SAT must not be left behind when the process ends."""
SLICES_PER_SECOND = 5
"""Slices that a core manages at least: what a second of effort means where the clock must not decide."""


def work_off(
    workers: int,
    take: Callable[[], Slice | None],
    work: Callable[[Slice], Result],
    finish: Callable[[Slice, Result], None],
    control: Control,
) -> bool:
    """`take` a slice, `work` on it and `finish` it with the result, by each of so many workers, until none is left.

    Only `work` runs beside other workers; one worker alone takes its slices in a fixed order.  False where the control
    stopped it: then slices under way still end, but are not finished, and what they work on must not be used any more.
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
            thread.join(_WATCH_S)
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
    """The results of the tasks, so many run at a time; None where the control stopped before all had ended."""
    left = list(range(len(tasks)))
    results: dict[int, Result] = {}
    team = min(workers, len(tasks))
    ended = work_off(team, lambda: left.pop(0) if left else None, lambda i: tasks[i](), results.__setitem__, control)
    return [results[i] for i in range(len(tasks))] if ended else None
