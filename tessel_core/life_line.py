"""A pipe that ends child processes when their parent process ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection


def obey(life_line: Connection, last: Callable[[], object] = lambda: None) -> None:
    """End this process when the parent closes its end of the pipe `life_line` or dies. Call `last` first.

    A pool cannot end a process in the middle of a call, and a parent killed with SIGKILL cannot end its children.
    This process ignores Ctrl-C, which only the parent handles.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        life_line.poll(None)
        last()
        os._exit(0)

    threading.Thread(target=watch, name="life-line", daemon=True).start()
