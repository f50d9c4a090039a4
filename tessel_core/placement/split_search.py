"""The best split of groups by CP-SAT, from the best start that is cheap, with every bound there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict
from tessel_core.placement.bounds import cut_bound, highest_load, priced_work
from tessel_core.placement.moves import anneal, fits_memory, measured
from tessel_core.placement.pipeline import Best, Pipeline, Split
from tessel_core.placement.split_model import Resolution, SplitModel

_STEPS = 500_000
"""Of annealing: a few seconds."""
_PROVERS = ("objective_lb_search", "max_lp", "lb_tree_search", "default_lp")
"""CP-SAT's subsolvers that raise the bound, best first (measured on the published inputs)."""


@dataclass(frozen=True, slots=True)
class _Phase:
    """One question put to CP-SAT."""

    name: str
    share: float
    """Upper limit, as a share of the time that is left."""
    resolution: Resolution
    proves: bool = False
    """Whether by the subsolvers that prove, else by the usual team."""
    ordered: bool = False


_FIRST = _Phase("first splits", 0.04, Resolution.FINE, ordered=True)
_LAST = (
    _Phase("finding splits", 0.5, Resolution.FINE, ordered=True),
    _Phase("proving", 1.0, Resolution.FINE, proves=True),
)
_COARSELY = (
    _Phase("finding splits", 0.2, Resolution.COARSE),
    _Phase("proving coarsely", 0.4, Resolution.COARSE, proves=True, ordered=True),
    _Phase("finding splits", 0.5, Resolution.COARSE),
)
_PHASES = {True: (_FIRST, *_LAST), False: (_FIRST, *_COARSELY, _Phase("proving", 0.5, Resolution.PRESOLVED), *_LAST)}
"""Contiguous or not.  A contiguous split to start from is mostly the best, and only FINE proves that."""


def best_split(
    pipeline: Pipeline, objective: str, contiguous: bool, start: Split | None, effort: Effort, control: Control
) -> Best:
    """The split of least load, from `start` if there is one; complete where it is proved or there is none.

    CP-SAT's usual team for a little while, which is enough where it is easy; annealing; and the phases.
    """
    parts = pipeline.parts(objective)
    bounds = [cut_bound(part, priced_work(part).bound, control) for part in parts]
    total = max(sum(bounds), priced_work(pipeline).bound)
    best, left, settled = Best(start, total, False), 1.0, set[Resolution]()
    for number, phase in enumerate(_PHASES[contiguous]):
        if best.complete or best.is_optimal or control.stopped:
            break
        if phase.resolution in settled:
            continue
        each = replace(effort, seconds=effort.seconds * left * phase.share, seed=effort.seed + number)
        left *= 1 - phase.share
        upper = highest_load(pipeline) if best.split is None else best.split.load
        model = SplitModel(
            parts,
            contiguous=contiguous,
            ordered=phase.ordered,
            resolution=phase.resolution,
            upper=upper,
            control=control,
        )
        model.bound_from_below(bounds, best.bound)
        best, exact = _ask(model, parts, best, phase, each, control)
        if exact:
            settled.add(phase.resolution)
        if phase is _FIRST and best.split is not None and not contiguous and not best.is_optimal:
            best = replace(best, split=anneal(parts, best.split, best.bound, _STEPS, effort.seed, control))
    return replace(best, complete=best.complete or best.is_optimal)


def _ask(
    model: SplitModel, parts: Sequence[Pipeline], best: Best, phase: _Phase, effort: Effort, control: Control
) -> tuple[Best, bool]:
    """The best after one phase, and whether its resolution is settled."""
    known = best.split
    if known is not None:
        model.hint(known)

    def tell(objective: float, bound: float) -> None:
        load = None if known is None else Fraction(known.load)
        if phase.resolution is Resolution.FINE:  # others neither time splits exactly nor are sure that they fit
            load = Fraction(objective)
        control.report(phase.name, load, Fraction(max(bound, best.bound)))

    team = _PROVERS[: effort.workers] if phase.proves else ()
    verdict, device_of, bound = model.solve(replace(effort, team=team), tell)
    if verdict is Verdict.IMPOSSIBLE:
        # A known split can only be missing where it exceeds a capacity by a rounding error.
        return replace(best, complete=known is None), True
    settled = verdict is Verdict.PROVED
    bound = max(best.bound, bound)
    if device_of is None or not fits_memory(parts, device_of):
        return replace(best, bound=bound if known is None else min(bound, known.load)), settled
    found = measured(parts, device_of)
    if known is not None and known.load <= found.load:
        found = known
    return Best(found, min(bound, found.load), False), settled
