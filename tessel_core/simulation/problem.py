"""What the simulator asks of a set of costs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tessel_core.errors import InputError
from tessel_core.ir.operators import find_operator
from tessel_core.ir.operators.operator import Values, number
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


class StatedCosts(Costs):
    """For programs whose operations all say how long they take, as lowered schedules do; no mesh is needed."""

    def seconds(
        self, kind: str, types: Sequence[TensorType], outputs: Sequence[TensorType], values: Values
    ) -> DeviceSeconds:
        """Per device, what the operation says; InputError for one that says nothing."""
        if not find_operator(kind).stated:
            raise InputError(kind, "does not say how long it takes, so its time needs a mesh")
        return stated_seconds(types, outputs, values)


def stated_seconds(types: Sequence[TensorType], outputs: Sequence[TensorType], values: Values) -> DeviceSeconds:
    """The attribute `seconds`, on every device of an operation."""
    devices = values.get("devices")
    named = devices if isinstance(devices, tuple) else (each.device for each in (*types, *outputs))
    return dict.fromkeys(named, number(values, "seconds"))
