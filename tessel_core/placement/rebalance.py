"""Choice of a placement with even loads among placements with the same largest load.

A group is a set of operators that must share a device. A split gives each group a device. A chain is a contiguous
split.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations

from tessel_core.control import Control
from tessel_core.model import THROUGHPUT, PlacementReport
from tessel_core.model.checks import quotient, topological_order
from tessel_core.placement.chain import SAME_SUMS, Chains
from tessel_core.placement.ideals import prefixes, promising_orders
from tessel_core.placement.moves import Moves, fits_memory
from tessel_core.placement.pipeline import Pipeline, Split, within_memory
from tessel_core.placement.problem import PlacementProblem

_MIN_GAIN = 1e-9
"""A change must reduce the sum of the squared loads, or the longest path, by more than this fraction."""
_MAX_ROUNDS = 10


def rebalanced(
    problem: PlacementProblem, pipeline: Pipeline, report: PlacementReport, control: Control
) -> PlacementReport:
    """Return the report with a placement of equal objective and a smaller sum of squared loads, if one is found.

    Contiguous placements change to another chain (see `evenest`). In other placements, groups move one by one. If
    branches must be kept apart, operators that join branches then go where the longest path through the stages is
    short. The report does not change if links differ, because the search does not know the exact loads then.
    """
    exact = problem.has_equal_links and problem.objective == THROUGHPUT
    if report.solution is None or not exact or control.stopped:
        return report
    device_of = tuple(report.solution.assignment[members[0]][0] for members in pipeline.members)
    split, fitting = Split(float(report.objective or 0), device_of), within_memory(pipeline)
    even = evenest(Chains(fitting), split, control) if problem.contiguous else _by_moves(fitting, split, control)
    if even is None:
        return report
    if pipeline.branches:
        even = _joined_late(within_memory(pipeline), even, float(report.objective or 0))
    placement = pipeline.placement(problem, even.device_of)
    return replace(report, solution=placement) if problem.measure(placement) <= (report.objective or 0) else report


def evenest(chains: Chains, split: Split, control: Control) -> Split | None:
    """Return the chain of least sum of squared loads along a few orders of the groups, including that of `split`."""
    pipeline = chains.pipeline
    stages = split.along_the_flow(pipeline, sorted(set(split.device_of)))
    stage_of = [stages.index(device) for device in split.device_of]
    orders = [sorted(order, key=stage_of.__getitem__) for order in promising_orders(pipeline)]
    return chains.search(prefixes(orders)).evenest(split.load * (1 + SAME_SUMS), control)


def _joined_late(pipeline: Pipeline, split: Split, most: float) -> Split:
    """Return a split in which groups that join branches are on devices that make the longest path shorter.

    The path leads through the stages, and its length is the sum of their loads. No load exceeds `most`. A stage that
    joins two branches starts after both branches, so it should not contain the whole shorter branch.
    """
    moves, limit = Moves((pipeline,), split.device_of), most * (1 + SAME_SUMS)
    in_branches = {v for stretch in pipeline.branches for branch in stretch for v in branch}
    longest = _longest_path(pipeline, moves)
    for source, target in permutations(moves.devices, 2):
        joins = [v for v, device in enumerate(moves.on) if device == source and v not in in_branches]
        if not joins or not all(target in moves.allowed[v] for v in joins):
            continue
        for v in joins:
            moves.shift(v, target)
        path = _longest_path(pipeline, moves)
        if path < longest * (1 - _MIN_GAIN) and moves.objective <= limit and fits_memory((pipeline,), moves.on):
            longest = path
            continue
        for v in joins:
            moves.shift(v, source)
    return moves.split


def _longest_path(pipeline: Pipeline, moves: Moves) -> float:
    """Return the largest sum of loads along a path of stages. Infinite if tensors flow in a cycle between devices."""
    before = quotient(len(moves.devices), ((moves.on[one], moves.on[other]) for one, other in pipeline.arcs))
    order, (load,), ends = topological_order(before), moves.load, dict[int, float]()
    for device in order:
        ends[device] = load[device] + max((ends[each] for each in before[device]), default=0.0)
    return max(ends.values()) if len(order) == len(before) else math.inf


def _by_moves(pipeline: Pipeline, split: Split, control: Control) -> Split | None:
    """Return the split after moving groups one by one, as long as a move reduces the sum of squared loads.

    No load exceeds the load of `split`.
    """
    moves, limit = Moves((pipeline,), split.device_of), split.load * (1 + SAME_SUMS)
    for _ in range(_MAX_ROUNDS):
        moved = [_move(moves, group, limit) for group in range(len(moves.on)) if not control.stopped]
        if not any(moved):
            break
    return moves.split


def _move(moves: Moves, group: int, limit: float) -> bool:
    """Move `group` to the least loaded device for which loads become more even. Return whether the group was moved."""
    source, (load,) = moves.on[group], moves.load
    before = sum(each * each for each in load)
    for device in sorted(moves.allowed[group], key=load.__getitem__):
        if load[device] >= load[source] or not moves.fits(group, device):
            continue
        moves.shift(group, device)
        if max(load) <= limit and sum(each * each for each in load) < before * (1 - _MIN_GAIN):
            return True
        moves.shift(group, source)
    return False
