"""Stand-ins for the blocks of a plan on one rank. They use the time and memory of the blocks, but compute nothing
useful.

Blocks exchange tokens instead of real tensors. A token carries the time at which its block ended, plus lags. A block
that needs the token waits until that time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np
import torch

from tessel_core.execution.collectives import Arriving, Talk
from tessel_core.execution.rank_process import Rank
from tessel_core.execution.run_clock import sleep_until
from tessel_core.execution.share import Share
from tessel_core.execution.stand_ins import COMPUTE, StandIns
from tessel_core.execution.torch_operators.formats import Tensor
from tessel_core.ir.operators.attributes import number
from tessel_core.ir.operators.operator import Values
from tessel_core.ir.project import RankOp
from tessel_core.ir.types import TensorType

_MATRIX_ROWS = 64
"""Rows and columns of the matrix that computing stand-ins multiply."""
_MOMENT = TensorType("int64", (1,), 0)


class RankBlocks:
    """Runs the operations `block` and `delay` of one rank."""

    def __init__(self, rank: Rank, share: Share, stand_ins: StandIns) -> None:
        self._rank, self._rank_of, self._stand_ins = rank, share.rank_of, stand_ins
        self._types = share.program.program.types
        self._talk = Talk(rank, share, lambda tensor: None, lambda tensor: None)
        self._matrix = torch.full((_MATRIX_ROWS, _MATRIX_ROWS), 1 / _MATRIX_ROWS, device=rank.device)
        self._moments = dict[int, int | Arriving]()
        """Time carried by each token, in nanoseconds of the monotonic clock."""

    def memory(self, value: int) -> Tensor:
        """Return an array of the size of a value, times the memory scale of the stand-ins. Its memory is written."""
        size = int(self._types[value].elements * self._stand_ins.memory)
        # NumPy fills megabytes many times faster than torch.ones does.
        return torch.from_numpy(np.ones(size, np.uint8)).to(self._rank.device)

    def wait(self, values: Iterable[int]) -> None:
        """Wait until the latest of the times that tokens among `values` carry."""
        for value in values:
            moment = self._moments.get(value)
            if isinstance(moment, Arriving):
                moment = self._moments[value] = int(moment.arrived().item())
            if moment is not None:
                sleep_until(moment)

    def block(self, each: RankOp, values: Values) -> dict[int, Tensor]:
        """Allocate the outputs, then sleep or compute for the duration of the block."""
        until = time.monotonic_ns() + self._ns(values)
        made = {value: self.memory(value) for value in each.outputs}
        if self._stand_ins.does == COMPUTE:
            while time.monotonic_ns() < until:
                self._matrix = self._matrix @ self._matrix
                self._rank.settle()
        else:
            sleep_until(until)
        return made

    def ended(self, each: RankOp, moment: int) -> None:
        """Record the time at which a block ended."""
        self._moments[each.op.outputs[0]] = moment

    def delay(self, each: RankOp, values: Values) -> dict[int, Tensor]:
        """Add a lag to the time of a token, and send it if its output is on another rank."""
        (taken,), (made,) = each.op.inputs, each.op.outputs
        source, to = (self._rank_of[self._types[value].device] for value in (taken, made))
        if source != self._rank.number:
            self._moments[made] = self._talk.receive(_MOMENT, source)
            return {made: self.memory(made)}
        moment = self._moments[taken]
        assert isinstance(moment, int)  # of a run of this rank
        moment += self._ns(values)
        if to != source:
            self._talk.post(torch.tensor([moment], device=self._rank.device), to)
            return {}
        self._moments[made] = moment
        return {made: self.memory(made)}

    def finish(self) -> None:
        """Wait until all sent times are received."""
        self._talk.finish()

    def _ns(self, values: Values) -> int:
        return round(number(values, "seconds") * self._stand_ins.ns_per_second)
