"""The placer `dp`, a dynamic program over ideals, which proves the contiguous placement of highest throughput.

A group is a set of operators that must share a device. A split gives each group a device. An ideal is a set of groups
that contains all predecessors of its members.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from tessel_core.control import Control
from tessel_core.model import THROUGHPUT, PlacementReport
from tessel_core.options import Option, option
from tessel_core.placement.answer import answer, answer_split
from tessel_core.placement.chain import best_chain
from tessel_core.placement.cp_sat import CpSatConfig, carried_over, splits
from tessel_core.placement.groups import coarse_pipeline, pipeline_of
from tessel_core.placement.pipeline import Best, Pipeline, has_unplaceable, within_memory
from tessel_core.placement.placers import Placer
from tessel_core.placement.problem import PlacementProblem
from tessel_core.placement.rebalance import rebalanced
from tessel_core.placement.replicas import solve_replicated
from tessel_core.placement.shortage import explain


@dataclass(frozen=True, slots=True)
class DpConfig:
    """Limits of the dynamic program."""

    time_limit: float = option(60.0, Option("Time limit", "For the whole search", 0.1, 86_400, "s"))
    most_ideals: int = option(
        2_000_000,
        Option(
            "Most cuts",
            "Largest number of possible cuts (ideals), of 150 bytes each. If there are more, CP-SAT takes over",
            1_000,
            20_000_000,
        ),
    )
    workers: int = option(2, Option("Workers", "Threads of CP-SAT, if it takes over", 1, 64))
    seed: int = option(0, Option("Seed", "Seed of CP-SAT's random choices", 0, 2**31 - 1))


def solve(problem: PlacementProblem, config: DpConfig, control: Control) -> PlacementReport:
    """Return the report on the contiguous placement of least largest load.

    If links differ, the search counts transfers over the fastest link. The bound is then valid, but the load of the
    placement may be above the bound.
    """
    if problem.replicates:
        without = partial(_without_replicas, config)
        return solve_replicated(problem, config.most_ideals, without, control.part(config.time_limit))
    pipeline, search = pipeline_of(problem), control.part(config.time_limit)
    fitting = within_memory(pipeline)

    def in_chains(given: Pipeline) -> Best:
        return best_chain(given, config.most_ideals, search)

    if has_unplaceable(fitting):
        return explain(problem, pipeline, in_chains)
    best = in_chains(fitting)
    searched_all = best.complete
    if search.stopped and not searched_all:
        return answer_split(problem, pipeline, best, control, "the time limit came before the proof")
    reason = "the bound holds for the fastest link between any two devices"
    if not searched_all:
        reason = (
            f"there are more than {config.most_ideals:,} possible cuts, and the time limit came before CP-SAT's proof"
        )
        pipeline, best = _beyond_ideals(problem, pipeline, best, config, search)
    if best.split is None and best.complete:
        return explain(problem, pipeline, in_chains)
    report = answer_split(problem, pipeline, best, control, reason)
    if not problem.has_equal_links:
        return _with_slow_links(problem, report, config, search)
    return rebalanced(problem, pipeline, report, search)


def _without_replicas(config: DpConfig, problem: PlacementProblem, control: Control) -> PlacementReport:
    return solve(problem, config, control.quiet())


def _with_slow_links(
    problem: PlacementProblem, report: PlacementReport, config: DpConfig, control: Control
) -> PlacementReport:
    """Return the better of two reports:

    the given one, and one for a search in which all links are as slow as the slowest.
    """
    slowest = pipeline_of(problem, problem.transfers.loads(problem.graph, max))
    best = best_chain(within_memory(slowest), config.most_ideals, control)
    if best.split is None or report.objective is None or report.bound is None:
        return report
    placement = slowest.placement(problem, best.split.device_of)
    other = answer(problem, placement, float(report.bound), report.reason, control)
    return other if other.objective is not None and other.objective < report.objective else report


def _beyond_ideals(
    problem: PlacementProblem, pipeline: Pipeline, fine: Best, config: DpConfig, control: Control
) -> tuple[Pipeline, Best]:
    """Return a pipeline and its best split, for a problem with too many ideals.

    A pipeline with fewer groups is tried first. If its best split is not proved optimal, CP-SAT searches `pipeline`.
    """
    coarse, best = _coarsely(problem, pipeline, fine, config, control)
    if best.is_optimal:
        return coarse, best
    fitting = within_memory(pipeline)
    start = carried_over(coarse, best.split, fitting, problem.objective)
    search = CpSatConfig(config.time_limit, config.workers, config.seed)
    split = splits(fitting, problem.objective, True, start, search, control)
    return pipeline, replace(split, bound=max(split.bound, best.bound))


def _coarsely(
    problem: PlacementProblem, pipeline: Pipeline, fine: Best, config: DpConfig, control: Control
) -> tuple[Pipeline, Best]:
    """Return a pipeline and its best split, for a problem with too many ideals.

    The returned pipeline has fewer groups, or is `pipeline` itself if the known split `fine` is better. The bound holds
    for `pipeline` too, so a split that meets the bound is optimal.
    """
    coarse = coarse_pipeline(problem, keep_memory=True)
    if len(coarse.members) == len(pipeline.members):
        return pipeline, fine
    fitting = within_memory(coarse)
    restricted = Best(None, fine.bound, False)
    if not has_unplaceable(fitting):
        restricted = best_chain(fitting, config.most_ideals, control)
    relaxed = within_memory(coarse_pipeline(problem, keep_memory=False))
    bound = best_chain(relaxed, config.most_ideals, control, restricted.split).bound
    if fine.split is not None and (restricted.split is None or fine.split.load < restricted.split.load):
        return pipeline, Best(fine.split, max(bound, fine.bound), True)
    return coarse, Best(restricted.split, max(bound, fine.bound), restricted.split is not None)


DP = Placer(
    "dp",
    "Dynamic program",
    "Tarnawski et al., Efficient Algorithms for Device Placement of DNN Graph Operators, NeurIPS 2020",
    solve,
    DpConfig,
    keeps_branches_apart=True,
    replicates=(False, True),
    objectives=(THROUGHPUT,),
    contiguous=(True,),
)
