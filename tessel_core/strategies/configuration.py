"""A network with a strategy, and the time and memory of that configuration."""

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
    """Samples per micro-batch, if the user chose this size and not the number of micro-batches."""

    @property
    def objection(self) -> str:
        """Reason why the batch does not divide into micro-batches of the chosen size; empty if it does."""
        size, replicas = self.micro_batch_size, self.strategy.data
        if size is None or size * replicas * self.strategy.micro_batches == self.spec.batch:
            return ""
        return f"a batch of {self.spec.batch} does not divide among {replicas} replicas into micro-batches of {size}"


@dataclass(frozen=True, slots=True)
class StrategyResult:
    """Time and memory of one configuration.  If nothing was simulated, the latency is NaN and there are no peaks."""

    latency: float
    """Seconds of one step."""
    peaks: tuple[int, ...]
    """Peak memory of the devices at each place of the pipeline in bytes."""
    reason: str
    """One sentence that says why the configuration is infeasible; empty if it is feasible."""
    ends: tuple[float, ...] = ()
    """Seconds until the devices at each place of the pipeline finish."""
    by_blocks: bool = False
    """Whether the result comes from blocks of layers and not from a simulation of every operation."""
