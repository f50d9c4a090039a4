"""The placers for the latency of one sample.

A split gives each unit of operators a slot (one subgraph of one accelerator) or a host, which is a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tessel_core.control import Control
from tessel_core.model import LATENCY, PlacementReport
from tessel_core.options import Option, option
from tessel_core.placement.answer import answer, infeasible
from tessel_core.placement.latency.starts import best_start, critical_path, greedy_split
from tessel_core.placement.latency.task import LatencyTask, Slots
from tessel_core.placement.placers import Placer
from tessel_core.placement.problem import PlacementProblem
from tessel_core.placement.shortage import pins, too_large

_EQUAL = 1e-8
"""Objective and bound count as equal if they differ by less than this fraction, because the model rounds costs down."""
_START_SHARE = 0.6
"""Fraction of the time limit for finding a first placement, before CP-SAT improves it."""
_SOURCE = "Tarnawski et al., Efficient Algorithms for Device Placement of DNN Graph Operators, NeurIPS 2020"
_SUBGRAPHS = Option("Subgraphs", "Largest number of subgraphs per device, all in its memory at once", 1, 16)
_MAX_IDEALS = Option("Most cuts", "Largest number of possible cuts (ideals) in the dynamic program", 1_000, 1_000_000)
_TIME_LIMIT = Option("Time limit", "For the whole search", 0.1, 86_400, "s")
_SEED = Option("Seed", "Seed of the random choices", 0, 2**31 - 1)


@dataclass(frozen=True, slots=True)
class LatencyGreedyConfig:
    """Number of subgraphs that the problem allows per device. The greedy placer makes one subgraph per device."""

    subgraphs: int = option(1, _SUBGRAPHS)


@dataclass(frozen=True, slots=True)
class LatencyDpConfig:
    """Limits of the search by `sequential_splits`."""

    time_limit: float = option(60.0, _TIME_LIMIT)
    subgraphs: int = option(1, _SUBGRAPHS)
    most_ideals: int = option(50_000, _MAX_IDEALS)
    seed: int = option(0, _SEED)


@dataclass(frozen=True, slots=True)
class LatencyConfig:
    """Limits of the whole search."""

    time_limit: float = option(60.0, _TIME_LIMIT)
    subgraphs: int = option(1, _SUBGRAPHS)
    workers: int = option(2, Option("Workers", "Solver threads. With 1, the same seed gives the same answer", 1, 64))
    most_ideals: int = option(50_000, _MAX_IDEALS)
    seed: int = option(0, _SEED)


def solve_greedy(problem: PlacementProblem, config: LatencyGreedyConfig, control: Control) -> PlacementReport:
    """Return the report on the split that fills accelerators one after another along the flow."""
    task = LatencyTask(problem, config.subgraphs)
    slots = greedy_split(task)
    if slots is None:
        return infeasible(problem, "filling the accelerators along the flow leaves operators that no host can run")
    return _answer(task, slots, critical_path(task), control, "nothing is proved")


def solve_sequential(problem: PlacementProblem, config: LatencyDpConfig, control: Control) -> PlacementReport:
    """Return the report on the split with the least sum of stage times, or on a simpler split of lower latency."""
    task = LatencyTask(problem, config.subgraphs)
    slots = best_start(task, config.most_ideals, config.seed, control.part(config.time_limit))
    reason = "none of the splits that were tried is valid" if slots is None else "nothing is proved"
    return _answer(task, slots, critical_path(task), control, reason)


def solve(problem: PlacementProblem, config: LatencyConfig, control: Control) -> PlacementReport:
    """Return the report on the placement of least latency. CP-SAT improves the best placement of faster methods."""
    task, limited = LatencyTask(problem, config.subgraphs), control.part(config.time_limit)
    bound = critical_path(task)
    start = best_start(task, config.most_ideals, config.seed, limited.part(config.time_limit * _START_SHARE))
    if start is not None:
        limited.report("starts", Fraction(task.latency(start)), Fraction(bound))
    if limited.stopped:
        return _answer(task, start, bound, control, "the time limit came before the proof")
    from tessel_core.cpsat import Effort
    from tessel_core.placement.latency.search import least_memory, search

    effort = Effort(limited.remaining_s, config.workers, config.seed, repeatable=config.workers == 1)
    found = search(task, start, bound, effort, limited)
    if found.impossible:
        return infeasible(problem, _what_binds(task), least_memory(task, effort, limited))
    links = "the bound holds for the fastest link between any two devices"
    late = "the time limit came before the proof"
    reason = late if limited.stopped or task.has_equal_links else links
    return _answer(task, found.slots, found.bound, control, reason)


def _answer(task: LatencyTask, slots: Slots | None, bound: float, control: Control, reason: str) -> PlacementReport:
    placement = None if slots is None else task.placement(slots)
    return answer(task.problem, placement, bound, reason, control, equal=_EQUAL)


def _what_binds(task: LatencyTask) -> str:
    devices, pinned = task.problem.devices, pins(task.problem)
    for unit in range(len(task.units)):
        if all(row[unit] == float("inf") for row in task.time):
            return _too_large(task, unit)
    limits = sorted({each.memory_capacity for each in devices if each.memory_capacity is not None})
    count = f"{task.slots} subgraphs on {len(task.accelerators)} accelerators"
    if not limits:
        return f"{count} cannot take all operators that no host runs{pinned}"
    amounts = " and ".join(f"{each:,.0f}" for each in limits)
    return f"{count} of {amounts} bytes cannot take all operators that no host runs{pinned}"


def _too_large(task: LatencyTask, unit: int) -> str:
    problem, members = task.problem, task.units[unit]
    allowed = problem.allowed_on[members[0]]
    open_to = [each for each in problem.accelerators if allowed is None or each.name in allowed] or problem.devices
    largest = max(open_to, key=lambda each: each.memory_capacity or 0.0)
    return f"{too_large(problem, members, task.memory[unit], largest)}, and no host may run it"


LATENCY_GREEDY = Placer(
    "latency-greedy",
    "Greedy for latency",
    f"{_SOURCE}, appendix F",
    solve_greedy,
    LatencyGreedyConfig,
    objectives=(LATENCY,),
    contiguous=(True,),
)
LATENCY_DP = Placer(
    "latency-dp",
    "Sequential program",
    f"Dynamic program over ideals (sets with all that they need) as in {_SOURCE}, for the sum of stage times",
    solve_sequential,
    LatencyDpConfig,
    objectives=(LATENCY,),
    contiguous=(True,),
)
LATENCY_CP_SAT = Placer(
    "latency-cp-sat",
    "Least latency",
    f"Integer program of {_SOURCE}, as a model of subgraphs in the order of their starts",
    solve,
    LatencyConfig,
    objectives=(LATENCY,),
    contiguous=(True,),
)
