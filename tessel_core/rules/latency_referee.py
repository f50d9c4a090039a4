"""The rules that a placement for the latency of one sample keeps beside those of every placement."""

from __future__ import annotations

from collections.abc import Iterator

from tessel_core.model import Placement
from tessel_core.model.latency import circle_of
from tessel_core.rules.violation import Violation


def alone(placement: Placement) -> Iterator[Violation]:
    """No operator is on several devices: subgraphs run on one."""
    for operator, on in zip(placement.graph.operators, placement.assignment, strict=True):
        if len(on) > 1:
            yield Violation("alone", f"operator {operator.name}", f"is on {len(on)} devices, a subgraph is on one")


def contiguous_subgraphs(placement: Placement) -> Iterator[Violation]:
    """No subgraph needs what needs its own output: what runs as one waits for itself in no circle."""
    if all(len(on) == 1 for on in placement.assignment):
        circle = circle_of(placement, in_order=False)
        if circle:
            why = f"tensors flow in a circle: {_shown(placement, circle)}"
            yield Violation("contiguous subgraphs", _name(placement, circle[0]), why)


def order(placement: Placement) -> Iterator[Violation]:
    """A device's subgraphs run in the order of their indices, so none needs what a later one leads to."""
    if all(len(on) == 1 for on in placement.assignment) and not circle_of(placement, in_order=False):
        circle = circle_of(placement, in_order=True)
        if circle:
            why = f"wait for each other when a device keeps its order: {_shown(placement, circle)}"
            yield Violation("order", _name(placement, circle[0]), why)


def _name(placement: Placement, part: tuple[int, ...]) -> str:
    assert placement.subgraphs is not None, "a circle is one of subgraphs"
    (device,) = placement.assignment[part[0]]
    if placement.devices[device].is_host:
        return f"operator {placement.graph.operators[part[0]].name}"
    return f"subgraph {placement.subgraphs[part[0]]} of {placement.devices[device].name}"


def _shown(placement: Placement, circle: list[tuple[int, ...]]) -> str:
    names = [_name(placement, part) for part in circle]
    return " -> ".join(names if len(names) <= 12 else [*names[:6], "…", *names[-5:]])
