"""Layers by name: the first steps of operators' names, which are paths."""

from __future__ import annotations

from tessel_core.model import Operator


def layer_of(operator: Operator, depth: int = 1) -> str:
    """The first `depth` steps of an operator's name; a backward operator's layer is that of its forward one.

    >>> layer_of(Operator("layer3/mlp/up"), 2)
    'layer3/mlp'
    >>> layer_of(Operator("/layer3/mlp/up"))
    'layer3'
    """
    return "/".join((operator.forward_of or operator.name).lstrip("/").split("/")[:depth])
