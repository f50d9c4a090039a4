"""What every family of networks is asked for, and what a family is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tessel_core.costs.kernels import BYTES_OF
from tessel_core.errors import InputError
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.transforms.attention import AttentionKernel
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.options import Option, option, options_of

OPERATORS, LAYERS = "operators", "layers"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSpec:
    """How a network is run; families add its sizes."""

    micro_batch: int = option(1, Option("Micro-batch", "Samples that pass at once", 1, 65_536))
    dtype: str = option("bf16", Option("Number format", "Of weights and activations", choices=tuple(BYTES_OF)))
    tensor_parallel: int = option(
        1, Option("Tensor-parallel degree", "Devices that share each layer; the graph is what one of them does", 1, 64)
    )
    training: bool = option(False, Option("Training", "With the backward", 0, 1))
    recompute: str = option(
        str(Recompute.NONE),
        Option(
            "Recomputation",
            "What runs again for the backward: all of a layer, or every second product and the quick rest",
            choices=tuple(Recompute),
        ),
    )
    split_weights: bool = option(
        False, Option("Split backward", "Gradients of weights are operators that nothing waits for", 0, 1)
    )
    attention: str = option(
        str(AttentionKernel.FUSED),
        Option(
            "Attention",
            "The fastest fused kernel, FlashAttention 2, or an operator for each step, which keeps scores in memory",
            choices=tuple(AttentionKernel),
        ),
    )
    granularity: str = option(
        OPERATORS, Option("Granularity", "Single operators, or a layer as one", choices=(OPERATORS, LAYERS))
    )


def check_divides(what: str, whole: int, by: str, parts: int) -> None:
    """Raise InputError unless `parts` divides `whole`; both are named."""
    if whole % parts:
        raise InputError(by, f"must divide {what}, which is {whole:,}, got {parts:,}")


def check_positions(what: str, tokens: int, positions: int) -> None:
    """Raise InputError for more tokens than have a position; `what` names them."""
    if tokens > positions:
        raise InputError(what, f"must be at most the {positions:,} positions, got {tokens:,}")


@dataclass(frozen=True, slots=True)
class GraphFamily:
    """One entry of the table of families; `program` may assume options in range and checks the rest."""

    name: str
    title: str
    source: str
    """Where its sizes come from."""
    spec: type
    presets: Mapping[str, Any]
    """Specs of published sizes by name."""
    program: Callable[[Any], Distributed]
    """The forward pass on one device: in training up to its losses, else up to its results."""


def check_family(family: GraphFamily) -> None:
    """Raise InputError for a family without presets, or whose specs are no `GraphSpec` of options."""
    if not family.presets:
        raise InputError("presets", "must name at least one size")
    for name, spec in {"": family.spec(), **family.presets}.items():
        if not isinstance(spec, GraphSpec):
            raise InputError(f"presets {name}".strip(), f"must be a GraphSpec, got {type(spec).__name__}")
        options_of(spec)
