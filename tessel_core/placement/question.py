"""What is asked of a placer, as one value: equal questions have equal answers, so runs are found by it."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.control import Control
from tessel_core.model import PlacementReport
from tessel_core.placement.problem import PlacementProblem
from tessel_core.placement.table import find_placer, solve_placement


@dataclass(frozen=True, slots=True)
class PlacementQuestion:
    """One search, complete: nothing else decides its answer but the time the machine takes."""

    placer: str
    problem: PlacementProblem
    config: object

    @property
    def title(self) -> str:
        """The placer as people write it."""
        return find_placer(self.placer).title

    def solve(self, control: Control) -> PlacementReport:
        """The answer, as `solve_placement` gives it."""
        return solve_placement(self.placer, self.problem, self.config, control)
