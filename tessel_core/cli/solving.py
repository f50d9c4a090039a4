"""Run a solver with a progress line in the terminal. Ctrl-C stops the solver and keeps its best answer so far."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from tessel_core.control import Control, Progress
from tessel_core.units import show_gap, show_time

T = TypeVar("T")

_POLL_S = 0.1


def solve(call: Callable[[Control], T], time_unit: str, time_limit_s: float = 3600.0, what: str = "") -> T:
    """Return the result of `call`.

    Show its progress after the text `what`. Ctrl-C cancels `call`, which then returns its best answer so far.
    """
    with _progress_line(time_unit, what) as show:
        control = Control(time_limit_s, on_progress=show)
        # Python runs signal handlers on the main thread only, which must not be busy inside the solver.
        with _interrupt_cancels(control), ThreadPoolExecutor(max_workers=1) as aside:
            future = aside.submit(call, control)
            # If another thread receives the signal, Python runs the handler here only after a wait has ended.
            while not future.done():
                wait([future], _POLL_S)
            return future.result()


@contextlib.contextmanager
def _interrupt_cancels(control: Control) -> Iterator[None]:
    """Make Ctrl-C cancel the control instead of raising KeyboardInterrupt."""
    before = signal.signal(signal.SIGINT, lambda *_: control.cancel())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _progress_line(time_unit: str, what: str) -> Iterator[Callable[[Progress], None]]:
    """Show a progress line with best answer, bound and gap on stderr. Show nothing if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda news: None
        return
    from rich.console import Console
    from rich.status import Status

    with Status(what or "searching", console=Console(stderr=True)) as spinner:

        def show(news: Progress) -> None:
            parts = [*filter(None, [what]), f"{news.phase} {news.wall_s:.1f} s"]
            if news.objective is not None:
                parts.append(f"best {show_time(float(news.objective), time_unit)}")
            if news.bound is not None:
                parts.append(f"bound {show_time(float(news.bound), time_unit)}")
            if news.gap is not None:
                parts.append(f"gap {show_gap(news.gap)}")
            spinner.update("  ".join(parts))

        yield show
