"""Pools of workers that solve points: processes of this machine, or a Dask cluster, behind one `Executor`."""

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

MOST_WORKERS = 256
CONNECT_S = 5.0
"""Until a cluster answers, or is not there."""
WORKERS_S = 60.0
"""How long a sweep waits for workers when all have left."""
_LOOK_S = 1.0
"""Between two looks at a cluster."""
_ALL_NEED = ["tessel_core.sweeps.solving", "tessel_core.scheduling.tessel", "tessel_core.cpsat"]
"""Modules that nearly every point needs; importing them takes half a second and more."""


class WorkerPool(AbstractContextManager["WorkerPool"], ABC):
    """An executor, and what to do when it breaks; made ready by `with`, and gone after it."""

    executor: Executor
    lost: tuple[type[BaseException], ...]
    """Errors of a future whose worker died with its point, or may have."""
    closed: tuple[type[BaseException], ...]
    """Errors that `submit` raises once the executor has broken."""
    slots: int
    """How many points are solved at a time."""

    def check(self) -> bool:
        """Whether futures can still end, asked again and again; raises InputError when no worker will come any more."""
        return True

    @abstractmethod
    def renew(self) -> None:
        """Take up work again after a break, on new workers; raises InputError where there can be none."""

    @abstractmethod
    def close(self) -> None:
        """Drop what is not solved yet, without waiting for it."""

    def __exit__(self, *_: object) -> None:
        self.close()


class ProcessPool(WorkerPool):
    """A pool of processes that have none of this one's threads or locks."""

    lost = closed = (BrokenProcessPool,)

    def __init__(self, workers: int) -> None:
        if not 1 <= workers <= MOST_WORKERS:
            raise InputError("--workers", f"must be between 1 and {MOST_WORKERS:,}, got {workers}")
        self.slots = workers
        self._open()

    def _open(self) -> None:
        context = _context()
        ours, self._life_line = context.Pipe(duplex=False)
        self.executor = _ShieldedExecutor(self.slots, context, initializer=obey, initargs=(ours,))

    def renew(self) -> None:
        self.close()
        self._open()

    def close(self) -> None:
        self._life_line.close()
        self.executor.shutdown(wait=False, cancel_futures=True)


class _ShieldedExecutor(ProcessPoolExecutor):
    """Its processes never hear Ctrl-C, not even while they start: that is for the one that started them."""

    def submit(self, *call: Any, **more: Any) -> Future[Any]:
        try:
            with _shielded():
                return super().submit(*call, **more)
        except (EOFError, ConnectionError):
            raise BrokenProcessPool("the server that forks its processes is gone") from None


@contextlib.contextmanager
def _shielded() -> Iterator[None]:
    """Processes that begin in this block do not hear Ctrl-C."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _context() -> BaseContext:
    """On Linux one server imports what workers need, and forks them; elsewhere, or without it, each imports it."""
    if sys.platform == "linux":
        forkserver.set_forkserver_preload(_ALL_NEED)
        with contextlib.suppress(OSError), _shielded():
            forkserver.ensure_running()
            return get_context("forkserver")
    return get_context("spawn")


class DaskPool(WorkerPool):
    """The cluster's own executor; it gives the points of a worker that died to others by itself."""

    def __init__(self, executor: str) -> None:
        if _ADDRESS.fullmatch(executor) is None:
            raise InputError("--executor", f"must be {DASK}HOST:PORT for a cluster, got {executor!r}")
        if importlib.util.find_spec("distributed") is None:
            raise InputError(f"--executor {executor}", "needs distributed: pip install 'tessel-explorer[cluster]'")
        from distributed.client import ClosedClientError
        from distributed.comm import CommClosedError
        from distributed.scheduler import KilledWorker

        _hush()
        self.lost, self.closed = (KilledWorker,), (ClosedClientError, CommClosedError)
        self._where = f"cluster {executor}"
        self._address = f"tcp://{executor.removeprefix(DASK)}"
        self._client: Any = None
        self._connect("cannot be reached")

    def _connect(self, why: str) -> None:
        """Find the scheduler, at least one worker, and our code on it."""
        from distributed import Client

        try:
            self._client = Client(self._address, timeout=CONNECT_S, set_as_default=False)
        except OSError:
            self._client = None
            raise InputError(self._where, why) from None
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_S)
            self._check_code()
        except (TimeoutError, OSError):
            self.close()
            raise InputError(self._where, "has a scheduler, but no worker that answers") from None
        except InputError:
            self.close()
            raise
        self.executor = self._client.get_executor(pure=False)
        self.slots, self._looked, self._seen = max(1, self._count()), time.monotonic(), time.monotonic()

    def _check_code(self) -> None:
        """Workers import what they are sent, so they need this package, of this version."""
        from distributed.client import FutureCancelledError

        future = self._client.submit(_version, pure=False)
        try:
            found = future.result(timeout=4 * CONNECT_S)
        except (ImportError, FutureCancelledError, CancelledError, RuntimeError) as error:
            raise InputError(self._where, f"its workers cannot run tessel-explorer ({error})") from None
        if found != __version__:
            raise InputError(self._where, f"its workers have tessel-explorer {found}, this is {__version__}")

    def check(self) -> bool:
        if time.monotonic() - self._looked < _LOOK_S:
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
        elif self._looked - self._seen > WORKERS_S:
            raise InputError(self._where, f"has had no workers for {WORKERS_S:.0f} s; points that are done are kept")
        return True

    def _count(self) -> int:
        """Threads of all workers."""
        cores = self._client.sync(self._client.scheduler.ncores, callback_timeout=CONNECT_S)
        return int(sum(cores.values()))

    def renew(self) -> None:
        self.close()
        self._connect("went away; points that are done are kept, and the same command goes on")

    def close(self) -> None:
        if self._client is not None:
            with contextlib.suppress(OSError, TimeoutError, CancelledError):
                self._client.close(timeout=CONNECT_S)


def _hush() -> None:
    """No log of a lost connection on the terminal, where we say it in a sentence."""
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _version() -> str:
    return __version__


def open_pool(executor: str = PROCESSES, workers: int | None = None) -> WorkerPool:
    """`processes`, `workers` of them or as many as there are cores, or `dask://HOST:PORT`.

    Raises InputError for another name, a number of workers out of range, or a cluster that cannot be reached or used.
    """
    if executor == PROCESSES:
        return ProcessPool(_cores() if workers is None else workers)
    if not executor.startswith(DASK):
        raise InputError("--executor", f"must be {PROCESSES} or {DASK}HOST:PORT, got {executor!r}")
    if workers is not None:
        raise InputError("--workers", "is for processes: a cluster has the workers that it has")
    return DaskPool(executor)


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
