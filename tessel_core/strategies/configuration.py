"""A network together with a strategy, and the step time and memory of this configuration."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.strategies.families import Spec
from tessel_core.strategies.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Configuration:
    """The sizes of a network, and the strategy that distributes it."""

    spec: Spec
    strategy: Strategy
    micro_batch_size: int | None = None
    """Samples per micro-batch, if the user chose this size instead of the number of micro-batches."""

    @property
    def objection(self) -> str:
        """Why the batch does not divide into micro-batches of the chosen size. Empty if it does."""
        size, replicas = self.micro_batch_size, self.strategy.data
        if size is None or size * replicas * self.strategy.micro_batches == self.spec.batch:
            return ""
        return f"a batch of {self.spec.batch} does not divide among {replicas} replicas into micro-batches of {size}"


@dataclass(frozen=True, slots=True)
class StrategyResult:
    """Step time and memory of a configuration. If it was not simulated, the latency is NaN and there are no peaks."""

    latency: float
    """Seconds of one step."""
    peaks: tuple[int, ...]
    """Peak memory in bytes at each position of the pipeline."""
    reason: str
    """Why the configuration is infeasible, in one sentence. Empty if it is feasible."""
    ends: tuple[float, ...] = ()
    """Seconds until the devices at each position of the pipeline finish."""
    by_blocks: bool = False
    """Whether the result was computed from blocks of layers instead of a simulation of every operation."""
