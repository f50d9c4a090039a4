"""Replicated stages: several devices divide every micro-batch of a stage and sum their gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tessel_core.model.operator_graph import OperatorGraph


class Reductions(Protocol):
    """Cost of reducing gradients over devices."""

    def seconds(self, devices: tuple[int, ...], amount: float) -> float:
        """Return the time per micro-batch, in the graph's unit, to sum `amount` bytes of gradients over the devices."""


@dataclass(frozen=True)
class Replication:
    """Cost of stages that several devices share as replicas.

    Each of r devices does 1/r of every micro-batch. So it has 1/r of the operators' times, of the outputs moved and of
    the activations, but all of the weights. In training, the devices reduce the gradients of the stage's weights.
    """

    reductions: Reductions
    overlapped: bool = False
    """Whether a reduction overlaps the device's work on a micro-batch, so that only the time beyond that work counts
    [Harlap et al., PipeDream, 2018]. Otherwise the whole reduction follows the backward pass."""


def gradient_bytes(graph: OperatorGraph) -> tuple[float, ...]:
    """Return the bytes of each operator's gradients, which are those of its weights. They are 0 for inference.

    If the file does not distinguish weights and activations of a forward operator, all of its memory counts as weights.
    """
    if not graph.is_training:
        return (0.0,) * len(graph.operators)
    gradients = []
    for each in graph.operators:
        unknown = each.weight_bytes is None and each.activation_bytes is None and not each.backward
        gradients.append(float(each.size or 0) if unknown else float(each.weight_bytes or 0))
    return tuple(gradients)
