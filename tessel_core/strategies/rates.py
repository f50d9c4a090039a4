"""Rates of a training step: samples per second, tokens per second, and model FLOPs utilization."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tessel_core.ir.operators import find_operator
from tessel_core.ir.transforms.checkpoint import PRODUCTS
from tessel_core.model import DeviceMesh
from tessel_core.strategies.families import Family, Spec
from tessel_core.strategies.strategy import Strategy

_BACKWARD_PRODUCTS = 2
"""Number of products in the backward pass of a product: the gradients of its input and of its weight."""


@dataclass(frozen=True, slots=True)
class StepRates:
    """Rates of a step. A rate is None if the network has no tokens, or if the peak rate of the device is unknown."""

    samples_per_s: float
    tokens_per_s_per_device: float | None
    model_flops_utilization: float | None
    """FLOPs of the model without recomputation, divided by (step time x devices x peak rate for the number format)."""


def step_rates(family: Family, spec: Spec, strategy: Strategy, mesh: DeviceMesh, seconds: float) -> StepRates:
    """Return the rates of a step that takes `seconds` on the devices of the strategy, the first ones of the mesh."""
    tokens, device_seconds = family.tokens(spec), seconds * strategy.devices
    peak = mesh.devices[0].peak(spec.dtype)
    return StepRates(
        spec.batch / seconds,
        None if tokens is None else spec.batch * tokens / device_seconds,
        None if peak is None else model_flops(family, spec) / (device_seconds * peak),
    )


@lru_cache(maxsize=256)
def model_flops(family: Family, spec: Spec) -> float:
    """Return the FLOPs of all matrix products in one step. Scores that a causal mask hides do not count."""
    sample, times = family.sample(spec)
    program = family.build(sample).program
    forward = 0.0
    for op in program.ops:
        if op.kind in PRODUCTS and op.tag.phase == "forward":
            types = program.types_of(op.inputs), program.types_of(op.outputs)
            forward += find_operator(op.kind).work(*types, dict(op.attributes)).flops
    return times * forward * (1 + _BACKWARD_PRODUCTS * (family.optimizer(spec) is not None))
