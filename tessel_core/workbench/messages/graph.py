"""An operator graph in numbers, as it would be placed on the devices that are chosen."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tessel_core.errors import InputError
from tessel_core.model import THROUGHPUT, OperatorGraph
from tessel_core.placement import PlacementProblem
from tessel_core.placement.ideals import count_ideals
from tessel_core.units import show_flops, show_memory, show_time
from tessel_core.workbench.messages.schedule import KeyNumber
from tessel_core.workbench.placing import Placing

_MOST_IDEALS = 10_000
"""Up to which they are counted: that takes less than 0.1 s on any graph of 2,000 operators, ten times as many 5 s."""
_MOST_NUMBERS = 4
"""Up to the times; a kind of device more is left out."""


def graph_numbers(placing: Placing) -> tuple[KeyNumber, ...]:
    """The size of the graph, as people ask for it; there must be one."""
    assert placing.graph is not None
    graph = placing.graph.graph
    backward = sum(each.backward for each in graph.operators)
    flops = [each.flops for each in graph.operators if each.flops is not None]
    numbers = [
        KeyNumber("Operators", f"{len(graph.operators):,}", f"{backward:,} backward", "Vertices of the graph."),
        KeyNumber("Edges", f"{len(graph.edges):,}", f"{len(graph.colocated):,} groups to place", _GROUPS),
    ]
    if flops:
        numbers.append(
            KeyNumber("FLOPs", show_flops(sum(flops)), f"batch of {graph.batch_size}", "Of one micro-batch.")
        )
    try:
        problem = placing.problem
    except InputError:  # said where the placement is asked for; the graph's own numbers stand without
        return (*numbers, *_held(graph))
    times = _times(problem)[: _MOST_NUMBERS - len(numbers)]
    return (*numbers, *times, *_held(graph), *_ideals(problem))


_GROUPS = "Operators of one colour class, and a backward operator and its forward one, share a device: a group."


def _times(problem: PlacementProblem) -> list[KeyNumber]:
    """On each kind of device that there is, accelerators first."""
    devices = sorted(problem.devices, key=lambda device: device.is_host)
    kinds = dict.fromkeys(device.kind for device in devices)
    unit, operators = problem.graph.time_unit, problem.graph.operators
    totals = {kind: sum(each.time_on(kind) or 0.0 for each in operators) for kind in kinds}
    return [
        KeyNumber(
            f"Time on {kind}", show_time(total, unit), "one by one", "All operators, one after the other on one device."
        )
        for kind, total in totals.items()
    ]


def _held(graph: OperatorGraph) -> list[KeyNumber]:
    weights = [each.weight_bytes for each in graph.operators if each.weight_bytes is not None]
    kept = [each.activation_bytes for each in graph.operators if each.activation_bytes is not None]
    sizes = [each.size for each in graph.operators if each.size is not None]
    numbers = []
    if weights:
        numbers.append(KeyNumber("Weights", show_memory(sum(weights), "B"), "", "Without their training state."))
    if kept:
        numbers.append(KeyNumber("Activations", show_memory(sum(kept), "B"), "", "Kept for the backward pass."))
    if sizes:
        numbers.append(KeyNumber("Memory", show_memory(sum(sizes), "B"), "", "All that the operators hold."))
    return numbers


def _ideals(problem: PlacementProblem) -> list[KeyNumber]:
    """The number of ideals, of the problem without pins and objective; nothing where an operator has no device."""
    try:
        count = _counted(replace(problem, allowances=(), objective=THROUGHPUT, contiguous=True))
    except InputError:
        return []
    shown = f"> {_MOST_IDEALS:,}" if count is None else f"{count:,}"
    return [KeyNumber("Ways to cut", shown, "where a stage can end", _IDEALS)]


_IDEALS = (
    "Sets of groups with all that they need (ideals): where a contiguous placement can be cut, and what its search "
    "grows with."
)


@lru_cache(maxsize=8)
def _counted(problem: PlacementProblem) -> int | None:
    return count_ideals(problem, _MOST_IDEALS)
