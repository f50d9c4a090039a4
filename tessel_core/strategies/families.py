"""Families of networks whose strategies are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tessel_core.errors import InputError
from tessel_core.ir.distributed import Distributed
from tessel_core.networks.programs import MlpSpec, mlp_training


class Spec(Protocol):
    """Sizes of one network; every family has these and its own."""

    @property
    def layers(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def dtype(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Family:
    """One entry of the table: what it is called, and the program of one device."""

    name: str
    title: str
    spec: Callable[[int, int, int, str], Spec]
    """From layers, width, batch and dtype."""
    build: Callable[[Spec], Distributed]


def _mlp(spec: Spec) -> Distributed:
    return mlp_training(MlpSpec(spec.layers, spec.width, spec.batch, spec.dtype))


FAMILIES: Mapping[str, Family] = {
    each.name: each for each in (Family("mlp", "Multi-layer perceptron, training", MlpSpec, _mlp),)
}


def find_family(name: str) -> Family:
    """The family called `name`; InputError with the known names where there is none."""
    if name not in FAMILIES:
        raise InputError("family", f"{name!r} is not known, known are {', '.join(FAMILIES)}")
    return FAMILIES[name]
