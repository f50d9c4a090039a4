"""A network on a strategy, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.strategies.families import Spec
from tessel_core.strategies.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Configuration:
    """A network's sizes and how it is spread."""

    spec: Spec
    strategy: Strategy
    micro_batch_size: int | None = None
    """Samples, where these were asked for instead of the number of micro-batches, which may not come out even."""

    @property
    def objection(self) -> str:
        """Why its batch does not come out as micro-batches of the size asked for; empty where it does."""
        size, replicas = self.micro_batch_size, self.strategy.data
        if size is None or size * replicas * self.strategy.micro_batches == self.spec.batch:
            return ""
        return f"a batch of {self.spec.batch} does not divide among {replicas} replicas into micro-batches of {size}"


@dataclass(frozen=True, slots=True)
class StrategyResult:
    """The result of one configuration; where nothing was simulated times are NaN and peaks empty."""

    latency: float
    """Seconds of one step."""
    peaks: tuple[int, ...]
    """Bytes that the devices of each place in the pipeline hold at most."""
    reason: str
    """Why it is infeasible, as one sentence; empty where it is not."""
    ends: tuple[float, ...] = ()
    """Seconds until the devices of each place in the pipeline are done."""
    by_blocks: bool = False
    """Whether it follows from blocks of layers, and not from a simulation of every operation."""
