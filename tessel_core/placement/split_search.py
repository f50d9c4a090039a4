"""Search for the best split by CP-SAT models, bounds, and annealing.

A group is a set of operators that must share a device. A split gives each group a device. A chain is a contiguous
split, whose stages follow the flow. Otherwise, a device may have any set of groups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict
from tessel_core.placement.bounds import cut_bound, highest_load, pigeonhole_bound, priced_work, work_and_cut_bound
from tessel_core.placement.moves import fits_memory, measured
from tessel_core.placement.pipeline import Best, Pipeline, Split
from tessel_core.placement.split_model import Resolution, SplitModel

if TYPE_CHECKING:
    from tessel_core.placement.any_sets import AnySetSearch

_PROVERS = ("objective_lb_search", "max_lp", "lb_tree_search", "default_lp")
"""CP-SAT's subsolvers that raise the bound, from the best on (measured on the published inputs)."""


@dataclass(frozen=True, slots=True)
class _Phase:
    """One CP-SAT model, or one run of the search over any sets."""

    name: str
    share: float
    """Time limit, as a share of the remaining time."""
    resolution: Resolution | None = None
    """Resolution of the model. None for the search over any sets."""
    proves: bool = False
    """Whether to use the subsolvers that raise the bound. Otherwise CP-SAT uses its defaults."""
    ordered: bool = False
    """Whether the model breaks the symmetry between equal devices."""


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
"""Phases of the search for chains, and of the search for any sets of groups per device.

For chains, the first split is often the best, and only models with `Resolution.FINE` can prove that.
"""


def best_split(
    pipeline: Pipeline, objective: str, contiguous: bool, start: Split | None, effort: Effort, control: Control
) -> Best:
    """Return the split of least objective, starting from the known split `start`.

    The result is complete if the split is proved optimal or if no split exists. The first phase is short, which is
    enough for easy problems.
    """
    return _SplitSearch(pipeline, objective, contiguous, start, effort, control).run()


class _SplitSearch:
    """The best split and the lower bound so far, which the phases improve one after another."""

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
        self._raised = False

    def run(self) -> Best:
        """Run the phases until the split is proved optimal or time ends. Return the best split and the bound."""
        left = self._effort.seconds
        for number, phase in enumerate(_CHAINS if self._contiguous else _ANY_SETS):
            self._raise_bounds()
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

    def _raise_bounds(self) -> None:
        """Raise the bounds by the methods that need a known split, once there is one. Later calls do nothing."""
        if self._best.split is None or self._raised:
            return
        upper, self._raised = self._best.split.load, True
        for raised in (pigeonhole_bound, work_and_cut_bound):
            bounds = zip(self._parts, self._bounds, strict=True)
            self._bounds = [raised(part, bound, upper, self._control) for part, bound in bounds]
        self._best = replace(self._best, bound=min(max(self._best.bound, sum(self._bounds)), upper))

    def _search(self, seconds: float) -> float:
        """Continue the search over any sets of groups per device. Return the seconds that it took."""
        from tessel_core.placement.any_sets import AnySetSearch  # imported here: numba takes half a second to load

        if self._best.split is None:
            return 0.0
        self._any_sets = self._any_sets or AnySetSearch(self._parts, self._best.split, self._effort)
        self._any_sets.keep(self._best.split)
        took = self._any_sets.run(seconds, self._best.bound, self._control)
        split = self._any_sets.best
        self._best = replace(self._best, split=split, bound=min(self._best.bound, split.load))
        return took

    def _ask(self, phase: _Phase, resolution: Resolution, effort: Effort) -> None:
        """Solve the CP-SAT model of a phase, and update the best split and the bound."""
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

        def report(objective: float, bound: float) -> None:
            load = None if known is None else Fraction(known.load)
            if resolution is Resolution.FINE:  # solutions of other models are not exact, and may not fit in memory
                load = Fraction(objective)
            self._control.report(phase.name, load, Fraction(max(bound, self._best.bound)))

        team = _PROVERS[: effort.workers] if phase.proves else ()
        verdict, device_of, bound, _ = model.solve(replace(effort, team=team), report)
        if verdict in (Verdict.IMPOSSIBLE, Verdict.PROVED):
            self._settled.add(resolution)
        if verdict is Verdict.IMPOSSIBLE:
            # The model can exclude a known split only if the split exceeds a capacity by a rounding error.
            self._best = replace(self._best, complete=known is None)
            return
        best = known
        if device_of is not None and fits_memory(self._parts, device_of):
            other = measured(self._parts, device_of)
            best = other if known is None or other.load < known.load else known
        bound = max(self._best.bound, bound)
        self._best = Best(best, bound if best is None else min(bound, best.load), False)
