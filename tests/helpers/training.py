"""Training steps of networks, without an optimizer: forward pass, losses and gradients."""

from __future__ import annotations

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.networks.gpt import GptSpec, gpt_forward
from tessel_core.networks.mlp import MlpSpec, mlp_forward


def gpt_training(spec: GptSpec, *, split_weights: bool = False) -> Distributed:
    """Return the losses and the gradients of all weights."""
    return Gradients(split_weights=split_weights)(gpt_forward(spec))


def mlp_training(spec: MlpSpec, *, split_weights: bool = False) -> Distributed:
    """Return the losses and the gradients of the input and of the weights."""
    return Gradients(also=("x",), split_weights=split_weights)(mlp_forward(spec))
