"""When the runs of a schedule begin and end on one rank, on a clock that all ranks share."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from tessel_core.execution.rank_process import Rank
from tessel_core.execution.share import Run, Share, Timed

_NEWS_NS = 200_000_000
"""Between two messages about runs that ended."""
_START_NS = 30_000_000
"""From the moment at which all ranks are there to the common start."""
_SPIN_NS = 80_000
"""How late a sleep may end, so the rest is waited for awake."""


class RunClock:
    """Takes down the runs of a rank."""

    def __init__(self, rank: Rank, share: Share) -> None:
        self.runs = list[Timed]()
        self._rank, self._groups = rank, rank.groups(share.groups)
        self._begun = self._told_ns = self._told = 0

    def begin(self) -> None:
        """Wait for the moment at which all ranks begin, once they are all here."""
        moment = torch.zeros(1, dtype=torch.int64, device=self._rank.device)
        dist.all_reduce(moment)
        moment += time.monotonic_ns() + _START_NS
        dist.all_reduce(moment, op=dist.ReduceOp.MAX)
        self._begun = int(moment.item())
        sleep_until(self._begun)

    def meet(self, run: Run) -> None:
        """Go on when all ranks of a run are here."""
        if len(run.ranks) > 1:
            dist.all_reduce(torch.zeros(1, device=self._rank.device), group=self._groups[run.ranks])

    def note(self, run: Run, start: int, end: int) -> None:
        """A run has ended; says so now and then."""
        self.runs.append(Timed(run.block, run.micro_batch, start - self._begun, end - self._begun))
        if end - self._told_ns > _NEWS_NS:
            self.tell()
            self._told_ns = end

    def tell(self) -> None:
        """Say which runs have ended since the last time."""
        self._rank.tell(self.runs[self._told :])
        self._told = len(self.runs)


def sleep_until(moment: int) -> None:
    """Until a moment of the monotonic clock, to some microseconds."""
    left = moment - time.monotonic_ns()
    if left > _SPIN_NS:
        time.sleep((left - _SPIN_NS) / 1e9)
    while time.monotonic_ns() < moment:
        pass
