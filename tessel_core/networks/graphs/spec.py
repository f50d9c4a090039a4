"""Options that all families of networks have, and the definition of a family."""

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
    """Options for a run of a network. The spec of each family adds the sizes of its network."""

    micro_batch: int = option(1, Option("Micro-batch", "Samples per micro-batch", 1, 65_536))
    dtype: str = option(
        "bf16", Option("Number format", "Number format of weights and activations", choices=tuple(BYTES_OF))
    )
    tensor_parallel: int = option(
        1,
        Option(
            "Tensor-parallel degree",
            "Number of devices that compute each layer together. The graph shows the work of one of them",
            1,
            64,
        ),
    )
    training: bool = option(False, Option("Training", "Add the backward pass", 0, 1))
    recompute: str = option(
        str(Recompute.NONE),
        Option(
            "Recomputation",
            "Operators that run again in the backward pass to save memory: whole layers (full), or every second matrix "
            "product and all cheap operators (selective)",
            choices=tuple(Recompute),
        ),
    )
    split_weights: bool = option(
        False, Option("Split backward", "Compute gradients of weights in separate operators, which can run later", 0, 1)
    )
    attention: str = option(
        str(AttentionKernel.FUSED),
        Option(
            "Attention",
            "Kernel of attention: the fastest fused one, FlashAttention 2, or one operator per step, which keeps the "
            "scores in memory",
            choices=tuple(AttentionKernel),
        ),
    )
    granularity: str = option(
        OPERATORS,
        Option("Granularity", "Show single operators, or one operator per layer", choices=(OPERATORS, LAYERS)),
    )


def check_divides(what: str, whole: int, by: str, parts: int) -> None:
    """Raise InputError unless `parts` divides `whole`. The message calls them `by` and `what`."""
    if whole % parts:
        raise InputError(by, f"must divide {what}, which is {whole:,}, got {parts:,}")


def check_positions(what: str, tokens: int, positions: int) -> None:
    """Raise InputError if there are more tokens than positions. The message calls the number of tokens `what`."""
    if tokens > positions:
        raise InputError(what, f"must be at most {positions:,}, the number of positions, got {tokens:,}")


@dataclass(frozen=True, slots=True)
class GraphFamily:
    """A family of networks."""

    name: str
    title: str
    source: str
    """Publication from which the sizes come."""
    spec: type
    presets: Mapping[str, Any]
    """Specs of published sizes, by name."""
    program: Callable[[Any], Distributed]
    """Builds the forward pass on one device. Its outputs are the losses in training, and the results otherwise.

    The options are already checked to be in range. The function checks all other conditions.
    """


def check_family(family: GraphFamily) -> None:
    """Raise InputError if a family has no presets, or if a preset is not a `GraphSpec` with options."""
    if not family.presets:
        raise InputError("presets", "must have at least one preset")
    for name, spec in {"": family.spec(), **family.presets}.items():
        if not isinstance(spec, GraphSpec):
            raise InputError(f"presets {name}".strip(), f"must be a GraphSpec, got {type(spec).__name__}")
        options_of(spec)
