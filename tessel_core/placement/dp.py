"""The exact dynamic program over ideals: the contiguous placement of highest throughput, with proof."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.control import Control
from tessel_core.model import PlacementReport
from tessel_core.options import Option, option
from tessel_core.placement.answer import answer, no_placement
from tessel_core.placement.exact import best_chain
from tessel_core.placement.problem import PlacementProblem, Placer
from tessel_core.placement.shortage import explain
from tessel_core.placement.stages import pipeline_of


@dataclass(frozen=True, slots=True)
class DpConfig:
    """What the dynamic program may spend."""

    time_limit: float = option(60.0, Option("Time limit", "Wall seconds for the whole search", 0.1, 86_400, "s"))
    most_ideals: int = option(
        2_000_000,
        Option(
            "Most ideals", "Sets of operators that are looked at; more take about 150 bytes each", 1_000, 20_000_000
        ),
    )


def solve(problem: PlacementProblem, config: DpConfig, control: Control) -> PlacementReport:
    """The least largest load over all contiguous placements."""
    pipeline = pipeline_of(problem)
    search = control.part(config.time_limit)
    best = best_chain(pipeline, config.most_ideals, search)
    if best.chain is None and best.complete:
        return no_placement(explain(problem, pipeline, config.most_ideals, search))
    if search.stopped:
        return answer(problem, pipeline, best, control, "the time limit came before the proof")
    more = f"there are more than {config.most_ideals:,} ideals: only those of a few orders were searched"
    return answer(problem, pipeline, best, control, more)


DP = Placer(
    "dp",
    "Dynamic program",
    "Tarnawski et al., Efficient Algorithms for Device Placement of DNN Graph Operators, NeurIPS 2020",
    solve,
    DpConfig,
)
