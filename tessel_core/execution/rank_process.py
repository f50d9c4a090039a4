"""Processes of ranks.

A first process imports PyTorch, forks one process per rank, and reports how each ended.

Forking is safe here because the first process has only imported PyTorch, which starts no threads.
"""

from __future__ import annotations

import datetime
import gc
import json
import mmap
import os
import pickle
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from tessel_core.errors import InputError
from tessel_core.life_line import obey

_NOTE_BYTES = 512
"""Size of the note on each rank's current work.  The first two bytes hold the length of the text."""
_PEER_TIMEOUT = datetime.timedelta(days=7)
"""Timeout of communication.

It is so long that it never ends, because the parent process ends ranks that wait for a dead rank.
"""


class News(NamedTuple):
    """A message from a rank during its work."""

    what: object


class Done(NamedTuple):
    """A rank has finished its work with this result."""

    result: Any


class Failed(NamedTuple):
    """The work of a rank raised an exception."""

    at: str
    """The work during which it was raised."""
    why: str
    echo: bool
    """Whether the exception was raised only because another rank has ended."""
    trace: str


class Notes:
    """Notes on the current work of each rank, in shared memory, so that they survive a killed rank."""

    def __init__(self, file: Path, ranks: int) -> None:
        with file.open("r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), ranks * _NOTE_BYTES)

    @staticmethod
    def make(file: Path, ranks: int) -> None:
        """Create an empty file for the notes of `ranks` ranks."""
        file.write_bytes(bytes(ranks * _NOTE_BYTES))

    def write(self, rank: int, text: str) -> None:
        """Replace the note of a rank, cut to its size limit."""
        data = text.encode()[: _NOTE_BYTES - 2]
        self._shared[rank * _NOTE_BYTES : rank * _NOTE_BYTES + 2 + len(data)] = len(data).to_bytes(2, "big") + data

    def read(self, rank: int) -> str:
        """Return the note of a rank."""
        slot = self._shared[rank * _NOTE_BYTES : (rank + 1) * _NOTE_BYTES]
        return slot[2 : 2 + int.from_bytes(slot[:2], "big")].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank, passed to the work that runs on it.  The default process group contains all ranks."""

    number: int
    count: int
    device: str
    """PyTorch device of its tensors."""
    _connection: Connection
    _notes: Notes
    _groups: dict[tuple[int, ...], Any]

    def at(self, text: str) -> None:
        """Store a description of the rank's current work, for error messages. This takes about a microsecond."""
        self._notes.write(self.number, text)

    def tell(self, news: object) -> None:
        """Send a message to the process that started the ranks."""
        self._connection.send_bytes(pickle.dumps(News(news)))

    def settle(self) -> None:
        """Wait until a GPU has finished all work submitted to it; return at once on a CPU."""
        if self.device != "cpu":
            import torch

            torch.cuda.synchronize()

    def groups(self, requested: Iterable[Sequence[int]]) -> dict[tuple[int, ...], Any]:
        """Return the process groups by their ranks.

        Every rank must pass the same groups, including groups that do not contain it.
        """
        import torch.distributed as dist

        wanted = {tuple(sorted(ranks)) for ranks in requested}
        for ranks in sorted(wanted - self._groups.keys()):
            self._groups[ranks] = dist.new_group(list(ranks)) if len(ranks) < self.count else dist.group.WORLD
        return {ranks: self._groups[ranks] for ranks in wanted}


Work = Callable[[Rank, Any], Any]
"""Work of a rank on an argument.  It must be a function at the top of a module, so that it can be pickled."""


@dataclass(frozen=True, slots=True)
class Start:
    """Arguments of the first process: a folder, and file descriptors of open pipes."""

    folder: str
    life_line: int
    reports: int
    ranks: list[int]


def start(text: str) -> None:
    """Fork the ranks and report how each ended.  Runs in a new process and never returns."""
    arguments = Start(**json.loads(text))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reports = Connection(arguments.reports)
    try:
        import torch
        import torch.distributed  # noqa: F401
    except Exception as error:
        reports.send((None, f"cannot be started: PyTorch does not load ({_message(error)})"))
        os._exit(1)
    gc.freeze()  # keep the garbage collectors of ranks from visiting PyTorch's objects, which would copy their pages
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    pids = dict[int, int]()
    try:
        for rank in range(len(arguments.ranks)):
            pid = os.fork()
            if not pid:
                reports.close()
                _be_rank(rank, arguments)
            pids[pid] = rank
    except OSError as error:
        reports.send((None, f"only {len(pids)} of {len(arguments.ranks)} could be started ({error.strerror})"))
    for handle in arguments.ranks:
        os.close(handle)
    signal.signal(signal.SIGTERM, lambda *_: _end(pids))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    obey(Connection(arguments.life_line, writable=False), lambda: _vanish(arguments.folder))
    while pids:
        pid, status = os.wait()
        reports.send((pids.pop(pid, None), os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _end(pids: Iterable[int]) -> None:
    """Kill all ranks.  The caller waits for each."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _vanish(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def _be_rank(rank: int, arguments: Start) -> None:
    """Run each work item that arrives on the rank's pipe, until the pipe closes. Never return."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        for other, handle in enumerate(arguments.ranks):
            if other != rank:
                os.close(handle)
        obey(Connection(arguments.life_line, writable=False))
        connection, notes = (
            Connection(arguments.ranks[rank]),
            Notes(Path(arguments.folder, "notes"), len(arguments.ranks)),
        )
        notes.write(rank, "its start")
        me = _joined(rank, arguments, connection, notes)
        while me is not None:
            _answer(connection, notes, rank, partial(_do, me, connection.recv_bytes()))
    except (EOFError, OSError):  # the parent has closed the pipe
        pass
    finally:
        os._exit(0)


def _do(me: Rank, request: bytes) -> Any:
    me.at("its first step")
    work, argument = pickle.loads(request)
    return work(me, argument)


def _joined(rank: int, arguments: Start, connection: Connection, notes: Notes) -> Rank | None:
    """Join the process group and return the rank. If this fails, send the failure to the parent and return None."""
    import torch
    import torch.distributed as dist

    def join() -> Rank:
        """Wait for all other ranks; use nccl if each has a GPU, and gloo otherwise."""
        torch.set_num_threads(1)
        count = len(arguments.ranks)
        cuda = torch.cuda.device_count() >= count
        if cuda:
            torch.cuda.set_device(rank)
        store = dist.FileStore(str(Path(arguments.folder, "store")), count)
        dist.init_process_group(
            "nccl" if cuda else "gloo", store=store, rank=rank, world_size=count, timeout=_PEER_TIMEOUT
        )
        return Rank(rank, count, f"cuda:{rank}" if cuda else "cpu", connection, notes, {})

    joined = list[Rank]()
    _answer(connection, notes, rank, lambda: joined.append(join()))
    return joined[0] if joined else None


def _answer(connection: Connection, notes: Notes, rank: int, call: Callable[[], Any]) -> None:
    """Send the result of the call, or its failure."""
    try:
        answer: Done | Failed = Done(call())
        data = pickle.dumps(answer)
    except BaseException as error:
        data = pickle.dumps(Failed(notes.read(rank), _message(error), _is_echo(error), traceback.format_exc()))
    connection.send_bytes(data)


def _message(error: BaseException) -> str:
    if isinstance(error, InputError):
        return str(error)
    text = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _is_echo(error: BaseException) -> bool:
    """Return whether the error only says that another rank has ended."""
    import torch.distributed as dist

    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def command(arguments: Start) -> list[str]:
    """Return the command line of the first process, which uses the module search path of this process."""
    values = {name: getattr(arguments, name) for name in Start.__slots__}
    script = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import start; start({json.dumps(values)!r})"
    return [sys.executable, "-c", script]
