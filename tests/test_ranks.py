"""Processes of ranks: they work together, and all end with the first failure, whatever causes it."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from helpers.ranks import ENDS, ends, run_on_ranks, total, total_of_some, waits

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.execution.rank_process import command
from tessel_core.execution.ranks import MAX_RANKS, RankError, Ranks

SOON_S = 5.0
"""Seconds until all ranks have ended."""


def processes_in(folder: Path) -> set[str]:
    """Return the living processes that were started for ranks with this temporary folder."""
    found = set[str]()
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            line = (process / "cmdline").read_bytes().decode(errors="replace") if process.name.isdigit() else ""
            found |= {process.name} if "rank_process import start" in line and str(folder) in line else set()
    return found


@pytest.fixture
def nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a check that no process of the test's ranks remains after a short wait."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def check() -> None:
        until = time.monotonic() + SOON_S
        while processes_in(tmp_path) and time.monotonic() < until:
            time.sleep(0.05)
        assert not processes_in(tmp_path)

    return check


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
def test_ranks_work_together_again_and_again(tmp_path: Path, nothing_stays: Callable[[], None]) -> None:
    news = list[tuple[int, str]]()
    with Ranks(3) as ranks:
        assert ranks.run(total, [1, 2, 3], on_news=lambda *each: news.append(each)) == [6, 6, 6]
        assert len(processes_in(tmp_path)) >= 1
        assert sorted(news) == [(rank, f"rank {rank} has it") for rank in range(3)]
        groups = [[0, 1], [1, 2], [0, 1, 2]]
        for _ in range(2):
            assert [sorted(found) for found in ranks.run(total_of_some, [groups] * 3)] == [[1, 3], [1, 3, 3], [3, 3]]
        with pytest.raises(InputError, match=r"^ranks: there are 3 processes, and work for 2 ranks$"):
            ranks.run(total, [1, 2])
    nothing_stays()


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
@pytest.mark.parametrize("how", ENDS)
def test_all_end_with_the_first_reason(how: str, nothing_stays: Callable[[], None]) -> None:
    why = {
        "killed": "was killed (SIGKILL)",
        "exception": "KeyError: 'weights'",
        "nan": "the loss: is NaN",
        "full disk": "OSError: [Errno 28] No space left on device",
        "left": "ended with exit code 3 and no message",
    }
    with Ranks(3) as ranks:
        ranks.run(total, [1, 2, 3])
        began = time.monotonic()
        with pytest.raises(RankError) as raised:
            ranks.run(ends, [how] * 3)
        assert str(raised.value) == f"rank 1 at F0 #3: {why[how]}"
        nothing_stays()
        assert time.monotonic() - began < SOON_S
        with pytest.raises(InputError, match=r"^ranks: have ended$"):
            ranks.run(total, [1, 2, 3])


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
def test_a_cancel_ends_all(tmp_path: Path, nothing_stays: Callable[[], None]) -> None:
    control = Control()
    threading.Timer(0.5, control.cancel).start()
    began = time.monotonic()
    with pytest.raises(RankError, match=r"^run: cancelled$"):
        run_on_ranks(waits, [str(tmp_path)] * 2, control)
    nothing_stays()
    assert time.monotonic() - began < SOON_S


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_all_end_with_the_process_that_started_them(
    ended_by: signal.Signals, tmp_path: Path, nothing_stays: Callable[[], None]
) -> None:
    at_work = tmp_path / "at work"
    at_work.mkdir()
    command = [sys.executable, "-m", "helpers.ranks", str(at_work)]
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(here), str(here.parent))), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True) as starter:
        until = time.monotonic() + 60
        while len(list(at_work.iterdir())) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        began = time.monotonic()
        os.killpg(starter.pid, ended_by)  # as a terminal does
        starter.wait()
        nothing_stays()
        assert time.monotonic() - began < SOON_S
    while list(tmp_path.iterdir()) != [at_work] and time.monotonic() < began + SOON_S:
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == [at_work]


FEW = """
import os
left, fork = [1], os.fork
def few():
    if not left:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    left.pop()
    return fork()
os.fork = few
"""
NOTHING = "import sys; sys.modules['torch'] = None\n"


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
@pytest.mark.parametrize(
    ("before", "why"),
    [
        (FEW, "only 1 of 2 could be started (Resource temporarily unavailable)"),
        (NOTHING, "cannot be started: PyTorch does not load (ModuleNotFoundError: import of torch halted; None in "
         "sys.modules)"),
    ],
    ids=["too many processes", "a PyTorch that does not load"],
)  # fmt: skip
def test_ranks_that_do_not_start_are_one_sentence(
    before: str, why: str, monkeypatch: pytest.MonkeyPatch, nothing_stays: Callable[[], None]
) -> None:
    monkeypatch.setattr(
        "tessel_core.execution.ranks.command", lambda asked: [sys.executable, "-c", before + command(asked)[2]]
    )
    with pytest.raises(RankError) as raised:
        run_on_ranks(total, [1, 2])
    assert str(raised.value) == f"ranks: {why}"
    nothing_stays()


def test_what_cannot_be_started_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for lacking, called in (("torch", "PyTorch"), ("array_api_compat", "array-api-compat")):
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, lacking=lacking: None if name == lacking else object()
        )
        with pytest.raises(InputError, match=rf"^ranks: needs {called}: pip install 'tessel-explorer\[torch\]'$"):
            Ranks(2)
    monkeypatch.setattr("tessel_core.execution.ranks.need_torch", lambda what: None)
    for count in (0, MAX_RANKS + 1):
        with pytest.raises(InputError, match=f"^ranks: must be between 1 and {MAX_RANKS}, got {count}$"):
            Ranks(count)
