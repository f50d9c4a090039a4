"""What the simulator asks of a set of costs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tessel_core.ir.operators.operator import Values
from tessel_core.ir.types import TensorType

DeviceSeconds = dict[int, float]
"""Per device of an operation, how long it is busy."""


class Costs(ABC):
    """How long operations take on the devices of a mesh."""

    @abstractmethod
    def seconds(
        self, kind: str, types: Sequence[TensorType], outputs: Sequence[TensorType], values: Values
    ) -> DeviceSeconds:
        """Per device, seconds of an operation with these input and output types and attributes."""
