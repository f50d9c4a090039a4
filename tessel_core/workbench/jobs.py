"""Runs in the background: one thread a question, cancelled when no client is watching.

Plain objects that any user interface can poll; nothing here knows one.
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
"""Seconds that a run goes on after its last watcher was seen: a reload is shorter, a closed tab is not."""

_NICENESS = 10
"""Of threads that search, on the scale from -20 to 19."""
_LOOK_S = 0.02
"""Seconds between two looks for a first part."""
_KEPT = 96
"""Finished runs that are remembered, so that their answers can be looked up by question."""

_LOG = logging.getLogger(__name__)


class Run(Generic[T]):
    """One call on a thread of its own; everything here may be asked from any thread at any time.

    Once it has ended it has a result or an error.  A cancelled one has a result, which keeps what was found.
    """

    def __init__(self, call: Callable[[Control], T], patience_s: float = PATIENCE_S) -> None:
        self.control = Control(MAX_JOB_SECONDS) if hosted() else Control()
        self.result: T | None = None
        self.error: Exception | None = None
        """An `InputError` that says what was wrong, or the bug."""
        self._call = call
        self._patience_s = patience_s
        self._seen = time.monotonic()
        self._watchers: tuple[Callable[[], bool], ...] = ()
        self._ended = threading.Event()
        self._ended_after_s = 0.0

    def start(self) -> None:
        """Begin; the threads are daemons, so they never keep the process alive."""
        threading.Thread(target=self._work, name="run", daemon=True).start()
        threading.Thread(target=self._mind_watchers, name="run-watch", daemon=True).start()

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    @property
    def progress(self) -> Progress | None:
        """The latest news, None before there is any."""
        history = self.control.history
        return history[-1] if history else None

    @property
    def history(self) -> tuple[Progress, ...]:
        """All news so far, oldest first."""
        return tuple(self.control.history)

    @property
    def parts(self) -> tuple[Any, ...]:
        """Parts of the answer so far, oldest first."""
        return tuple(self.control.parts)

    @property
    def elapsed_s(self) -> float:
        """Wall seconds since the start, up to the end."""
        return self._ended_after_s if self._ended.is_set() else self.control.elapsed_s

    @property
    def complaint(self) -> str:
        """One sentence for people about the error; empty without one."""
        if self.error is None or isinstance(self.error, InputError):
            return str(self.error or "")
        return f"a bug of ours stopped this run ({type(self.error).__name__}: {self.error})"

    def cancel(self) -> None:
        """Ask for an end soon; the result keeps the best so far."""
        self.control.cancel()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until the end or for `timeout_s`; True when the run has ended."""
        return self._ended.wait(timeout_s)

    def wait_for_part(self, timeout_s: float) -> None:
        """Block until a first part of the answer is there, until the end or for `timeout_s`."""
        until = time.monotonic() + timeout_s
        while not self.control.parts and time.monotonic() < until and not self.wait(_LOOK_S):
            pass

    def touch(self) -> None:
        """Say that somebody is still interested, by polling."""
        self._seen = time.monotonic()

    def watch(self, present: Callable[[], bool]) -> None:
        """Have `present` asked, on a thread of ours, whether a watcher who cannot poll is still there."""
        self.touch()
        if present not in self._watchers:
            self._watchers = (*self._watchers, present)

    def leave(self, present: Callable[[], bool]) -> None:
        """Ask `present` no more: this watcher wants another run instead."""
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
    """The runs of one process, by question.

    Invariant: of the runs with one key, at most one is running.
    """

    def __init__(self, kept: int = _KEPT, patience_s: float = PATIENCE_S) -> None:
        self._kept = kept
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._runs: OrderedDict[Hashable, Run[Any]] = OrderedDict()

    def submit(self, key: Hashable, call: Callable[[Control], T]) -> Run[T]:
        """Start `call`, or join the run of the same key that is under way."""
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
        """The latest run of this question, None where it was never asked or is forgotten."""
        with self._lock:
            if key in self._runs:
                self._runs.move_to_end(key)
            return self._runs.get(key)

    def close(self, timeout_s: float = 1.5) -> None:
        """End all runs: a process that exits under a working CP-SAT is aborted by its C++ runtime."""
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
    """Let pages go first: this thread, and all that it starts, run on what others leave of the processor.

    Only Linux has priorities per thread.
    """
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


_JOBS = Jobs()
submit = _JOBS.submit
find = _JOBS.find
atexit.register(_JOBS.close)
