"""The exact dynamic program over ideals: the contiguous placement of highest throughput, with proof."""

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

    time_limit: float = option(60.0, Option("Time limit", "Wall seconds for the whole search", 0.1, 86_400, "s"))
    most_ideals: int = option(
        2_000_000,
        Option(
            "Most cuts",
            "Sets of operators after which a stage can end (ideals); each that is looked at takes about 150 bytes",
            1_000,
            20_000_000,
        ),
    )
    workers: int = option(2, Option("Workers", "Threads of CP-SAT, which takes over beyond the most cuts", 1, 64))
    seed: int = option(0, Option("Seed", "Of CP-SAT's random choices", 0, 2**31 - 1))


def solve(problem: PlacementProblem, config: DpConfig, control: Control) -> PlacementReport:
    """The least largest load over all contiguous placements; where links differ, one near the bound of the fastest."""
    if problem.replicates:
        without = partial(_without_replicas, config)
        return solve_replicated(problem, config.most_ideals, without, control.part(config.time_limit))
    pipeline, search = pipeline_of(problem), control.part(config.time_limit)
    fitting = within_memory(pipeline)

    def in_chains(asked: Pipeline) -> Best:
        return best_chain(asked, config.most_ideals, search)

    if has_unplaceable(fitting):
        return explain(problem, pipeline, in_chains)
    best = in_chains(fitting)
    in_full = best.complete
    if search.stopped and not in_full:
        return answer_split(problem, pipeline, best, control, "the time limit came before the proof")
    reason = "the bound holds for the fastest link between any two devices"
    if not in_full:
        reason = (
            f"there are more than {config.most_ideals:,} possible cuts, and the time limit came before CP-SAT's proof"
        )
        pipeline, best = _beyond_ideals(problem, pipeline, best, config, search)
    if best.split is None and best.complete:
        return explain(problem, pipeline, in_chains)
    report = answer_split(problem, pipeline, best, control, reason)
    if not problem.has_equal_links:
        return _wary_of_links(problem, report, config, search)
    return rebalanced(problem, pipeline, report, search)


def _without_replicas(config: DpConfig, problem: PlacementProblem, control: Control) -> PlacementReport:
    return solve(problem, config, control.quiet())


def _wary_of_links(
    problem: PlacementProblem, report: PlacementReport, config: DpConfig, control: Control
) -> PlacementReport:
    """The better of a placement found as if all links were the fastest, and one as if all were the slowest."""
    slowest = pipeline_of(problem, problem.transfers.loads(problem.graph, max))
    found = best_chain(within_memory(slowest), config.most_ideals, control)
    if found.split is None or report.objective is None or report.bound is None:
        return report
    wary = slowest.placement(problem, found.split.device_of)
    other = answer(problem, wary, float(report.bound), report.reason, control)
    return other if other.objective is not None and other.objective < report.objective else report


def _beyond_ideals(
    problem: PlacementProblem, pipeline: Pipeline, fine: Best, config: DpConfig, control: Control
) -> tuple[Pipeline, Best]:
    """The best split of a problem with too many ideals: from fewer groups, then by CP-SAT unless that is proved."""
    coarse, best = _coarsely(problem, pipeline, fine, config, control)
    if best.is_optimal:
        return coarse, best
    asked = within_memory(pipeline)
    start = carried_over(coarse, best.split, asked, problem.objective)
    search = CpSatConfig(config.time_limit, config.workers, config.seed)
    found = splits(asked, problem.objective, True, start, search, control)
    return pipeline, replace(found, bound=max(found.bound, best.bound))


def _coarsely(
    problem: PlacementProblem, pipeline: Pipeline, fine: Best, config: DpConfig, control: Control
) -> tuple[Pipeline, Best]:
    """A split and a bound of a problem with too many ideals, from fewer groups; proved where the two meet."""
    coarse = coarse_pipeline(problem, keep_memory=True)
    if len(coarse.members) == len(pipeline.members):
        return pipeline, fine
    fitting = within_memory(coarse)
    found = Best(None, fine.bound, False)
    if not has_unplaceable(fitting):
        found = best_chain(fitting, config.most_ideals, control)
    light = within_memory(coarse_pipeline(problem, keep_memory=False))
    bound = best_chain(light, config.most_ideals, control, found.split).bound
    if fine.split is not None and (found.split is None or fine.split.load < found.split.load):
        return pipeline, Best(fine.split, max(bound, fine.bound), True)
    return coarse, Best(found.split, max(bound, fine.bound), found.split is not None)


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
