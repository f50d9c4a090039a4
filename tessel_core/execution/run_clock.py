"""Record when blocks start and end on one rank, on a clock that all ranks share."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from tessel_core.execution.rank_process import Rank
from tessel_core.execution.share import Run, Share, Timed

_MESSAGE_INTERVAL_NS = 200_000_000
"""Shortest time between two messages about finished runs."""
_START_DELAY_NS = 30_000_000
"""Time between the arrival of all ranks and the common start."""
_SPIN_NS = 80_000
"""Busy-wait for this long before the target time, because a sleep may end late."""


class RunClock:
    """Records the runs of a rank and sends them to the parent process."""

    def __init__(self, rank: Rank, share: Share) -> None:
        self.runs = list[Timed]()
        self._rank, self._groups = rank, rank.groups(share.groups)
        self._begun = self._told_ns = self._told = 0

    def begin(self) -> None:
        """Wait for all ranks, agree on a common start time, and sleep until then."""
        moment = torch.zeros(1, dtype=torch.int64, device=self._rank.device)
        dist.all_reduce(moment)
        moment += time.monotonic_ns() + _START_DELAY_NS
        dist.all_reduce(moment, op=dist.ReduceOp.MAX)
        self._begun = int(moment.item())
        sleep_until(self._begun)

    def meet(self, run: Run) -> None:
        """Wait until all ranks of a run have arrived."""
        if len(run.ranks) > 1:
            dist.all_reduce(torch.zeros(1, device=self._rank.device), group=self._groups[run.ranks])

    def note(self, run: Run, start: int, end: int) -> None:
        """Record a finished run. Send the new records if the last message was more than `_MESSAGE_INTERVAL_NS` ago."""
        self.runs.append(Timed(run.block, run.micro_batch, start - self._begun, end - self._begun))
        if end - self._told_ns > _MESSAGE_INTERVAL_NS:
            self.tell()
            self._told_ns = end

    def tell(self) -> None:
        """Send the runs that have ended since the last message."""
        self._rank.tell(self.runs[self._told :])
        self._told = len(self.runs)


def sleep_until(moment: int) -> None:
    """Sleep until a time of the monotonic clock in nanoseconds, accurate to some microseconds."""
    left = moment - time.monotonic_ns()
    if left > _SPIN_NS:
        time.sleep((left - _SPIN_NS) / 1e9)
    while time.monotonic_ns() < moment:
        pass
