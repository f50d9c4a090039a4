"""The best split of groups by CP-SAT, from the best start that is cheap, with every bound there is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict
from tessel_core.placement.bounds import cut_bound, highest_load, pigeonhole_bound, priced_work
from tessel_core.placement.moves import fits_memory, measured
from tessel_core.placement.pipeline import Best, Pipeline, Split
from tessel_core.placement.split_model import Resolution, SplitModel

if TYPE_CHECKING:
    from tessel_core.placement.any_sets import AnySetSearch

_PROVERS = ("objective_lb_search", "max_lp", "lb_tree_search", "default_lp")
"""CP-SAT's subsolvers that raise the bound, best first (measured on the published inputs)."""


@dataclass(frozen=True, slots=True)
class _Phase:
    """One question put to CP-SAT, or a search."""

    name: str
    share: float
    """Upper limit, as a share of the time that is left."""
    resolution: Resolution | None = None
    """None for the search over any sets, which asks CP-SAT about few devices at a time."""
    proves: bool = False
    """Whether by the subsolvers that prove, else by the usual team."""
    ordered: bool = False


_FIRST = _Phase("first splits", 0.04, Resolution.FINE, ordered=True)
_PROVING = _Phase("proving", 1.0, Resolution.FINE, proves=True)
_CHAINS = (_FIRST, _Phase("finding splits", 0.5, Resolution.FINE, ordered=True), _PROVING)
_ANY_SETS = (
    _FIRST,
    _Phase("any sets", 0.5),
    _Phase("proving coarsely", 0.4, Resolution.COARSE, proves=True, ordered=True),
    _Phase("any sets", 0.3),
    _Phase("proving", 0.5, Resolution.PRESOLVED),
    _PROVING,
)
"""A contiguous split to start from is mostly the best, and only FINE proves that."""


def best_split(
    pipeline: Pipeline, objective: str, contiguous: bool, start: Split | None, effort: Effort, control: Control
) -> Best:
    """The split of least load, from `start` if there is one; complete where it is proved or there is none.

    CP-SAT's usual team for a little while, which is enough where it is easy, and the phases.
    """
    return _SplitSearch(pipeline, objective, contiguous, start, effort, control).run()


class _SplitSearch:
    """The phases, the best split and bound so far, and what is known for the next phase."""

    def __init__(
        self,
        pipeline: Pipeline,
        objective: str,
        contiguous: bool,
        start: Split | None,
        effort: Effort,
        control: Control,
    ) -> None:
        self._pipeline, self._parts, self._contiguous = pipeline, pipeline.parts(objective), contiguous
        self._effort, self._control = effort, control
        self._bounds = [cut_bound(part, priced_work(part).bound, control) for part in self._parts]
        self._best = Best(start, max(sum(self._bounds), priced_work(pipeline).bound), False)
        self._settled = set[Resolution]()
        self._any_sets: AnySetSearch | None = None
        self._counted = False

    def run(self) -> Best:
        """The best split and bound after all phases, fewer where it is proved sooner."""
        left = self._effort.seconds
        for number, phase in enumerate(_CHAINS if self._contiguous else _ANY_SETS):
            self._count_pigeonholes()
            if self._best.complete or self._best.is_optimal or self._control.stopped:
                break
            if phase.resolution in self._settled:
                continue
            seconds = left * phase.share
            if phase.resolution is None:
                seconds = self._search(seconds)
            else:
                self._ask(
                    phase, phase.resolution, replace(self._effort, seconds=seconds, seed=self._effort.seed + number)
                )
            left = max(0.0, left - seconds)
        return replace(self._best, complete=self._best.complete or self._best.is_optimal)

    def _count_pigeonholes(self) -> None:
        """Raise the bounds once, as soon as a split is known."""
        if self._best.split is None or self._counted:
            return
        upper, self._counted = self._best.split.load, True
        bounds = zip(self._parts, self._bounds, strict=True)
        self._bounds = [pigeonhole_bound(part, bound, upper, self._control) for part, bound in bounds]
        self._best = replace(self._best, bound=min(max(self._best.bound, sum(self._bounds)), upper))

    def _search(self, seconds: float) -> float:
        """Search over any sets, from where such a search ended before; returns the seconds that it took."""
        from tessel_core.placement.any_sets import AnySetSearch  # late: numba takes half a second to load

        if self._best.split is None:
            return 0.0
        self._any_sets = self._any_sets or AnySetSearch(self._parts, self._best.split, self._effort)
        self._any_sets.keep(self._best.split)
        took = self._any_sets.run(seconds, self._best.bound, self._control)
        found = self._any_sets.best
        self._best = replace(self._best, split=found, bound=min(self._best.bound, found.load))
        return took

    def _ask(self, phase: _Phase, resolution: Resolution, effort: Effort) -> None:
        """Put one question to CP-SAT."""
        known = self._best.split
        model = SplitModel(
            self._parts,
            contiguous=self._contiguous,
            ordered=phase.ordered,
            resolution=resolution,
            upper=highest_load(self._pipeline) if known is None else known.load,
            control=self._control,
        )
        model.bound_from_below(self._bounds, self._best.bound)
        if known is not None:
            model.hint(known)

        def tell(objective: float, bound: float) -> None:
            load = None if known is None else Fraction(known.load)
            if resolution is Resolution.FINE:  # others neither time splits exactly nor are sure that they fit
                load = Fraction(objective)
            self._control.report(phase.name, load, Fraction(max(bound, self._best.bound)))

        team = _PROVERS[: effort.workers] if phase.proves else ()
        verdict, device_of, bound = model.solve(replace(effort, team=team), tell)
        if verdict in (Verdict.IMPOSSIBLE, Verdict.PROVED):
            self._settled.add(resolution)
        if verdict is Verdict.IMPOSSIBLE:
            # A known split can only be missing where it exceeds a capacity by a rounding error.
            self._best = replace(self._best, complete=known is None)
            return
        found = known
        if device_of is not None and fits_memory(self._parts, device_of):
            other = measured(self._parts, device_of)
            found = other if known is None or other.load < known.load else known
        bound = max(self._best.bound, bound)
        self._best = Best(found, bound if found is None else min(bound, found.load), False)
