"""The best split of groups by CP-SAT, from the best start that is cheap, with every bound there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict
from tessel_core.placement.annealing import anneal
from tessel_core.placement.best import Best, Split, meets
from tessel_core.placement.bounds import highest_load, priced_work
from tessel_core.placement.cut_bound import cut_bound
from tessel_core.placement.moves import measured
from tessel_core.placement.split_model import SplitModel
from tessel_core.placement.stages import Pipeline

_STEPS = 500_000
"""Of annealing: a few seconds."""
_PROVERS = ("objective_lb_search", "max_lp", "lb_tree_search", "default_lp")
"""CP-SAT's subsolvers that raise the bound, best first (measured on the published inputs)."""
_EASY_SHARE, _FINDING_SHARE = 0.04, 0.45
"""Of the time, for a first look and for finding splits; the rest is for proofs."""


@dataclass(frozen=True, slots=True)
class Question:
    """Which split is sought."""

    pipeline: Pipeline
    objective: str
    contiguous: bool

    @property
    def parts(self) -> tuple[Pipeline, ...]:
        return self.pipeline.parts(self.objective)


def best_split(question: Question, start: Split | None, effort: Effort, control: Control) -> Best:
    """The split of least load, from `start` if there is one; complete where it is proved or there is none.

    CP-SAT's usual team for a little while, which is enough where it is easy; annealing; the usual team, which finds
    splits; and those that prove.
    """
    bounds = _part_bounds(question, control)
    total = max(sum(bounds), priced_work(question.pipeline).bound)
    best = Best(start, total, False)
    easy, finding = (replace(effort, seconds=effort.seconds * share) for share in (_EASY_SHARE, _FINDING_SHARE))
    proving = replace(effort, seconds=effort.seconds * (1 - _FINDING_SHARE), team=_PROVERS[: effort.workers])
    for phase, each in (("first splits", easy), ("finding splits", finding), ("proving", proving)):
        if not meets(best):
            best = _ask(question, bounds, best, phase, each, control)
        if best.complete or meets(best) or control.stopped:
            break
        if each is easy and best.split is not None and not question.contiguous:
            split = anneal(question.parts, best.split, best.bound, _STEPS, effort.seed, control)
            best = replace(best, split=split)
    return replace(best, complete=best.complete or meets(best))


def _part_bounds(question: Question, control: Control) -> tuple[float, ...]:
    return tuple(cut_bound(part, priced_work(part).bound, control) for part in question.parts)


def _ask(question: Question, bounds: Sequence[float], best: Best, phase: str, effort: Effort, control: Control) -> Best:
    parts, known = question.parts, best.split
    upper = highest_load(question.pipeline) if known is None else known.load
    model = SplitModel(parts, contiguous=question.contiguous, ordered=not effort.team, upper=upper, control=control)
    model.bound_from_below(bounds, best.bound)
    if known is not None:
        model.hint(known)

    def tell(objective: float, bound: float) -> None:
        control.report(phase, Fraction(objective), Fraction(max(bound, best.bound)))

    verdict, device_of, bound = model.solve(effort, tell)
    if verdict is Verdict.IMPOSSIBLE:
        # A known split can only be missing where it exceeds a capacity by a rounding error.
        return replace(best, complete=known is None)
    bound = max(best.bound, bound)
    if device_of is None:
        return replace(best, bound=bound if known is None else min(bound, known.load))
    found = measured(parts, device_of)
    if known is not None and known.load <= found.load:
        found = known
    return Best(found, min(bound, found.load), False)
