"""The placer `cp-sat`: contiguous placements and placements with any sets of operators per device, by CP-SAT.

A group is a set of operators that must share a device. A split gives each group a device. A chain is a contiguous
split: its stages follow the flow. An ideal is a set of groups that contains all predecessors of its members.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from tessel_core.control import Control
from tessel_core.model import THROUGHPUT, PlacementReport, Status
from tessel_core.options import Option, option
from tessel_core.placement.answer import answer_split
from tessel_core.placement.bounds import priced_work
from tessel_core.placement.chain import best_chain, best_in_orders
from tessel_core.placement.groups import chain_of, pipeline_of
from tessel_core.placement.ideals import promising_orders
from tessel_core.placement.moves import fits_memory, measured
from tessel_core.placement.pipeline import EQUAL_LOADS, Best, Pipeline, Split, has_unplaceable, within_memory
from tessel_core.placement.placers import Placer
from tessel_core.placement.problem import PlacementProblem
from tessel_core.placement.rebalance import rebalanced
from tessel_core.placement.rescaling import rescaled_search
from tessel_core.placement.shortage import explain

_START_IDEALS = 100_000
"""Largest number of ideals in the search for a contiguous first split. The search then takes a few seconds."""


@dataclass(frozen=True, slots=True)
class CpSatConfig:
    """Limits of the search."""

    time_limit: float = option(60.0, Option("Time limit", "For the whole search", 0.1, 86_400, "s"))
    workers: int = option(2, Option("Workers", "Solver threads. With 1, the same seed gives the same answer", 1, 64))
    seed: int = option(0, Option("Seed", "Seed of the random choices", 0, 2**31 - 1))


def solve(problem: PlacementProblem, config: CpSatConfig, control: Control) -> PlacementReport:
    """Return the report on the placement of least objective, contiguous or not, with a lower bound.

    In a non-contiguous split, each stage holds one micro-batch per device. In a chain, a stage holds only as many as
    its position requires. So if the problem allows non-contiguous splits and memory may bind, chains are searched too,
    and the better result is returned.
    """
    if problem.contiguous or not _has_positions(problem):
        return _solve(problem, config, control)
    half = control.part(config.time_limit / 2)
    chain = _solve(replace(problem, contiguous=True), config, half)
    return _better(chain, _solve(problem, config, control.part(config.time_limit)))


def _has_positions(problem: PlacementProblem) -> bool:
    """Return whether a chain may fit in memory when other splits do not.

    This is possible if memory may bind, and if stages of a chain hold fewer micro-batches than stages of other splits.
    """
    held = pipeline_of(problem)
    binds = any(held.memory.sum() > each.capacity for each in held.classes)
    return binds and bool(chain_of(problem).kept.any())


def _better(chain: PlacementReport, other: PlacementReport) -> PlacementReport:
    """Return the report with the lower objective, and the lower of the two bounds.

    If one report is INFEASIBLE, return the other report. If both are INFEASIBLE, return the smaller `least_memory`.
    """
    if Status.INFEASIBLE in (chain.status, other.status):
        left = other if chain.status is Status.INFEASIBLE else chain
        if left.status is not Status.INFEASIBLE:
            return left
        known = [each.least_memory for each in (chain, other)]
        least = None if None in known else min(each for each in known if each is not None)
        return replace(other, least_memory=least, least_accelerators=None)
    assert chain.bound is not None
    assert other.bound is not None
    solved = [each for each in (chain, other) if each.objective is not None]
    best = min(solved, key=lambda each: each.objective or 0, default=other)
    bound = min(chain.bound, other.bound)
    if best.objective is not None and bound >= best.objective * (1 - Fraction(EQUAL_LOADS)):
        return replace(best, status=Status.PROVED_OPTIMAL, bound=best.objective, reason="")
    open_one = chain if chain.bound == bound else other
    status = Status.FEASIBLE if best.status is Status.PROVED_OPTIMAL else best.status
    return replace(best, status=status, bound=bound, reason=open_one.reason)


def _solve(problem: PlacementProblem, config: CpSatConfig, control: Control) -> PlacementReport:
    """Return the report on the best split: a chain if the problem is contiguous, else any set of groups per device."""
    pipeline, search = pipeline_of(problem), control.part(config.time_limit)
    fitting = within_memory(pipeline)

    def of_memory(asked: Pipeline) -> Best:
        return splits(asked, THROUGHPUT, problem.contiguous, None, config, search)

    if has_unplaceable(fitting):
        return explain(problem, pipeline, of_memory)
    start = _start(problem, fitting, search)
    best = splits(fitting, problem.objective, problem.contiguous, start, config, search)
    if best.split is None and best.complete:
        return explain(problem, pipeline, of_memory)
    report = answer_split(problem, pipeline, best, control, _why_not_proved(problem, config, best, search))
    return rebalanced(problem, pipeline, report, search)


def splits(
    pipeline: Pipeline, objective: str, contiguous: bool, start: Split | None, config: CpSatConfig, control: Control
) -> Best:
    """Return the best split that CP-SAT finds. If no time is left, return `start` with the bound of `priced_work`."""
    if control.stopped:
        return Best(start, priced_work(pipeline).bound, False)
    from tessel_core.cpsat import Effort
    from tessel_core.placement.split_search import best_split

    effort = Effort(config.time_limit, config.workers, config.seed, repeatable=config.workers == 1)

    def search(asked: Pipeline, known: Split | None) -> Best:
        return best_split(asked, objective, contiguous, known, effort, control)

    return rescaled_search(pipeline, objective, start, search)


def _start(problem: PlacementProblem, fitting: Pipeline, control: Control) -> Split | None:
    """Return a contiguous split from which CP-SAT starts, or None if there is none.

    If placements must be contiguous, the split is the best chain along a few orders of the groups. Otherwise, the split
    is the best chain that the dynamic program over ideals finds.
    """
    if problem.contiguous:
        split = best_in_orders(fitting, promising_orders(fitting), control).split
        return None if split is None else measured(fitting.parts(problem.objective), split.device_of)
    chains = within_memory(chain_of(problem))
    if has_unplaceable(chains):
        return None
    return carried_over(chains, best_chain(chains, _START_IDEALS, control.quiet()).split, fitting, problem.objective)


def carried_over(source: Pipeline, split: Split | None, target: Pipeline, objective: str) -> Split | None:
    """Return a split of `source` as a split of `target`, which groups the same operators differently.

    Return None if a group of `target` would be on a device that does not support it, or if a device would exceed its
    memory.
    """
    if split is None:
        return None
    place = {i: device for group, device in zip(source.members, split.device_of, strict=True) for i in group}
    supported = {device: each.time for each in target.classes for device in each.devices}
    converted = []
    for v, group in enumerate(target.members):
        device = next((place[i] for i in group if supported[place[i]][v] < float("inf")), None)
        if device is None:
            return None
        converted.append(device)
    parts = target.parts(objective)
    return measured(parts, converted) if fits_memory(parts, converted) else None


def _why_not_proved(problem: PlacementProblem, config: CpSatConfig, best: Best, control: Control) -> str:
    if not problem.has_equal_links and best.complete:
        return "the bound holds for the fastest link between any two devices"
    struck = config.workers == 1 and control.stopped and not control.cancelled
    return "the time limit came before the proof" + (": not reproducible" if struck else "")


CP_SAT = Placer(
    "cp-sat",
    "CP-SAT",
    "Integer programs of Tarnawski et al., NeurIPS 2020, with positions in a chain; or any sets, annealed first",
    solve,
    CpSatConfig,
    keeps_branches_apart=True,
)
