"""The placer `layout`: several pipeline stages per device, with the least largest load and a lower bound.

A group is a set of operators that must share a device. A layout gives each group a stage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from tessel_core.control import Control
from tessel_core.model import THROUGHPUT, PlacementReport
from tessel_core.options import Option, option
from tessel_core.placement.answer import answer, infeasible
from tessel_core.placement.bounds import highest_load, lower_bound
from tessel_core.placement.layout_bound import Counts, spread_freely
from tessel_core.placement.layout_task import LayoutTask, cut_evenly
from tessel_core.placement.pipeline import EQUAL_LOADS
from tessel_core.placement.placers import Placer
from tessel_core.placement.problem import PlacementProblem
from tessel_core.placement.shortage import least_bytes

if TYPE_CHECKING:
    from tessel_core.cpsat import Effort
    from tessel_core.placement.layout_model import Units

_COARSE_SHARE, _EVEN_SHARE = 0.5, 0.2
"""Fractions of the time limit for the COARSE model, and for each attempt to make stages even."""
_MAX_EVEN_SECONDS = 2.0
"""Time limit, in seconds, of an attempt to make stages even."""
_ROOM_SECONDS = 2.0
"""Seconds to search for the least capacity that would be enough, if no layout fits."""
_MAX_MODEL_SIZE = 30_000
"""Largest product of groups and stages in a model. Larger models take seconds to build, and rarely improve anything."""


@dataclass(frozen=True, slots=True)
class LayoutConfig:
    """Limits of the search."""

    time_limit: float = option(60.0, Option("Time limit", "For the whole search", 0.1, 86_400, "s"))
    workers: int = option(2, Option("Workers", "Solver threads. With 1, the same seed gives the same answer", 1, 64))
    seed: int = option(0, Option("Seed", "Seed of the random choices", 0, 2**31 - 1))


def solve(problem: PlacementProblem, config: LayoutConfig, control: Control) -> PlacementReport:
    """Return the report on the layout with the least largest load, which divides the flow into stages."""
    task = LayoutTask.of(problem)
    why = _why_none(problem, task)
    if why:
        return infeasible(problem, why)
    search = _Search(task, config, control.part(config.time_limit))
    search.run()
    if search.impossible:
        return _no_room(problem, task, search, control)
    placement = None if search.best is None else task.placement(problem, search.best)
    return answer(problem, placement, search.bound, search.why_not_proved, control)


def _why_none(problem: PlacementProblem, task: LayoutTask) -> str:
    """Return why no layout can exist even with unlimited memory, or an empty string."""
    if not task.devices:
        return "there are no accelerators for the stages"
    nowhere = np.flatnonzero(~np.isfinite(task.time).any(axis=0))
    if len(nowhere):
        first = problem.graph.operators[task.pipeline.members[int(nowhere[0])][0]]
        return f"operator {first.name} is not allowed on any accelerator, but stages are on accelerators"
    groups = len(task.pipeline.members)
    if groups < task.stages:
        return f"the graph can be cut into {groups} stages at most, but the layout has {task.stages}"
    return ""


def _no_room(problem: PlacementProblem, task: LayoutTask, search: _Search, control: Control) -> PlacementReport:
    """Return the report on a problem without a layout that fits.

    The report contains a layout that exceeds only the memory, if one is known.
    """
    if not np.isfinite(task.loads(search.start)).all() or task.fits(search.start):
        return infeasible(problem, f"no cut into {task.stages} stages puts each operator on an allowed device")
    stage_of, bound = search.least_room(control.part(_ROOM_SECONDS))
    held = float(task.held(stage_of).max())
    enough = f"{math.ceil(held):,} bytes on each device would be enough"
    reason = f"the devices have no room for {task.stages} stages and the micro-batches in flight; {enough}"
    return infeasible(problem, reason, least_bytes(held, bound), relaxed=task.placement(problem, stage_of))


class _Search:
    """The best layout so far, as the stage of each group, and a lower bound. Methods improve both until they meet."""

    def __init__(self, task: LayoutTask, config: LayoutConfig, control: Control) -> None:
        self._task, self._config, self._control = task, config, control
        self.start = cut_evenly(task, control)
        self.best: tuple[int, ...] | None = None
        self.load = math.inf
        self.bound = lower_bound(task.pipeline, THROUGHPUT)
        self.impossible = False

    def run(self) -> None:
        """Start from even cuts, compute the bound, solve a COARSE and a FINE model, then make stages even."""
        from tessel_core.placement.layout_model import Units

        self._take(self.start)
        spread = None if self._is_done else spread_freely(self._task, self._upper, self._control)
        if spread is not None:
            self._learn(spread.load)
            if spread.counts is not None and not self._is_done:
                self._even_out(spread.load, spread.counts)
        for units, share in ((Units.COARSE, _COARSE_SHARE), (Units.FINE, 1.0)):
            if not self._is_done and (self._has_small_models or self.best is None):
                self._ask(units, share)
        if self.best is not None and self._has_small_models:
            self._even_out(self.load)

    @property
    def why_not_proved(self) -> str:
        """Reason why optimality is not proved."""
        if self.bound >= self.load * (1 - EQUAL_LOADS):
            return "the bound holds for the fastest link between any two devices"
        if self._has_small_models or self.best is None:
            return "the time limit came before the proof"
        return "there are too many operators for a proof: a graph of whole layers (--by-layer) has fewer"

    @property
    def _has_small_models(self) -> bool:
        return len(self._task.pipeline.members) * self._task.stages <= _MAX_MODEL_SIZE

    @property
    def _is_done(self) -> bool:
        return self.impossible or self._control.stopped or self.bound >= self.load * (1 - EQUAL_LOADS)

    @property
    def _upper(self) -> float:
        """Upper bound on the least largest load."""
        return self.load if math.isfinite(self.load) else highest_load(self._task.pipeline)

    def _effort(self, share: float) -> Effort:
        from tessel_core.cpsat import Effort

        seconds = share * self._config.time_limit
        return Effort(seconds, self._config.workers, self._config.seed, repeatable=self._config.workers == 1)

    def _take(self, stage_of: tuple[int, ...]) -> None:
        """Keep the given stages if they fit in memory and have a smaller largest load."""
        load = float(self._task.loads(stage_of).max())
        if load < self.load and self._task.fits(stage_of):
            self.best, self.load = stage_of, load
            self._report()

    def _report(self) -> None:
        load = None if self.best is None else Fraction(self.load)
        self._control.report("layout", load, Fraction(self.bound))

    def _ask(self, units: Units, share: float) -> None:
        """Solve one model, with the best layout as a hint and the known bound."""
        from tessel_core.placement.layout_model import LayoutModel

        model = LayoutModel(self._task, self._upper, units)
        model.bound_from_below(self.bound)
        if self.best is not None:
            model.hint(self.best)
        found = model.solve(self._effort(share), self._control)
        if found.stage_of is not None:
            self._take(found.stage_of)
        self._learn(found.bound)

    def _learn(self, bound: float) -> None:
        """Store a lower bound on the largest load. A bound of infinity means that no layout fits.

        Rounding in a model may exclude a known layout, so the stored bound is at most the load of the best layout.
        """
        self.impossible = self.best is None and math.isinf(bound)
        if not self.impossible:
            self.bound = min(max(self.bound, bound), self.load)
            self._report()

    def _even_out(self, load: float, counts: Counts | None = None) -> None:
        """Search for a layout with loads up to `load` and stages of similar times.

        A pipeline waits for its longest stage. With `counts`, the layout must have these numbers of groups of each kind
        on each device, which may be impossible.
        """
        from tessel_core.placement.layout_model import LayoutModel, Units

        model = LayoutModel(self._task, load, Units.COARSE)
        model.even_out(load)
        if counts is not None:
            model.fix_counts(counts)
        elif self.best is not None:
            model.hint(self.best)
        stage_of = model.solve(self._effort(_EVEN_SHARE).within(_MAX_EVEN_SECONDS), self._control).stage_of
        if stage_of is None or not self._task.fits(stage_of):
            return
        reached = float(self._task.loads(stage_of).max())
        if reached <= min(self.load, load) * (1 + EQUAL_LOADS):
            self.best, self.load = stage_of, reached
            self._report()

    def least_room(self, control: Control) -> tuple[tuple[int, ...], float]:
        """Return the layout whose fullest device holds the fewest bytes found, and a lower bound on these bytes.

        The COARSE model is solved first, then the FINE model.
        """
        from tessel_core.placement.layout_model import LayoutModel, Units

        best, bound = self.start, 0.0
        for units, share in ((Units.COARSE, _COARSE_SHARE), (Units.FINE, 1.0)):
            held = float(self._task.held(best).max())
            model = LayoutModel(self._task, highest_load(self._task.pipeline), units, held)
            model.hint(best)
            found = model.solve(self._effort(1.0), control.part(share * _ROOM_SECONDS))
            bound = max(bound, found.bound)
            if found.stage_of is not None and self._task.held(found.stage_of).max() < held:
                best = found.stage_of
        return best, bound


LAYOUT = Placer(
    "layout",
    "Layout",
    "Integer programs over the cuts of a chain, with a bound from the numbers of equal layers per device",
    solve,
    LayoutConfig,
    objectives=(THROUGHPUT,),
    contiguous=(True,),
    several_stages=True,
)
