"""A placement that a person made, judged as the others are."""

from __future__ import annotations

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.model import FORWARD_BACKWARD, THROUGHPUT, PlacementReport
from tessel_core.placement.baselines.judged import judged
from tessel_core.placement.placers import Placer
from tessel_core.placement.problem import PlacementProblem
from tessel_core.registry import NoOptions


def solve(problem: PlacementProblem, config: NoOptions, control: Control) -> PlacementReport:
    """The problem's placement by hand.

    Raises
    ------
    InputError
        Where the problem has none.
    """
    if problem.by_hand is None:
        raise InputError("placer expert", "judges a placement made by hand, and there is none")
    return judged(problem, problem.placement(problem.by_hand))


EXPERT = Placer(
    "expert",
    "By hand",
    "A split made by a person, such as the human experts' of Tarnawski et al., NeurIPS 2020",
    solve,
    objectives=(THROUGHPUT, FORWARD_BACKWARD),
    contiguous=(True, False),
    judges=True,
)
