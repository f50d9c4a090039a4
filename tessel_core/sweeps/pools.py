"""Pools of workers that solve the points of a sweep: local processes, or a Dask cluster. Both offer an `Executor`."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import signal
import sys
import time
from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from multiprocessing import forkserver, get_context
from multiprocessing.context import BaseContext
from typing import Any

from tessel_core.errors import InputError
from tessel_core.life_line import obey
from tessel_core.version import __version__

PROCESSES = "processes"
DASK = "dask://"
_ADDRESS = re.compile(rf"{DASK}(\[[0-9a-fA-F:]+\]|[^\s/:\[\]]+):\d{{1,5}}")

MAX_WORKERS = 256
CONNECT_SECONDS = 5.0
"""Time limit for a cluster to answer."""
NO_WORKERS_SECONDS = 60.0
"""The sweep fails if the cluster has had no workers for this long."""
_POLL_SECONDS = 1.0
"""Time between two queries of the cluster's state."""
_PRELOADED_MODULES = ["tessel_core.sweeps.solving", "tessel_core.scheduling.tessel", "tessel_core.cpsat"]
"""Modules that nearly every point needs. Importing them takes half a second or more."""


class WorkerPool(AbstractContextManager["WorkerPool"], ABC):
    """An executor that can be replaced after it breaks. Leaving the `with` statement closes it."""

    executor: Executor
    lost: tuple[type[BaseException], ...]
    """Errors of a future whose worker died or may have died. Its point can be solved again."""
    closed: tuple[type[BaseException], ...]
    """Errors that `submit` raises when the executor is broken."""
    slots: int
    """Number of points that workers solve at the same time."""

    def check(self) -> bool:
        """Return whether the pool still works. Raises InputError if no worker is left."""
        return True

    @abstractmethod
    def renew(self) -> None:
        """Start new workers after the pool has broken. Raises InputError if this is impossible."""

    @abstractmethod
    def close(self) -> None:
        """Drop unfinished points without waiting for them."""

    def __exit__(self, *_: object) -> None:
        self.close()


class ProcessPool(WorkerPool):
    """A pool of worker processes on this machine. They inherit neither threads nor locks of this process."""

    lost = closed = (BrokenProcessPool,)

    def __init__(self, workers: int) -> None:
        if not 1 <= workers <= MAX_WORKERS:
            raise InputError("--workers", f"must be between 1 and {MAX_WORKERS:,}, got {workers}")
        self.slots = workers
        self._open()

    def _open(self) -> None:
        context = _context()
        workers_end, self._life_line = context.Pipe(duplex=False)
        self.executor = _ShieldedExecutor(self.slots, context, initializer=obey, initargs=(workers_end,))

    def renew(self) -> None:
        self.close()
        self._open()

    def close(self) -> None:
        self._life_line.close()
        self.executor.shutdown(wait=False, cancel_futures=True)


class _ShieldedExecutor(ProcessPoolExecutor):
    """An executor whose processes ignore Ctrl-C, even while they start. Only this process reacts to it."""

    def submit(self, *call: Any, **more: Any) -> Future[Any]:
        try:
            with _shielded():
                return super().submit(*call, **more)
        except (EOFError, ConnectionError):
            raise BrokenProcessPool("the process that starts workers (the fork server) has ended") from None


