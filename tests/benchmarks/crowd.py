"""How long pages take at the server while people search: a table beside the figure to reach.

    python tests/benchmarks/crowd.py                # two minutes; needs no browser

Each person is a connection of its own that speaks Streamlit's protocol, as a browser tab does: it opens a link whose
search goes on for longer than the measurement, and asks for its progress as often as the page wants to be asked.
Beside them one more person turns from page to page, each opened before and so warm.  A page takes from the message
that asks for it until the one that says that its script has ended.  After that the searchers close their tabs, and
*freed* is how long the process goes on working.

Figures are shown and never judged; the exit status is 1 where a page ends with an error.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from helpers.app_server import serve  # noqa: E402

SEARCHES = ("gpt-13b-split-v-16", "gpt-175b-v-16", "evoformer-16", "gpt-6.7b-split-v-8", "mt5-nn-8", "gpt-13b-v-8")
LINK = "sample={}&n=64&scheduler=tessel&time-limit=600&view=schedule"
VISITS = {
    "start": "",
    "graph": "graph=gpt2-xl-training",
    "mesh": "",
    "placement": "graph=gpt2-xl-training",
    "schedule": "sample=gpt-1m-vocab-m-4&n=32&scheduler=1f1b-plus&view=schedule",
    "compare": "",
    "strategies": "",
    "program": "",
}
REACH_S = 1.5


class Tab:
    """A browser tab without a browser."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self.failed = ""

    async def ask(self, page: str, query: str, fragment: str = "") -> float:
        """Seconds from the question to the end of the page's script."""
        message = BackMsg()
        message.rerun_script.query_string, message.rerun_script.page_name = query, page
        message.rerun_script.fragment_id, message.rerun_script.is_auto_rerun = fragment, bool(fragment)
        asked = time.perf_counter()
        await self._connection.send(message.SerializeToString())
        return await self._ended() - asked

    async def _ended(self) -> float:
        """When the script has ended; fragments that want to be asked again are kept."""
        self.again: tuple[str, float] | None = None
        while True:
            data = await self._connection.recv(decode=False)
            forward = ForwardMsg()
            forward.ParseFromString(data)
            kind = forward.WhichOneof("type")
            if kind == "auto_rerun":
                self.again = forward.auto_rerun.fragment_id, forward.auto_rerun.interval
            if kind == "delta" and forward.delta.new_element.WhichOneof("type") == "exception":
                self.failed = forward.delta.new_element.exception.message
            if kind == "script_finished" and forward.script_finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN:
                return time.perf_counter()

    async def search(self, query: str) -> None:
        """Open a link, and ask for progress for ever."""
        await self.ask("schedule", query)
        while self.again is not None:
            fragment, interval = self.again
            await asyncio.sleep(interval)
            await self.ask("schedule", query, fragment)
            self.again = fragment, interval


async def measure(url: str, pid: int, people: int, rounds: int) -> tuple[dict[str, list[float]], float, str]:
    address = url.replace("http", "ws") + "/_stcore/stream"
    protocol = {"subprotocols": ["streamlit"], "max_size": None}
    took: dict[str, list[float]] = {page: [] for page in VISITS}
    async with connect(address, **protocol) as own:
        tab = Tab(own)
        for page, query in VISITS.items():
            await tab.ask(page, query)
        searching = [await connect(address, **protocol) for _ in range(people)]
        work = [asyncio.create_task(Tab(each).search(LINK.format(SEARCHES[i]))) for i, each in enumerate(searching)]
        await asyncio.sleep(8)
        for _ in range(rounds):
            for page, query in VISITS.items():
                took[page].append(await tab.ask(page, query))
        ended = [task.exception() or "its search ended" for task in work if task.done()]
        for task in work:
            task.cancel()
        for each in searching:
            await each.close()
        closed = time.perf_counter()
        while people and busy(pid) > 0.2:
            pass
        return took, time.perf_counter() - closed, tab.failed or str(ended[0] if ended else "")


def busy(pid: int, seconds: float = 0.5) -> float:
    """Cores that a process keeps busy."""

    def ticks() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(seconds)
    return (ticks() - before) / 100 / seconds


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Pages while people search.")
    parser.add_argument("--people", type=int, nargs="+", default=[0, 5])
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args(arguments)
    table, wrong = Table("page"), ""
    columns: list[dict[str, list[float]]] = []
    freed = list[str]()
    for people in asked.people:
        table.add_column(f"{people} searching: s, median", justify="right")
        table.add_column("most", justify="right")
        with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as (url, server):
            took, seconds, failed = asyncio.run(measure(url, server.pid, people, asked.rounds))
        columns.append(took)
        freed.append(f"{seconds:.1f}" if people else "")
        wrong = wrong or failed
    for page in VISITS:
        table.add_row(page, *(f"{shown:.2f}" for took in columns for shown in (median(took[page]), max(took[page]))))
    table.add_row(f"reach {REACH_S}; freed", *(each for seconds in freed for each in (seconds, "")))
    Console(width=120).print(table)
    if wrong:
        print(wrong)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
