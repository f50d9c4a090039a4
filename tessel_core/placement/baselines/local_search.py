"""Local search from random splits [Tarnawski et al., NeurIPS 2020].

A group is a set of operators that must share a device. A split gives each group a device. Each random split is improved
by the best move of a single group, until no move helps.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter

from tessel_core.control import Control
from tessel_core.model import PlacementReport
from tessel_core.options import Option, option
from tessel_core.placement.answer import evaluate_split
from tessel_core.placement.groups import pipeline_of
from tessel_core.placement.moves import Moves, devices_for
from tessel_core.placement.pipeline import Pipeline, Split
from tessel_core.placement.placers import Placer
from tessel_core.placement.problem import PlacementProblem

_MAX_RATIO = 1 - 1e-12
"""A move is an improvement only if the new objective is below this fraction of the old, to ignore rounding errors."""


@dataclass(frozen=True, slots=True)
class LocalSearchConfig:
    """Limits of the search."""

    restarts: int = option(10, Option("Restarts", "Number of random first splits (10 in the paper)", 1, 10_000))
    time_limit: float = option(20.0, Option("Time limit", "For all restarts together", 0.1, 86_400, "s"))
    seed: int = option(0, Option("Seed", "Seed of the random splits", 0, 2**31 - 1))


def solve(problem: PlacementProblem, config: LocalSearchConfig, control: Control) -> PlacementReport:
    """Return the report on the best local optimum of all restarts.

    Splits that exceed a capacity are worse than all splits that do not.
    """
    search, choose = control.part(config.time_limit), random.Random(config.seed)
    pipeline = pipeline_of(problem)
    parts = pipeline.parts(problem.objective)
    optima = list[tuple[float, float, Split]]()
    for _ in range(config.restarts):
        start = [choose.choice(devices) for devices in devices_for(pipeline)]
        moves = _descend(parts, Moves(parts, start), search)
        optima.append((moves.overflow, moves.objective, moves.split))
        *_, best = min(optima, key=itemgetter(0, 1))
        search.report("restarts", Fraction(best.load), None)
        if search.stopped:
            break
    return evaluate_split(problem, pipeline, best.device_of)


def _descend(parts: Sequence[Pipeline], moves: Moves, control: Control) -> Moves:
    """Return the split after repeating the best move of one group until no move is an improvement or `control` stops.

    Loads are summed again after each move. Otherwise, rounding errors could look like improvements for ever.
    """
    while not control.stopped:
        now = moves.overflow, moves.objective
        tried = [
            (*moves.after(group, device), group, device)
            for group in range(len(moves.on))
            for device in moves.allowed[group]
            if device != moves.on[group] and _may_help(moves, group, device)
        ]
        if not tried:
            break
        *_, group, device = min(tried)
        moved = Moves(parts, [device if each == group else on for each, on in enumerate(moves.on)])
        if (moved.overflow, moved.objective) >= (now[0], now[1] * _MAX_RATIO):
            break
        moves = moved
    return moves


def _may_help(moves: Moves, group: int, device: int) -> bool:
    """Return whether moving `group` to `device` may be an improvement.

    This requires that `device` or the present device of the group has the largest load, or that the present device
    exceeds its capacity.
    """
    source = moves.on[group]
    busiest = any(max(load) in (load[source], load[device]) for load in moves.load)
    return busiest or moves.overfull(source)


LOCAL_SEARCH = Placer(
    "local-search",
    "Local search (non-contiguous)",
    "Baseline of Tarnawski et al., NeurIPS 2020: random restarts, the best single move until none is better",
    solve,
    LocalSearchConfig,
    contiguous=(False,),
)
