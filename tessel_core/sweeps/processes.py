"""Processes of this machine, that end at once with the one that started them."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from tessel_core.errors import InputError
from tessel_core.sweeps.pools import WorkerPool

MOST_WORKERS = 256


class ProcessPool(WorkerPool):
    """A pool of fresh processes: none of them has this one's threads or locks."""

    lost = closed = (BrokenProcessPool,)

    def __init__(self, workers: int) -> None:
        if not 1 <= workers <= MOST_WORKERS:
            raise InputError("--workers", f"must be between 1 and {MOST_WORKERS:,}, got {workers}")
        self._workers = workers
        self._open()

    def _open(self) -> None:
        context = get_context("spawn")
        ours, self._life_line = context.Pipe(duplex=False)
        self.executor = _ShieldedExecutor(self._workers, context, initializer=_obey, initargs=(ours,))

    @property
    def slots(self) -> int:
        return self._workers

    def check(self) -> bool:
        return True

    def renew(self) -> None:
        self.close()
        self._open()

    def close(self) -> None:
        self._life_line.close()
        self.executor.shutdown(wait=False, cancel_futures=True)


class _ShieldedExecutor(ProcessPoolExecutor):
    """Its processes never hear Ctrl-C, not even while they start: that is for the one that started them."""

    def submit(self, *call: Any, **more: Any) -> Future[Any]:
        if not hasattr(signal, "pthread_sigmask"):
            return super().submit(*call, **more)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(*call, **more)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _obey(life_line: Connection) -> None:
    """Watch the pipe of which the other end is with the process that started this one, and end when that end closes.

    A pool cannot end a process in the middle of a call, and one that was killed with -9 cannot do anything at all.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        life_line.poll(None)
        os._exit(0)

    threading.Thread(target=watch, name="life-line", daemon=True).start()
