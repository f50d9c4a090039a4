"""A device as placements see it: a kind and a capacity."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.model.checks import check_amount, check_name
from tessel_core.model.operator_graph import CPU

MOST_DEVICES = 1024


@dataclass(frozen=True, slots=True)
class PlacementDevice:
    """A device as a placement sees it; None is unlimited memory."""

    name: str
    kind: str
    memory_capacity: float | None = None

    def __post_init__(self) -> None:
        check_name("a device", self.name)
        check_name(f"device {self.name}, kind", self.kind)
        if self.memory_capacity is not None:
            check_amount(f"device {self.name}", "memory_capacity", self.memory_capacity)

    @property
    def is_host(self) -> bool:
        """Hosts pay no communication."""
        return self.kind == CPU
