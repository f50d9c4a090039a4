"""Start one process per rank on this machine, run work on them, and end them together."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.execution.rank_process import Done, Failed, News, Notes, Rank, Start, Work, command
from tessel_core.execution.share import RankResult, Share
from tessel_core.torch_extra import need_torch

MAX_RANKS = 64
_CANCEL_POLL_SECONDS = 0.1
_CAUSE_SECONDS = 1.0
"""After a lost connection, wait this long for the failure that caused it."""
_TERMINATE_SECONDS = 2.0
"""Kill ranks that have not ended this long after SIGTERM."""
_SINGLE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_LOOPBACK = dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), "lo0" if sys.platform == "darwin" else "lo")


class RankError(InputError):
    """A rank ended before its work was finished.  The message names the first such rank, its work and the reason."""

    def __reduce__(self) -> tuple[type[RankError], tuple[str, str]]:
        return RankError, (self.where, self.why)


class _Failure(NamedTuple):
    """Failure of a rank. If `echo` is true, it failed only because another rank had ended."""

    echo: bool
    error: RankError


class Ranks(AbstractContextManager["Ranks"]):
    """Single-threaded processes in one process group: nccl if each rank has a GPU, otherwise gloo on loopback.

    The processes end with the `with` block, when one of them fails, and when the parent process ends in any way.  They
    find each other through a file, so they need no free port.

    Raises InputError if PyTorch is missing or the processes cannot be started.
    """

    def __init__(self, count: int) -> None:
        need_torch("ranks")
        if not hasattr(os, "fork"):
            raise InputError("ranks", "run on Linux and macOS only")
        if not 1 <= count <= MAX_RANKS:
            raise InputError("ranks", f"must be between 1 and {MAX_RANKS}, got {count}")
        self.count = count
        self._open = list[Connection]()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="tessel-ranks-", ignore_cleanup_errors=True)
            notes = Path(self._folder.name, "notes")
            Notes.make(notes, count)
            self._notes = Notes(notes, count)
            self._begin(self._folder.name)
        except OSError as error:
            self._end()
            raise InputError("ranks", f"cannot be started: {error.strerror or error}") from None
        except BaseException:
            self._end()
            raise
        self._started = False

    def _begin(self, folder: str) -> None:
        life_line, self._life_line = Pipe(duplex=False)
        self._reports, reports = Pipe(duplex=False)
        pairs = [Pipe() for _ in range(self.count)]
        self._ranks = [parent_end for parent_end, _ in pairs]
        self._open = [self._life_line, self._reports, *self._ranks]
        child_ends = [life_line, reports, *(child_end for _, child_end in pairs)]
        handles = [each.fileno() for each in child_ends]
        self._process = subprocess.Popen(
            command(Start(folder, handles[0], handles[1], handles[2:])),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # messages come through the pipes
            stderr=subprocess.DEVNULL,
            pass_fds=handles,
            env={**_LOOPBACK, **os.environ, **_SINGLE_THREAD},
            start_new_session=True,  # so that only this process receives Ctrl-C
        )
        for each in child_ends:
            each.close()

    def run(
        self,
        work: Work,
        arguments: Sequence[Any],
        control: Control | None = None,
        on_news: Callable[[int, Any], None] = lambda rank, news: None,
    ) -> list[Any]:
        """Run `work(rank, argument)` on each rank, with one argument per rank, and return the results.

        `on_news` is called in this process with the messages of ranks.

        Raises RankError with the first reason if a rank fails or dies, or if `control` stops.  All ranks have ended
        then, and cannot run again.
        """
        if len(arguments) != self.count:
            raise InputError("ranks", f"there are {self.count} processes, and work for {len(arguments)} ranks")
        if self._process is None:
            raise InputError("ranks", "have ended")
        try:
            if not self._started:
                self._answers(control, on_news)
                self._started = True
            for rank, argument in enumerate(arguments):
                with suppress(BrokenPipeError, ConnectionResetError):  # its exit status is in the reports
                    self._ranks[rank].send_bytes(pickle.dumps((work, argument)))
            return self._answers(control, on_news)
        except BaseException:
            self._end()
            raise

    def _answers(self, control: Control | None, on_news: Callable[[int, Any], None]) -> list[Any]:
        """Wait for the result of each rank.  Raises RankError for the first failure that is not an echo."""
        results, failures = dict[int, Any](), list[_Failure]()
        listening = {connection: rank for rank, connection in enumerate(self._ranks)}
        reports: dict[Connection, None] = {self._reports: None}
        until = float("inf")
        while len(results) < self.count:
            check_stopped(control)
            for connection in wait([*listening, *reports], _CANCEL_POLL_SECONDS):
                assert isinstance(connection, Connection)
                failure = None
                try:
                    if connection in reports:
                        failure = self._ended(*connection.recv())
                    else:
                        failure = self._receive(listening[connection], connection, results, on_news)
                        if listening[connection] in results:
                            del listening[connection]
                except (EOFError, OSError):
                    if connection in reports:
                        failure = _Failure(False, RankError("ranks", "the process that starts them was killed"))
                    listening.pop(connection, None)
                    reports.pop(connection, None)
                if failure is not None:
                    failures.append(failure)
            if failures and until == float("inf"):
                until = time.monotonic() + _CAUSE_SECONDS
            first = next((each for each in failures if not each.echo), None)
            if first is not None or time.monotonic() > until:
                raise (first or failures[0]).error
        return [results[rank] for rank in range(self.count)]

    def _receive(
        self, rank: int, connection: Connection, results: dict[int, Any], on_news: Callable[[int, Any], None]
    ) -> _Failure | None:
        message = pickle.loads(connection.recv_bytes())
        if isinstance(message, Failed):
            error = RankError(f"rank {rank} at {message.at}", message.why)
            error.add_note(message.trace)
            return _Failure(message.echo, error)
        if isinstance(message, Done):
            results[rank] = message.result
        elif isinstance(message, News):
            on_news(rank, message.what)
        return None

    def _ended(self, rank: int | None, how: int | str) -> _Failure:
        if isinstance(how, str):
            return _Failure(False, RankError("ranks", how))
        at = f"rank {rank} at {self._notes.read(rank or 0)}"
        if how < 0:
            return _Failure(False, RankError(at, f"was killed ({signal.Signals(-how).name})"))
        return _Failure(False, RankError(at, f"ended with exit code {how} and no message"))

    def _end(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.terminate()
            try:
                self._process.wait(_TERMINATE_SECONDS)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self._process = None
        for each in self._open:
            each.close()
        self._open = []
        if self._folder is not None:
            self._folder.cleanup()

    def __exit__(self, *_: object) -> None:
        self._end()


def run_share(rank: Rank, share: Share) -> RankResult:
    """Run a rank's share of a program.  PyTorch is imported only in the process of the rank."""
    from tessel_core.execution.rank_program import walk

    return walk(rank, share)


def check_stopped(control: Control | None) -> None:
    """Raise RankError if the run is cancelled or out of time."""
    if control is not None and control.stopped:
        raise RankError("run", "cancelled" if control.cancelled else "the time limit is reached")
