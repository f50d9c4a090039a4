"""Placements near the best: with less memory on the fullest device, or an operator moved across a stage's border."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tessel_core.control import Control
from tessel_core.model import Placement, PlacementDevice, PlacementLoads, PlacementReport
from tessel_core.placement.placers import default_placer, find_placer, solve_placement
from tessel_core.placement.problem import PlacementProblem
from tessel_core.rules import check_placement

_LESS_MEMORY = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Of what the fullest device of the best placement holds: what a device may hold instead."""

_MOST_MOVES = 300
"""Placements one move away that are looked at."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A placement worth a schedule search, and where it comes from, in a few words."""

    placement: Placement
    origin: str
    load: float
    """Largest load of a device, in the graph's unit."""


def candidates(problem: PlacementProblem, best: PlacementReport, count: int, control: Control) -> Iterator[Candidate]:
    """Up to `count` different placements, the best one first; all keep the rules.

    What is best when devices have less memory leaves more room for micro-batches in flight, at the
    price of a larger load; then come single moves across borders, the least loads first.
    """
    assert best.solution is not None, "there is a best placement"
    seen = {best.solution.assignment}
    yield _candidate(best.solution, "least largest load")
    for found in (*_leaner(problem, best.solution, control), *_moved(problem, best.solution, control)):
        if len(seen) >= count or control.stopped:
            return
        if found.placement.assignment not in seen:
            seen.add(found.placement.assignment)
            yield found


def _candidate(placement: Placement, origin: str) -> Candidate:
    return Candidate(placement, origin, PlacementLoads.of(placement).largest)


def _leaner(problem: PlacementProblem, best: Placement, control: Control) -> Iterator[Candidate]:
    held = [
        amount
        for amount, device in zip(PlacementLoads.of(best).memory, best.devices, strict=True)
        if not device.is_host
    ]
    fullest = max(held, default=0.0)
    for share in _LESS_MEMORY:
        if fullest <= 0 or control.stopped:
            return
        devices = tuple(_at_most(device, share * fullest) for device in problem.devices)
        less = replace(problem, devices=devices)
        name = default_placer(less)
        config = find_placer(name).config(time_limit=max(0.1, control.remaining_s / 4))
        found = solve_placement(name, less, config, control.quiet()).solution
        if found is None:
            return
        placement = problem.placement(found.assignment)
        yield _candidate(placement, f"at most {share:.0%} of that memory")


def _at_most(device: PlacementDevice, memory: float) -> PlacementDevice:
    if device.is_host:
        return device
    capacity = memory if device.memory_capacity is None else min(memory, device.memory_capacity)
    return replace(device, memory_capacity=capacity)


def _moved(problem: PlacementProblem, best: Placement, control: Control) -> list[Candidate]:
    found = list[Candidate]()
    for i, (name, assignment) in enumerate(_moves(problem, best)):
        if i >= _MOST_MOVES or control.stopped:
            break
        placement = problem.placement(assignment)
        if not check_placement(placement, without=problem.waived_rules):
            found.append(_candidate(placement, f"{name} moved"))
    return sorted(found, key=lambda each: each.load)


def _moves(problem: PlacementProblem, best: Placement) -> Iterator[tuple[str, tuple[tuple[int, ...], ...]]]:
    """What shares a device, moved to where one of its neighbours is."""
    graph = problem.graph
    for group, members in enumerate(graph.colocated):
        here = best.assignment[members[0]]
        near = {
            best.assignment[other]
            for member in members
            for other in (*graph.predecessors[member], *graph.consumers[member])
        }
        for there in sorted(near - {here}):
            if _allowed(problem, members, there):
                moved = tuple(there if graph.group_of[i] == group else on for i, on in enumerate(best.assignment))
                yield graph.operators[members[0]].name, moved


def _allowed(problem: PlacementProblem, members: tuple[int, ...], devices: tuple[int, ...]) -> bool:
    names = {problem.devices[device].name for device in devices}
    return all(allowed is None or names <= allowed for allowed in (problem.allowed_on[i] for i in members))
