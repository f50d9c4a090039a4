"""Key numbers of an operator graph and of its times on the chosen devices."""

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

_MAX_IDEALS = 10_000
"""Largest number of ideals to count.

This takes under 0.1 s for 2,000 operators; counting ten times as many takes 5 s.
"""
_MAX_NUMBERS_WITH_TIMES = 4
"""Largest number of key numbers with times. Times on further kinds of devices are left out."""


def graph_numbers(placing: Placing) -> tuple[KeyNumber, ...]:
    """Return the key numbers of the open graph. A graph must be open."""
    assert placing.graph is not None
    graph = placing.graph.graph
    backward = sum(each.backward for each in graph.operators)
    flops = [each.flops for each in graph.operators if each.flops is not None]
    numbers = [
        KeyNumber(
            "Operators", f"{len(graph.operators):,}", f"{backward:,} backward", "Number of operators in the graph."
        ),
        KeyNumber("Edges", f"{len(graph.edges):,}", f"{len(graph.colocated):,} groups to place", _GROUPS),
    ]
    if flops:
        about = "Floating-point operations of one micro-batch."
        numbers.append(KeyNumber("FLOPs", show_flops(sum(flops)), f"batch of {graph.batch_size}", about))
    try:
        problem = placing.problem
    except InputError:  # No message is needed here, because the placement page shows the reason.
        return (*numbers, *_held(graph))
    times = _times(problem)[: _MAX_NUMBERS_WITH_TIMES - len(numbers)]
    return (*numbers, *times, *_held(graph), *_ideals(problem))


_GROUPS = (
    "A group is placed as a whole: operators of one colour class, or a forward operator and its backward operator."
)


def _times(problem: PlacementProblem) -> list[KeyNumber]:
    """Return the total time of all operators on each kind of device, accelerators first."""
    devices = sorted(problem.devices, key=lambda device: device.is_host)
    kinds = dict.fromkeys(device.kind for device in devices)
    unit, operators = problem.graph.time_unit, problem.graph.operators
    totals = {kind: sum(each.time_on(kind) or 0.0 for each in operators) for kind in kinds}
    about = "Time of all operators, run one after the other on one device."
    return [KeyNumber(f"Time on {kind}", show_time(total, unit), "one by one", about) for kind, total in totals.items()]


def _held(graph: OperatorGraph) -> list[KeyNumber]:
    weights = [each.weight_bytes for each in graph.operators if each.weight_bytes is not None]
    kept = [each.activation_bytes for each in graph.operators if each.activation_bytes is not None]
    sizes = [each.size for each in graph.operators if each.size is not None]
    numbers = []
    if weights:
        about = "Bytes of weights, without gradients and optimizer state."
        numbers.append(KeyNumber("Weights", show_memory(sum(weights), "B"), "", about))
    if kept:
        numbers.append(KeyNumber("Activations", show_memory(sum(kept), "B"), "", "Bytes kept for the backward pass."))
    if sizes:
        numbers.append(KeyNumber("Memory", show_memory(sum(sizes), "B"), "", "Bytes that the operators hold in all."))
    return numbers


def _ideals(problem: PlacementProblem) -> list[KeyNumber]:
    """Return the key number that counts ideals, without regard to pins. Empty if an operator fits on no device."""
    try:
        count = _counted(replace(problem, allowances=(), objective=THROUGHPUT, contiguous=True))
    except InputError:
        return []
    shown = f"> {_MAX_IDEALS:,}" if count is None else f"{count:,}"
    return [KeyNumber("Ways to cut", shown, "where a stage can end", _IDEALS)]


_IDEALS = (
    "Number of ideals: sets of groups that contain all predecessors of their members. A contiguous placement can be "
    "cut at each, and its search time grows with their number."
)


@lru_cache(maxsize=8)
def _counted(problem: PlacementProblem) -> int | None:
    return count_ideals(problem, _MAX_IDEALS)
