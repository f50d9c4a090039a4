"""The processes that ranks are: one imports PyTorch, becomes as many as are asked for, and says how each ended.

To fork is safe here because nothing but the import has happened, and that starts no threads.
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

_SLOT = 512
"""Bytes in which a rank notes what it is at; the first two say how many of them."""
_PATIENCE = datetime.timedelta(days=7)
"""Until a rank gives up waiting for another: those that wait for a dead one are ended from outside, at once."""


class News(NamedTuple):
    """What a rank said on its way."""

    what: object


class Done(NamedTuple):
    """A rank has done its work."""

    result: Any


class Failed(NamedTuple):
    """Work that raised, and whether only because another rank was gone."""

    at: str
    why: str
    echo: bool
    trace: str


class Notes:
    """What each rank is at, in memory that all processes share, so that the last words of a killed one are there."""

    def __init__(self, file: Path, ranks: int) -> None:
        with file.open("r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), ranks * _SLOT)

    @staticmethod
    def make(file: Path, ranks: int) -> None:
        """An empty file for so many ranks."""
        file.write_bytes(bytes(ranks * _SLOT))

    def write(self, rank: int, text: str) -> None:
        data = text.encode()[: _SLOT - 2]
        self._shared[rank * _SLOT : rank * _SLOT + 2 + len(data)] = len(data).to_bytes(2, "big") + data

    def read(self, rank: int) -> str:
        slot = self._shared[rank * _SLOT : (rank + 1) * _SLOT]
        return slot[2 : 2 + int.from_bytes(slot[:2], "big")].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Rank:
    """One of the processes, as the work on it sees it; the default process group joins all."""

    number: int
    count: int
    device: str
    """Where its tensors are, in PyTorch's words."""
    _connection: Connection
    _notes: Notes
    _groups: dict[tuple[int, ...], Any]

    def at(self, text: str) -> None:
        """Note what the rank does from now on, for the sentence about its end; costs about a microsecond."""
        self._notes.write(self.number, text)

    def tell(self, news: object) -> None:
        """Send news to whoever started the ranks."""
        self._connection.send_bytes(pickle.dumps(News(news)))

    def settle(self) -> None:
        """Wait until the device has done what it was given: a GPU works on while its process goes ahead."""
        if self.device != "cpu":
            import torch

            torch.cuda.synchronize()

    def groups(self, asked: Iterable[Sequence[int]]) -> dict[tuple[int, ...], Any]:
        """Process groups by their ranks; every rank must ask for the same ones, whether it is in them or not."""
        import torch.distributed as dist

        wanted = {tuple(sorted(ranks)) for ranks in asked}
        for ranks in sorted(wanted - self._groups.keys()):
            self._groups[ranks] = dist.new_group(list(ranks)) if len(ranks) < self.count else dist.group.WORLD
        return {ranks: self._groups[ranks] for ranks in wanted}


Work = Callable[[Rank, Any], Any]
"""What a rank does with its argument; a function of a module."""


@dataclass(frozen=True, slots=True)
class Start:
    """What the first process is told, all of it numbers of open files but for the folder."""

    folder: str
    life_line: int
    reports: int
    ranks: list[int]


def start(text: str) -> None:
    """Become the ranks; runs in a fresh process, and never returns."""
    asked = Start(**json.loads(text))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reports = Connection(asked.reports)
    try:
        import torch
        import torch.distributed  # noqa: F401
    except Exception as error:
        reports.send((None, f"cannot be started: PyTorch does not load ({_said(error)})"))
        os._exit(1)
    gc.freeze()  # no rank looks through all of PyTorch for garbage, nor copies its pages to do so
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    pids = dict[int, int]()
    try:
        for rank in range(len(asked.ranks)):
            pid = os.fork()
            if not pid:
                reports.close()
                _be_rank(rank, asked)
            pids[pid] = rank
    except OSError as error:
        reports.send((None, f"only {len(pids)} of {len(asked.ranks)} could be started ({error.strerror})"))
    for handle in asked.ranks:
        os.close(handle)
    signal.signal(signal.SIGTERM, lambda *_: _end(pids))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    obey(Connection(asked.life_line, writable=False), lambda: _vanish(asked.folder))
    while pids:
        pid, status = os.wait()
        reports.send((pids.pop(pid, None), os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _end(pids: Iterable[int]) -> None:
    """Kill all ranks; each is waited for, so none stays behind."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _vanish(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def _be_rank(rank: int, asked: Start) -> None:
    """Do work after work until nobody asks for more; never returns."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        for other, handle in enumerate(asked.ranks):
            if other != rank:
                os.close(handle)
        obey(Connection(asked.life_line, writable=False))
        connection, notes = Connection(asked.ranks[rank]), Notes(Path(asked.folder, "notes"), len(asked.ranks))
        notes.write(rank, "its start")
        me = _joined(rank, asked, connection, notes)
        while me is not None:
            _answer(connection, notes, rank, partial(_do, me, connection.recv_bytes()))
    except (EOFError, OSError):  # nobody listens any more
        pass
    finally:
        os._exit(0)


def _do(me: Rank, asked: bytes) -> Any:
    me.at("its first step")
    work, argument = pickle.loads(asked)
    return work(me, argument)


def _joined(rank: int, asked: Start, connection: Connection, notes: Notes) -> Rank | None:
    """In the process group; None where that failed, which is said."""
    import torch
    import torch.distributed as dist

    def join() -> Rank:
        """Wait for all other ranks, nccl where each has a GPU, else gloo."""
        torch.set_num_threads(1)
        count = len(asked.ranks)
        cuda = torch.cuda.device_count() >= count
        if cuda:
            torch.cuda.set_device(rank)
        store = dist.FileStore(str(Path(asked.folder, "store")), count)
        dist.init_process_group("nccl" if cuda else "gloo", store=store, rank=rank, world_size=count, timeout=_PATIENCE)
        return Rank(rank, count, f"cuda:{rank}" if cuda else "cpu", connection, notes, {})

    found = list[Rank]()
    _answer(connection, notes, rank, lambda: found.append(join()))
    return found[0] if found else None


def _answer(connection: Connection, notes: Notes, rank: int, call: Callable[[], Any]) -> None:
    """Send what the call returns, or why it failed."""
    try:
        answer: Done | Failed = Done(call())
        data = pickle.dumps(answer)
    except BaseException as error:
        data = pickle.dumps(Failed(notes.read(rank), _said(error), _is_echo(error), traceback.format_exc()))
    connection.send_bytes(data)


def _said(error: BaseException) -> str:
    if isinstance(error, InputError):
        return str(error)
    text = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _is_echo(error: BaseException) -> bool:
    """Whether a rank failed only because another one, which it talks to, is gone."""
    import torch.distributed as dist

    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def command(asked: Start) -> list[str]:
    """The first process, which finds the modules that this one finds."""
    told = {name: getattr(asked, name) for name in Start.__slots__}
    script = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import start; start({json.dumps(told)!r})"
    return [sys.executable, "-c", script]
