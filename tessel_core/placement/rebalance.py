"""Among placements of one largest load, one with even loads: idle devices beside a full one look like a mistake."""

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

_LESS = 1e-9
"""A move must take more than this share of the sum of squares away."""
_ROUNDS = 10


def rebalanced(
    problem: PlacementProblem, pipeline: Pipeline, report: PlacementReport, control: Control
) -> PlacementReport:
    """The report with a placement of the same objective whose squares of loads sum to less, where one is near.

    In a chain, devices take groups from their neighbours, which takes no longer than the first of the limits under
    which the objective was found; elsewhere groups move one by one.  Branches that are kept apart join where that keeps
    the longest way through the stages short.  Only where the search knows loads exactly.
    """
    exact = problem.has_equal_links and problem.objective == THROUGHPUT
    if report.solution is None or not exact or control.stopped:
        return report
    device_of = tuple(report.solution.assignment[members[0]][0] for members in pipeline.members)
    split, fitting = Split(float(report.objective or 0), device_of), within_memory(pipeline)
    found = evenest(Chains(fitting), split, control) if problem.contiguous else _by_moves(fitting, split, control)
    if found is None:
        return report
    if pipeline.branches:
        found = _joined_late(within_memory(pipeline), found, float(report.objective or 0))
    placement = pipeline.placement(problem, found.device_of)
    return replace(report, solution=placement) if problem.measure(placement) <= (report.objective or 0) else report


def evenest(chains: Chains, split: Split, control: Control) -> Split | None:
    """The least sum of squares of loads among chains that cut a few orders, the chain of `split` among them."""
    pipeline = chains.pipeline
    stages = split.along_the_flow(pipeline, sorted(set(split.device_of)))
    stage_of = [stages.index(device) for device in split.device_of]
    orders = [sorted(order, key=stage_of.__getitem__) for order in promising_orders(pipeline)]
    return chains.search(prefixes(orders)).evenest(split.load * (1 + SAME_SUMS), control)


def _joined_late(pipeline: Pipeline, split: Split, most: float) -> Split:
    """With what joins branches on devices where the longest way through the stages is shorter; no load above `most`.

    A stage that joins two branches begins after both, so it should not be the whole of the shorter one.
    """
    moves, limit = Moves((pipeline,), split.device_of), most * (1 + SAME_SUMS)
    in_branches = {v for stretch in pipeline.branches for branch in stretch for v in branch}
    longest = _longest_way(pipeline, moves)
    for source, target in permutations(moves.devices, 2):
        joins = [v for v, device in enumerate(moves.on) if device == source and v not in in_branches]
        if not joins or not all(target in moves.allowed[v] for v in joins):
            continue
        for v in joins:
            moves.shift(v, target)
        way = _longest_way(pipeline, moves)
        if way < longest * (1 - _LESS) and moves.objective <= limit and fits_memory((pipeline,), moves.on):
            longest = way
            continue
        for v in joins:
            moves.shift(v, source)
    return moves.split


def _longest_way(pipeline: Pipeline, moves: Moves) -> float:
    """The largest sum of loads along a path of stages; infinite where tensors would flow in a circle."""
    before = quotient(len(moves.devices), ((moves.on[one], moves.on[other]) for one, other in pipeline.arcs))
    order, (load,), ends = topological_order(before), moves.load, dict[int, float]()
    for device in order:
        ends[device] = load[device] + max((ends[each] for each in before[device]), default=0.0)
    return max(ends.values()) if len(order) == len(before) else math.inf


def _by_moves(pipeline: Pipeline, split: Split, control: Control) -> Split | None:
    """Groups one by one to where squares sum to less, as long as that makes no load the largest."""
    moves, limit = Moves((pipeline,), split.device_of), split.load * (1 + SAME_SUMS)
    for _ in range(_ROUNDS):
        moved = [_move(moves, group, limit) for group in range(len(moves.on)) if not control.stopped]
        if not any(moved):
            break
    return moves.split


def _move(moves: Moves, group: int, limit: float) -> bool:
    """Moves the group to the emptiest device that makes loads more even; whether there is one."""
    source, (load,) = moves.on[group], moves.load
    before = sum(each * each for each in load)
    for device in sorted(moves.allowed[group], key=load.__getitem__):
        if load[device] >= load[source] or not moves.fits(group, device):
            continue
        moves.shift(group, device)
        if max(load) <= limit and sum(each * each for each in load) < before * (1 - _LESS):
            return True
        moves.shift(group, source)
    return False
