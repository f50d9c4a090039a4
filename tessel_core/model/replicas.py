"""Replicated stages: devices that each take their part of every micro-batch and reduce the gradients of its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tessel_core.model.operator_graph import OperatorGraph


class Reductions(Protocol):
    """The cost of reducing gradients over devices."""

    def seconds(self, devices: tuple[int, ...], amount: float) -> float:
        """Time per micro-batch, in the graph's unit, to reduce `amount` bytes that each of the devices holds."""


@dataclass(frozen=True)
class Replication:
    """How a placement counts stages that several devices share.

    Each of r devices takes 1/r of every micro-batch: 1/r of the operators' times, of the outputs moved and of the
    activations, but all of the weights.  In training the devices reduce the gradients of the stage's weights.
    """

    reductions: Reductions
    overlapped: bool = False
    """Whether a reduction hides behind the device's work on a micro-batch: only what lasts longer counts.
    [Harlap et al., PipeDream, 2018, has the larger of the two]  Otherwise all of it follows the backward pass."""


def gradient_bytes(graph: OperatorGraph) -> tuple[float, ...]:
    """Per operator, the bytes of its weights' gradients; 0 for inference.

    They take as many bytes as the weights.  For a forward operator of which a file says its memory in one number only,
    that number counts as weights.
    """
    if not graph.is_training:
        return (0.0,) * len(graph.operators)
    found = []
    for each in graph.operators:
        unknown = each.weight_bytes is None and each.activation_bytes is None and not each.backward
        found.append(float(each.size or 0) if unknown else float(each.weight_bytes or 0))
    return tuple(found)