@contextlib.contextmanager
def _shielded() -> Iterator[None]:
    """Block Ctrl-C for processes that start inside this context."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _context() -> BaseContext:
    """Return the start method for workers.

    On Linux, a fork server imports the common modules once for all workers. On other systems, or if it cannot start,
    each worker imports them.
    """
    if sys.platform == "linux":
        forkserver.set_forkserver_preload(_PRELOADED_MODULES)
        with contextlib.suppress(OSError), _shielded():
            forkserver.ensure_running()
            return get_context("forkserver")
    return get_context("spawn")


class DaskPool(WorkerPool):
    """The executor of a Dask cluster. If a worker dies, Dask itself gives its points to other workers."""

    def __init__(self, executor: str) -> None:
        if _ADDRESS.fullmatch(executor) is None:
            raise InputError("--executor", f"must be {DASK}HOST:PORT for a cluster, got {executor!r}")
        if importlib.util.find_spec("distributed") is None:
            raise InputError(
                f"--executor {executor}", "needs the package distributed: pip install 'tessel-explorer[cluster]'"
            )
        from distributed.client import ClosedClientError
        from distributed.comm import CommClosedError
        from distributed.scheduler import KilledWorker

        _silence_logs()
        self.lost, self.closed = (KilledWorker,), (ClosedClientError, CommClosedError)
        self._where = f"cluster {executor}"
        self._address = f"tcp://{executor.removeprefix(DASK)}"
        self._client: Any = None
        self._connect("cannot be reached")

    def _connect(self, why: str) -> None:
        """Connect to the scheduler. Raises InputError unless a worker answers and has this version of the package."""
        from distributed import Client

        try:
            self._client = Client(self._address, timeout=CONNECT_SECONDS, set_as_default=False)
        except OSError:
            self._client = None
            raise InputError(self._where, why) from None
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_SECONDS)
            self._check_code()
        except (TimeoutError, OSError):
            self.close()
            raise InputError(self._where, "has a scheduler, but no worker answers") from None
        except InputError:
            self.close()
            raise
        self.executor = self._client.get_executor(pure=False)
        self.slots, self._looked, self._seen = max(1, self._count()), time.monotonic(), time.monotonic()

    def _check_code(self) -> None:
        """Raise InputError unless the workers have this version of the package."""
        from distributed.client import FutureCancelledError

        future = self._client.submit(_version, pure=False)
        try:
            installed = future.result(timeout=4 * CONNECT_SECONDS)
        except (ImportError, FutureCancelledError, CancelledError, RuntimeError) as error:
            raise InputError(self._where, f"the workers cannot run tessel-explorer ({error})") from None
        if installed != __version__:
            raise InputError(
                self._where, f"the workers have tessel-explorer {installed}, but this is version {__version__}"
            )

    def check(self) -> bool:
        if time.monotonic() - self._looked < _POLL_SECONDS:
            return True
        self._looked = time.monotonic()
        if self._client.status != "running":
            return False
        try:
            threads = self._count()
        except (OSError, TimeoutError):
            return False
        self.slots = max(1, threads)
        if threads:
            self._seen = self._looked
        elif self._looked - self._seen > NO_WORKERS_SECONDS:
            raise InputError(
                self._where, f"has had no workers for {NO_WORKERS_SECONDS:.0f} s; finished points are kept"
            )
        return True

    def _count(self) -> int:
        """Return the number of threads of all workers together."""
        cores = self._client.sync(self._client.scheduler.ncores, callback_timeout=CONNECT_SECONDS)
        return int(sum(cores.values()))

    def renew(self) -> None:
        self.close()
        self._connect("lost its connection; finished points are kept, and the same command resumes")

    def close(self) -> None:
        if self._client is not None:
            with contextlib.suppress(OSError, TimeoutError, CancelledError):
                self._client.close(timeout=CONNECT_SECONDS)


def _silence_logs() -> None:
    """Turn off Dask's log messages about lost connections. Our own error message reports them."""
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _version() -> str:
    return __version__


def open_pool(executor: str = PROCESSES, workers: int | None = None) -> WorkerPool:
    """Open a pool of `workers` processes (by default one per core), or connect to a cluster at `dask://HOST:PORT`.

    Raises InputError if the name is unknown, the number of workers is out of range, or the cluster cannot be used.
    """
    if executor == PROCESSES:
        return ProcessPool(_cores() if workers is None else workers)
    if not executor.startswith(DASK):
        raise InputError("--executor", f"must be {PROCESSES} or {DASK}HOST:PORT, got {executor!r}")
    if workers is not None:
        raise InputError("--workers", "applies only to processes; the cluster decides its own number of workers")
    return DaskPool(executor)


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
