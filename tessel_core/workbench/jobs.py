"""Background runs, with one thread per question.

A run is cancelled when no client watches it. Any user interface can poll runs.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from tessel_core.control import Control, Progress
from tessel_core.errors import InputError
from tessel_core.hosting import MAX_JOB_SECONDS, hosted

T = TypeVar("T")

PATIENCE_S = 4.0
"""Seconds that a run continues after a client last polled it. Reloading a browser tab takes less."""

_NICENESS = 10
"""Niceness (operating-system priority) of threads that search.

Values range from -20 to 19; 19 is the lowest priority.
"""
_POLL_S = 0.02
"""Seconds between two checks for the first part of an answer."""
_MAX_FINISHED_RUNS = 96
"""Number of finished runs to remember, so that their answers can be found by question."""

_LOG = logging.getLogger(__name__)


class Run(Generic[T]):
    """One call on a separate thread.

    All methods are thread-safe. A run that has ended has a result or an error. The result of a cancelled run is the
    best answer so far.
    """

    def __init__(self, call: Callable[[Control], T], patience_s: float = PATIENCE_S) -> None:
        self.control = Control(MAX_JOB_SECONDS) if hosted() else Control()
        self.result: T | None = None
        self.error: Exception | None = None
        """`InputError` for invalid input, or another exception for a bug."""
        self._call = call
        self._patience_s = patience_s
        self._seen = time.monotonic()
        self._watchers: tuple[Callable[[], bool], ...] = ()
        self._ended = threading.Event()
        self._ended_after_s = 0.0

    def start(self) -> None:
        """Start the threads of the run. They are daemon threads, so they never keep the process alive."""
        threading.Thread(target=self._work, name="run", daemon=True).start()
        threading.Thread(target=self._mind_watchers, name="run-watch", daemon=True).start()

    @property
    def running(self) -> bool:
        """Whether the run has not ended yet."""
        return not self._ended.is_set()

    @property
    def progress(self) -> Progress | None:
        """Latest progress report. None before the first report."""
        history = self.control.history
        return history[-1] if history else None

    @property
    def history(self) -> tuple[Progress, ...]:
        """All progress reports so far, oldest first."""
        return tuple(self.control.history)

    @property
    def parts(self) -> tuple[Any, ...]:
        """Parts of the answer so far, oldest first."""
        return tuple(self.control.parts)

    @property
    def elapsed_s(self) -> float:
        """Wall time in seconds from the start until now, or until the end."""
        return self._ended_after_s if self._ended.is_set() else self.control.elapsed_s

    @property
    def complaint(self) -> str:
        """The error as one sentence for users. Empty if the run has no error."""
        if self.error is None or isinstance(self.error, InputError):
            return str(self.error or "")
        return f"a bug in Tessel Explorer stopped this run ({type(self.error).__name__}: {self.error})"

    def cancel(self) -> None:
        """Ask the run to end soon. The best answer so far becomes its result."""
        self.control.cancel()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until the run ends, or for `timeout_s`. Return whether the run has ended."""
        return self._ended.wait(timeout_s)

    def wait_for_part(self, timeout_s: float) -> None:
        """Block until the first part of the answer arrives, the run ends, or `timeout_s` seconds pass."""
        until = time.monotonic() + timeout_s
        while not self.control.parts and time.monotonic() < until and not self.wait(_POLL_S):
            pass

    def touch(self) -> None:
        """Record that a client still watches this run."""
        self._seen = time.monotonic()

    def watch(self, present: Callable[[], bool]) -> None:
        """Add a watcher that cannot poll. A thread calls `present` to check whether the watcher is still connected."""
        self.touch()
        if present not in self._watchers:
            self._watchers = (*self._watchers, present)

    def leave(self, present: Callable[[], bool]) -> None:
        """Remove a watcher that `watch` has added."""
        self._watchers = tuple(each for each in self._watchers if each != present)

    def _work(self) -> None:
        _step_back()
        try:
            self.result = self._call(self.control)
        except InputError as error:
            self.error = error
        except Exception as error:
            _LOG.exception("a background run failed")
            self.error = error
        self._ended_after_s = self.control.elapsed_s
        self._ended.set()

    def _mind_watchers(self) -> None:
        while not self._ended.wait(min(0.5, self._patience_s / 4)):
            if any(present() for present in self._watchers):
                self.touch()
            if time.monotonic() - self._seen > self._patience_s:
                self.cancel()


class Jobs:
    """Background runs of one process, by question. At most one run per question is running."""

    def __init__(self, kept: int = _MAX_FINISHED_RUNS, patience_s: float = PATIENCE_S) -> None:
        self._kept = kept
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._runs: OrderedDict[Hashable, Run[Any]] = OrderedDict()

    def submit(self, key: Hashable, call: Callable[[Control], T]) -> Run[T]:
        """Run `call` in the background, or return the running run with the same key."""
        with self._lock:
            found = self._runs.get(key)
            if found is not None and found.running:
                found.touch()
                return found
            run = Run(call, self._patience_s)
            self._runs[key] = run
            self._runs.move_to_end(key)
            self._forget_oldest()
            run.start()
            return run

    def find(self, key: Hashable) -> Run[Any] | None:
        """Return the latest run with this key. None if no such run exists or if it was forgotten."""
        with self._lock:
            if key in self._runs:
                self._runs.move_to_end(key)
            return self._runs.get(key)

    def close(self, timeout_s: float = 1.5) -> None:
        """Cancel all runs and wait until they end.

        The C++ runtime aborts a process that exits while CP-SAT is working.
        """
        with self._lock:
            running = [run for run in self._runs.values() if run.running]
        for run in running:
            run.cancel()
        for run in running:
            run.wait(timeout_s)

    def _forget_oldest(self) -> None:
        finished = [key for key, run in self._runs.items() if not run.running]
        for key in finished[: max(0, len(self._runs) - self._kept)]:
            del self._runs[key]


def _step_back() -> None:
    """Lower the priority of this thread and the threads that it starts, so that pages stay responsive.

    Only Linux has priorities per thread.
    """
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


_JOBS = Jobs()
submit = _JOBS.submit
find = _JOBS.find
atexit.register(_JOBS.close)
