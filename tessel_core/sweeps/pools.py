"""Where points are solved: processes of this machine, or a Dask cluster, behind one `Executor`."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from concurrent.futures import Executor
from contextlib import AbstractContextManager

from tessel_core.errors import InputError

PROCESSES = "processes"
DASK = "dask://"


class WorkerPool(AbstractContextManager["WorkerPool"], ABC):
    """An executor, and what to do when it breaks; made ready by `with`, and gone after it."""

    executor: Executor
    lost: tuple[type[BaseException], ...]
    """What a future raises when the worker died that had its point, or may have had it."""
    closed: tuple[type[BaseException], ...]
    """What `submit` raises once the executor has broken."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many points are solved at a time."""

    @abstractmethod
    def check(self) -> bool:
        """Whether futures can still end; asked again and again.

        Raises
        ------
        InputError
            When there will be nobody to solve anything.
        """

    @abstractmethod
    def renew(self) -> None:
        """Take up work again after a break, on new workers; InputError where there can be none."""

    @abstractmethod
    def close(self) -> None:
        """Drop what is not solved yet, without waiting for it."""

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_pool(words: str = PROCESSES, workers: int | None = None) -> WorkerPool:
    """`processes`, `workers` of them or as many as there are cores, or `dask://HOST:PORT`.

    Raises
    ------
    InputError
        For other words, a number of workers out of range, or a cluster that cannot be reached or used.
    """
    if words == PROCESSES:
        from tessel_core.sweeps.processes import ProcessPool

        return ProcessPool(_cores() if workers is None else workers)
    if not words.startswith(DASK):
        raise InputError("--executor", f"must be {PROCESSES} or {DASK}HOST:PORT, got {words!r}")
    if workers is not None:
        raise InputError("--workers", "is for processes: a cluster has the workers that it has")
    from tessel_core.sweeps.dask import DaskPool

    return DaskPool(words)


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
