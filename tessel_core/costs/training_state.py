"""What training keeps per weight besides the weight: gradients and the optimizer's state."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.errors import InputError

BYTES_OF = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
"""Bytes of one number in each format."""


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Bytes per parameter besides the weight in the format of the computation."""

    name: str
    title: str
    gradient: int | None
    """None: as many as a weight takes."""
    state: int
    source: str = ""

    def bytes_per_parameter(self, dtype: str) -> int:
        """Weight, gradient and optimizer state of one parameter; InputError for an unknown number format."""
        weight = width_of(dtype)
        return weight + (weight if self.gradient is None else self.gradient) + self.state


OPTIMIZERS: dict[str, Optimizer] = {
    each.name: each
    for each in (
        Optimizer(
            "adam-mixed",
            "Adam in mixed precision",
            None,
            12,
            "float32 master weight and two moments [Rajbhandari 2020, section 3.1]",
        ),
        Optimizer("adam", "Adam", None, 8, "two float32 moments [Kingma 2015]"),
        Optimizer("momentum", "SGD with momentum", None, 4),
        Optimizer("sgd", "SGD", None, 0),
        Optimizer("none", "Inference: weights alone", 0, 0),
    )
}
"""Every optimizer by name; the first is the default."""

DEFAULT_OPTIMIZER = "adam-mixed"


def find_optimizer(name: str) -> Optimizer:
    """The optimizer called `name`; InputError with the known names where there is none."""
    if name not in OPTIMIZERS:
        raise InputError("optimizer", f"{name!r} is not known, known are {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name]


def width_of(dtype: str) -> int:
    """Bytes of one number; InputError with the known formats for another one."""
    if dtype not in BYTES_OF:
        raise InputError("dtype", f"{dtype!r} is not known, known are {', '.join(BYTES_OF)}")
    return BYTES_OF[dtype]
