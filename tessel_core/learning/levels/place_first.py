"""Level 13: choose a placement before the order."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from tessel_core.learning.level import Level
from tessel_core.learning.solved import drawn, searched
from tessel_core.learning.task import Facts, Knob, StopResult, least
from tessel_core.model import (
    Block,
    BlockKind,
    Dependency,
    DevicePool,
    DeviceTime,
    Edge,
    MicroBatchPlan,
    Operator,
    OperatorGraph,
    PlacementReport,
    PlanDevice,
)

_LAYERS = (1, 2, 3, 2, 4, 2, 3, 7)
"""Steps of each layer's forward pass; its backward pass takes twice as long."""
_BACKWARD, _MICRO_BATCHES = 2, 8


def cut_plan(cut: int) -> MicroBatchPlan:
    """Return the plan with the first `cut` layers on one device and the others on the other device."""
    sums = sum(_LAYERS[:cut]), sum(_LAYERS[cut:])
    forward = [Block(f"F{d}", BlockKind.FORWARD, (d,), work, 1) for d, work in enumerate(sums)]
    backward = [Block(f"B{d}", BlockKind.BACKWARD, (d,), _BACKWARD * work, -1) for d, work in enumerate(sums)]
    chain = (*forward, *reversed(backward))
    links = tuple(Dependency(before.name, after.name) for before, after in pairwise(chain))
    return MicroBatchPlan(f"cut after {cut}", (PlanDevice("gpu0", 4), PlanDevice("gpu1", 4)), chain, links)


def proved() -> PlacementReport:
    """Return the report of the placement search on two devices."""
    from tessel_core.placement import solve_placement
    from tessel_core.placement.problem import placement_problem

    names = [f"layer {i + 1}" for i in range(len(_LAYERS))]
    times = ((1 + _BACKWARD) * work for work in _LAYERS)
    operators = tuple(Operator(name, times=(DeviceTime("gpu", time),)) for name, time in zip(names, times, strict=True))
    graph = OperatorGraph("eight layers", operators, tuple(Edge(*each) for each in pairwise(names)))
    return solve_placement("dp", placement_problem(graph, DevicePool(2)))


def period(cut: int) -> Fraction:
    """Return the period that a search finds, in steps per micro-batch."""
    found = searched(cut_plan(cut), _MICRO_BATCHES).period_per_micro_batch
    assert found is not None
    return found


def _outcome(stop: int) -> StopResult:
    cut = stop + 1
    works = cut_plan(cut).work
    says = f"Cut after layer {cut}, the devices work {works[0]} and {works[1]} steps: {period(cut)} per micro-batch."
    schedule = searched(cut_plan(cut), _MICRO_BATCHES).drawable
    assert schedule is not None
    return StopResult(period(cut), f"{period(cut)} steps", says, ((f"Cut after layer {cut}", schedule),))


def _task() -> Knob:
    stops = tuple(str(cut) for cut in range(1, len(_LAYERS)))
    return Knob("Cut after layer", stops, _outcome, least, "Time per micro-batch")


def _facts() -> Facts:
    periods = [period(cut) for cut in range(1, len(_LAYERS))]
    half = len(_LAYERS) // 2
    best = min(periods)
    slow = drawn("1f1b", cut_plan(half), _MICRO_BATCHES)
    return {
        "half": str(half),
        "even": str(periods[half - 1]),
        "best": str(best),
        "cut": str(periods.index(best) + 1),
        "objective": f"{float(proved().objective or 0):g}",
        "busiest": str(slow.plan.busiest_work),
    }


LEVEL = Level(
    number=13,
    title="Place before you schedule",
    idea=f"Eight layers take {', '.join(map(str, _LAYERS))} steps forward, and twice as long backward, on two devices.",
    asks="Move the cut between the two devices. After which layer is the time per micro-batch shortest?",
    task=_task,
    hints=(
        "The slower device decides: no order is faster than its work per micro-batch.",
        "The same number of layers on both devices is not the same work.",
    ),
    why=(
        "Cut after layer {half}, one device works {busiest} steps; no order takes less than {even} per micro-batch.",
        "Cut after layer {cut}, it is {best}, with the same order.",
        "The placement search proves that no cut is below {objective}: place first, then schedule.",
    ),
    facts=_facts,
    source="Tarnawski et al., Efficient Algorithms for Device Placement, NeurIPS 2020, arXiv 2006.16423",
)
