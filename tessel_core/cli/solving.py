"""A solver at work behind a terminal: a live line of news, and Ctrl-C that keeps the best so far."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from tessel_core.cli.output import ProgressLine
from tessel_core.control import Control

_LISTEN_S = 0.1


@contextlib.contextmanager
def solving(time_unit: str, time_limit_s: float = 3600.0) -> Iterator[Any]:
    """A function that runs a call with a control, tells its progress, and lets Ctrl-C keep the best so far."""
    with ProgressLine(time_unit) as line:
        control = Control(time_limit_s, on_progress=line.show)
        # Python runs signal handlers on the main thread only, which must not be busy inside the solver.
        with _interrupt_cancels(control), ThreadPoolExecutor(max_workers=1) as aside:
            yield lambda call: _listening(aside.submit(call, control))


def _listening(future: Future[Any]) -> Any:
    """The result.  Python runs the handler of a signal that another thread took between two waits, never during one."""
    while not future.done():
        wait([future], _LISTEN_S)
    return future.result()


@contextlib.contextmanager
def _interrupt_cancels(control: Control) -> Iterator[None]:
    """Ctrl-C keeps the best so far instead of throwing it away."""
    before = signal.signal(signal.SIGINT, lambda *_: control.cancel())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
