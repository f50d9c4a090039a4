"""Layers of operators. The name of an operator is a path such as `layer3/mlp/up`, which begins with its layer."""

from __future__ import annotations

from tessel_core.model import Operator


def layer_of(operator: Operator, depth: int = 1) -> str:
    """Return the first `depth` parts of an operator's path. A backward operator has the layer of its forward operator.

    >>> layer_of(Operator("layer3/mlp/up"), 2)
    'layer3/mlp'
    >>> layer_of(Operator("/layer3/mlp/up"))
    'layer3'
    """
    return "/".join((operator.forward_of or operator.name).lstrip("/").split("/")[:depth])
