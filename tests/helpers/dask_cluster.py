"""A real Dask scheduler and workers, each a process on the loopback interface, which end with the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
QUIET = {"DASK_LOGGING__DISTRIBUTED": "error", "OMP_NUM_THREADS": "1"}


class Cluster:
    """A cluster of processes that can be killed one by one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.address = ""
        """HOST:PORT of the scheduler."""

    def start_scheduler(self, port: int = 0) -> subprocess.Popen[bytes]:
        """Start a scheduler on `port`, or on a free port, and return when it listens."""
        file = self._folder / "scheduler.json"
        file.unlink(missing_ok=True)
        words = ("--host", "127.0.0.1", "--port", port, "--dashboard-address", "127.0.0.1:0", "--scheduler-file", file)
        process = self._start("distributed.cli.dask_scheduler", *words)
        until = time.monotonic() + 60
        while not self._listens(file):
            assert process.poll() is None, "the scheduler ended"
            assert time.monotonic() < until, "the scheduler does not start"
            time.sleep(0.05)
        return process

    def _listens(self, file: Path) -> bool:
        try:
            self.address = json.loads(file.read_text())["address"].removeprefix("tcp://")
        except (OSError, ValueError):
            return False
        return True

    def start_worker(self) -> subprocess.Popen[bytes]:
        """Start a worker with one thread, which is not restarted if it dies."""
        words = ("--no-nanny", "--nthreads", 1, "--host", "127.0.0.1", "--no-dashboard", "--death-timeout", 60)
        return self._start("distributed.cli.dask_worker", f"tcp://{self.address}", *words)

    def _start(self, module: str, *words: object) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(filter(None, (str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH"))))
        process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, words)],
            cwd=self._folder,
            env={**os.environ, **QUIET, "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.processes.append(process)
        return process


@contextmanager
def dask_cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """Run a scheduler and `workers` workers."""
    cluster = Cluster(folder)
    try:
        cluster.start_scheduler()
        for _ in range(workers):
            cluster.start_worker()
        yield cluster
    finally:
        for process in cluster.processes:
            process.kill()
        for process in cluster.processes:
            process.wait(10)
