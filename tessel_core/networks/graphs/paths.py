"""Operators' names as paths: `layer3/mlp/up` is part of `layer3`."""

from __future__ import annotations

from tessel_core.model import Operator


def layer_of(operator: Operator, depth: int = 1) -> str:
    """The first `depth` steps of the path; a backward operator's is that of its forward one.

    >>> layer_of(Operator("layer3/mlp/up"), 2)
    'layer3/mlp'
    """
    return "/".join((operator.forward_of or operator.name).split("/")[:depth])
