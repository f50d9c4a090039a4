"""Compilation of all kernels, which `python -m tessel_core.scheduling.kernels.warm` does in advance."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from functools import cache

import numpy as np

from tessel_core.control import Abandonable, Control
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice
from tessel_core.scheduling.kernels import cycles, insertion, lists, orders, timetables
from tessel_core.scheduling.kernels.tables import tables_of

_ALONE = "alone"
"""Argument of this module: do nothing if another process is compiling."""


def warm() -> None:
    """Call every kernel once on a tiny plan, so that it is compiled. This takes half a minute once per machine."""
    from tessel_core.scheduling.search.beam_search import BeamSearch

    blocks = (Block("F", BlockKind.FORWARD, (0,), 1, 1), Block("B", BlockKind.BACKWARD, (0,), 1, -1))
    plan = MicroBatchPlan("smallest", (PlanDevice("gpu0", 2),), blocks, (Dependency("F", "B"),))
    tables = tables_of(plan, (0, 1))
    none = np.zeros(2, dtype=np.int64)
    rules = lists.Rules(np.zeros(2), np.zeros(1), none, tables.capacity.copy(), tables.guarded)
    starts = np.zeros((6, 2), dtype=np.int64)
    lists.restart(tables, rules, starts, 0, 1, 1.0, 0)
    lists.evolve(tables, rules, starts, -1, 1, 1.0, 0)
    lists.place_all(tables, rules, starts, 1_000)
    line = np.lexsort((np.arange(starts.size), starts.ravel()))
    tail = np.empty_like(line)
    orders.set_tails(tables, orders.links_of(tables, line), line, line.size - 1, tail)
    orders.shorten_orders(tables, line, 0, 1, 1, 0)
    found = np.full((1, 1), np.inf)
    cycles.windows(tables, starts, np.array([1], dtype=np.int64), 1, found)
    circles = cycles.no_circles(tables, 1)
    cycles.close(tables, starts[:1], 2, circles)
    timing = cycles.timing_of(tables, circles)
    cycles.least_period(timing)
    cycles.time_runs(timing, 2, np.zeros(2, dtype=np.int64))
    cycles.shorten_circles(tables, circles, 1, 0.0, 1, 1, 0)
    timetables.fit_period(tables, np.arange(2), 2, starts[:1], circles, 1, 0)
    pauses = insertion.Pauses(0, 1, 0)
    insertion.insert_into_lists(tables, tables, np.arange(2), rules, pauses, starts, 1, 1.0, 0)
    BeamSearch(plan, 2, {(0, 0): 0}, [((1, 0), (0, 1))]).search(1, 100, 0, lambda: False)


def _compiled() -> int:
    """Return how many of the slowest kernels this process has compiled, and not only loaded."""
    kernels = lists.evolve, orders.shorten_orders, cycles.shorten_circles, timetables.fit_period
    return sum(sum(each.stats.cache_misses.values()) for each in kernels)  # type: ignore[union-attr, misc]


@cache
def _warming() -> threading.Thread:
    thread = Abandonable(warm)
    thread.start()
    return thread


@cache
def _compiled_before() -> int:
    """Return the first result of `_compiled` since the last note about kernels that this process compiled."""
    return _compiled()


def warm_in_time(control: Control) -> bool:
    """Wait for the kernels, and return whether they are ready before the control stops.

    The first call in a process loads or compiles them in a thread, which goes on after this wait. Loading takes a
    second or two, and longer in a busy process. Compiling takes most of a minute.
    """
    _compiled_before()
    while _warming().is_alive() and not control.stopped:
        _warming().join(0.02)
    return not _warming().is_alive()


def finish_later() -> str:
    """Start a process that compiles the kernels if this one ends before they are ready.

    Returns a note for the user, or an empty string if this process has compiled nothing for its searches.
    """
    if not _warming.cache_info().currsize:
        return ""
    if not _warming().is_alive():
        if _compiled() == _compiled_before():
            return ""
        _compiled_before.cache_clear()
        late = "the search kernels were compiled during this command (once on this machine). "
        return late + "Run it again: it may find and prove more"
    if _kept_in() is None:
        why = "neither the package's folder nor the home folder is writable: set NUMBA_CACHE_DIR to one that is"
        return f"each command compiles the search kernels again, because {why}"
    command, silent = [sys.executable, "-m", __name__, _ALONE], subprocess.DEVNULL
    subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent, start_new_session=True)
    return (
        "the search kernels are still being compiled in the background (about a minute, once on this machine). "
        "Run the command again later: it may find and prove more"
    )


def _kept_in() -> str | None:
    """Return the folder of compiled kernels, or None if no folder can be written."""
    folder = lists.restart.stats.cache_path  # type: ignore[attr-defined]
    return None if folder is None else str(folder)


def _warm_alone() -> None:
    """Run `warm`, unless another process is compiling."""
    folder = _kept_in()
    if folder is None:
        return
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "compiling.lock"), "w", encoding="utf-8") as lock:
        with contextlib.suppress(ImportError):  # Windows has no fcntl
            import fcntl

            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
        warm()


if __name__ == "__main__":
    _warm_alone() if _ALONE in sys.argv else warm()
