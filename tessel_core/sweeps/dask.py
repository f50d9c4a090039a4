"""A Dask cluster that is already there: a scheduler at an address, and the workers that it has [distributed]."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import re
import time
from asyncio import CancelledError
from typing import Any

from tessel_core import __version__
from tessel_core.errors import InputError
from tessel_core.sweeps.pools import DASK, WorkerPool

CONNECT_S = 5.0
"""Until a cluster answers, or is not there."""
WORKERS_S = 60.0
"""How long a sweep waits for workers when all have left."""
_LOOK_S = 1.0
_ADDRESS = re.compile(rf"{DASK}(\[[0-9a-fA-F:]+\]|[^\s/:\[\]]+):\d{{1,5}}")


class DaskPool(WorkerPool):
    """The cluster's own executor; it gives the points of a worker that died to others by itself."""

    def __init__(self, words: str) -> None:
        if _ADDRESS.fullmatch(words) is None:
            raise InputError("--executor", f"must be {DASK}HOST:PORT for a cluster, got {words!r}")
        if importlib.util.find_spec("distributed") is None:
            raise InputError(f"--executor {words}", "needs distributed: pip install 'tessel-explorer[cluster]'")
        from distributed.client import ClosedClientError
        from distributed.comm import CommClosedError
        from distributed.scheduler import KilledWorker

        _hush()
        self.lost, self.closed = (KilledWorker,), (ClosedClientError, CommClosedError)
        self._where = f"cluster {words}"
        self._address = f"tcp://{words.removeprefix(DASK)}"
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
        self._slots, self._looked, self._seen = self._count(), time.monotonic(), time.monotonic()

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

    @property
    def slots(self) -> int:
        return max(1, self._slots)

    def check(self) -> bool:
        if time.monotonic() - self._looked < _LOOK_S:
            return True
        self._looked = time.monotonic()
        if self._client.status != "running":
            return False
        try:
            self._slots = self._count()
        except (OSError, TimeoutError):
            return False
        if self._slots:
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
