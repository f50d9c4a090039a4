"""A pipe that ends processes when the one that started them is gone."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection


def obey(life_line: Connection, last: Callable[[], object] = lambda: None) -> None:
    """End this process, after `last`, when the one that started it closes the other end of the pipe, or dies.

    A pool cannot end a process in the middle of a call, and one that was killed with -9 cannot do anything at all.
    Ctrl-C is for the one that started it, so this one does not hear it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        life_line.poll(None)
        last()
        os._exit(0)

    threading.Thread(target=watch, name="life-line", daemon=True).start()
