"""The blocks of a plan on one rank, as stand-ins: they last and hold what they should, and compute nothing of use.

A token is the moment at which its block ended, or a lag later, so that a block which takes it waits until then.
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

_SIDE = 64
"""Rows of the matrices that blocks compute with while they last."""
_MOMENT = TensorType("int64", (1,), 0)


class RankBlocks:
    """Runs `block` and `delay`."""

    def __init__(self, rank: Rank, share: Share, how: StandIns) -> None:
        self._rank, self._rank_of, self._how = rank, share.rank_of, how
        self._types = share.program.program.types
        self._talk = Talk(rank, share, lambda tensor: None, lambda tensor: None)
        self._matrix = torch.full((_SIDE, _SIDE), 1 / _SIDE, device=rank.device)
        self._moments = dict[int, int | Arriving]()
        """Per token."""

    def memory(self, value: int) -> Tensor:
        """The bytes of a value at the scale, which are there and were written."""
        size = int(self._types[value].elements * self._how.memory)
        # NumPy fills megabytes many times faster than torch.ones does.
        return torch.from_numpy(np.ones(size, np.uint8)).to(self._rank.device)

    def wait(self, values: Iterable[int]) -> None:
        """Until the moments of all that are tokens."""
        for value in values:
            moment = self._moments.get(value)
            if isinstance(moment, Arriving):
                moment = self._moments[value] = int(moment.arrived().item())
            if moment is not None:
                sleep_until(moment)

    def block(self, each: RankOp, values: Values) -> dict[int, Tensor]:
        """Sleep or compute as long as the block lasts, and hold what it makes from its start."""
        until = time.monotonic_ns() + self._ns(values)
        made = {value: self.memory(value) for value in each.outputs}
        if self._how.does == COMPUTE:
            while time.monotonic_ns() < until:
                self._matrix = self._matrix @ self._matrix
                self._rank.settle()
        else:
            sleep_until(until)
        return made

    def ended(self, each: RankOp, moment: int) -> None:
        """The block ended at that moment, from which lags count."""
        self._moments[each.op.outputs[0]] = moment

    def delay(self, each: RankOp, values: Values) -> dict[int, Tensor]:
        """Hand the moment on, so much later."""
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
        """Wait until all moments are received."""
        self._talk.finish()

    def _ns(self, values: Values) -> int:
        return round(number(values, "seconds") * self._how.ns_per_second)
