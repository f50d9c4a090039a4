"""Among placements of one largest load, one with even loads: idle devices beside a full one look like a mistake."""

from __future__ import annotations

from dataclasses import replace

from tessel_core.control import Control
from tessel_core.model import THROUGHPUT, PlacementReport
from tessel_core.placement.bounds import priced_work
from tessel_core.placement.chain import SAME_SUMS, ChainSearch
from tessel_core.placement.ideals import Ideals, prefixes, promising_orders
from tessel_core.placement.moves import Moves
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
    which the objective was found; elsewhere groups move one by one.  Only where the search knows loads exactly.
    """
    exact = problem.has_equal_links and problem.objective == THROUGHPUT
    if report.solution is None or not exact or control.stopped:
        return report
    device_of = tuple(report.solution.assignment[members[0]][0] for members in pipeline.members)
    find = _evenest if problem.contiguous else _by_moves
    found = find(within_memory(pipeline), Split(float(report.objective or 0), device_of), control)
    if found is None:
        return report
    placement = pipeline.placement(problem, found.device_of)
    return replace(report, solution=placement) if problem.measure(placement) <= (report.objective or 0) else report


def _evenest(pipeline: Pipeline, split: Split, control: Control) -> Split | None:
    """The least sum of squares of loads among chains that cut a few orders, the chain of `split` among them."""
    priced = priced_work(pipeline)
    stages = split.along_the_flow(pipeline, sorted(set(split.device_of)))
    stage_of = [stages.index(device) for device in split.device_of]
    orders = [sorted(order, key=stage_of.__getitem__) for order in promising_orders(pipeline)]
    search = ChainSearch(pipeline, Ideals.of(pipeline, prefixes(orders), priced.work), priced)
    return search.evenest(split.load * (1 + SAME_SUMS), control)


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
