"""The periodic middle: free micro-batches around a stretch that is tied to a period and in which more have room."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tessel_core.model.schedule import IntColumn


@dataclass(frozen=True, slots=True)
class Geometry:
    """Free micro-batches, then tied ones, then free ones again."""

    warmup: int
    tied: int
    cooldown: int

    @property
    def micro_batches(self) -> int:
        return self.warmup + self.tied + self.cooldown

    def insert(self, starts: IntColumn, inserted: int, period: int, unroll: int) -> IntColumn:
        """`inserted` more micro-batches in the tied stretch, what comes after moved back by as many periods."""
        if not inserted:
            return starts
        end = self.warmup + self.tied
        turns = 1 + np.arange(inserted) // unroll
        copies = end - unroll + np.arange(inserted) % unroll
        middle = starts[copies] + (turns * period)[:, None]
        return np.concatenate([starts[:end], middle, starts[end:] + inserted // unroll * period])
