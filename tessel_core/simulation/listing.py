"""One device's program line by line, with the time of every operation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tessel_core.ir.project import RankProgram, rank_lines
from tessel_core.simulation.trace import Trace


@dataclass(frozen=True, slots=True)
class Listed:
    """A line; times in seconds, None where it is no operation or one that keeps the device not busy."""

    text: str
    op: int | None = None
    """Its place in the whole program."""
    start: float | None = None
    seconds: float | None = None


def listing(trace: Trace, rank: RankProgram) -> tuple[Listed, ...]:
    """The lines of `rank_text`."""
    mine = np.flatnonzero(trace.device == rank.rank)
    columns = (trace.op[mine].tolist(), trace.start[mine].tolist(), trace.seconds[mine].tolist())
    times = {op: (start, seconds) for op, start, seconds in zip(*columns, strict=True)}
    return tuple(Listed(text, op, *times.get(-1 if op is None else op, ())) for op, text in rank_lines(rank))
