"""Operators' names as paths: `layer3/mlp/up` is part of `layer3`."""

from __future__ import annotations

from collections.abc import Iterable

from tessel_core.model import Operator


def layer_of(operator: Operator, depth: int = 1) -> str:
    """The first `depth` steps of the path; a backward operator's is that of its forward one.

    >>> layer_of(Operator("layer3/mlp/up"), 2)
    'layer3/mlp'
    """
    return "/".join((operator.forward_of or operator.name).split("/")[:depth])


def by_layer_name(operators: Iterable[Operator], depth: int = 1) -> dict[str, list[int]]:
    """Indices of the operators of each layer, layers in the order of their first operators."""
    found: dict[str, list[int]] = {}
    for index, operator in enumerate(operators):
        found.setdefault(layer_of(operator, depth), []).append(index)
    return found
