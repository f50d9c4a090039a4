"""Level 14: find the fastest strategy for a mesh."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from tessel_core.learning.level import Level
from tessel_core.learning.task import Facts, Knob, StopResult, least
from tessel_core.units import counted, show_memory

if TYPE_CHECKING:  # imported here because pages load faster without the simulation
    from tessel_core.strategies.grid import GridResult

_MODEL, _MESH, _BATCH = "gpt3-13b", "h200-16", 64
_DEGREES, _PARTS = (1, 2, 4, 8, 16), (1, 2, 4, 8, 16, 32, 64)
_STOPS = ((16, 1, 1), (1, 1, 16), (2, 8, 1), (8, 2, 1), (4, 2, 2), (2, 2, 4))
"""Choices of the player: degrees of data, tensor and pipeline parallelism, whose product is sixteen devices."""
_NEVER = Fraction(10**9)
"""Step time in seconds that stands for a strategy that does not fit."""


@lru_cache(maxsize=1)
def grid() -> GridResult:
    """Simulate all combinations of degrees and numbers of micro-batches on the mesh."""
    from tessel_core.samples import load_mesh
    from tessel_core.strategies.families import find_family
    from tessel_core.strategies.grid import Grid, evaluate_grid, ranges

    sizes = ranges(size=(_MODEL,), batch=(_BATCH,))
    asked = Grid(sizes, data=_DEGREES, tensor=_DEGREES, pipeline=_DEGREES, micro_batches=_PARTS)
    return evaluate_grid(find_family("gpt"), asked, load_mesh(_MESH))


def best_of(degrees: tuple[int, int, int]) -> int | None:
    """Return the fastest configuration of these degrees that fits, over all numbers of micro-batches.

    None if none fits.
    """
    return next((i for i in grid().ranked("throughput") if _degrees(i) == degrees), None)


def winner() -> int:
    """Return the position of the fastest configuration of the grid."""
    return grid().ranked("throughput")[0]


def _degrees(number: int) -> tuple[int, int, int]:
    strategy = grid().configurations[number].strategy
    return strategy.data, strategy.tensor, strategy.pipeline


def _called(degrees: tuple[int, int, int]) -> str:
    names = [
        f"{what} {degree}" for what, degree in zip(("data", "tensor", "pipeline"), degrees, strict=True) if degree > 1
    ]
    return " × ".join(names)


def _step(number: int) -> str:
    """Format the step time of a configuration with three decimals, because strategies differ in the third."""
    return f"{grid().outcomes[number].latency:.3f} s"


def _held(degrees: tuple[int, int, int]) -> str:
    """Format the smallest peak memory that a configuration of these degrees needs."""
    peaks = [max(each.peaks) for i, each in enumerate(grid().outcomes) if _degrees(i) == degrees and each.peaks]
    return show_memory(min(peaks), "B")


def _outcome(stop: int) -> StopResult:
    degrees = _STOPS[stop]
    number = best_of(degrees)
    if number is None:
        return StopResult(
            _NEVER, "does not fit", f"{_called(degrees)} does not fit: a device would hold {_held(degrees)}."
        )
    found, parts = grid().outcomes[number], grid().configurations[number].strategy.micro_batches
    step, peak = _step(number), show_memory(max(found.peaks), "B")
    many = counted(parts, "micro-batch")
    says = f"{_called(degrees)}: {step} per step with {many}, its best number; the fullest device holds {peak}."
    return StopResult(Fraction(found.latency), step, says)


def _task() -> Knob:
    return Knob("Strategy", tuple(map(_called, _STOPS)), _outcome, least, "Time of a step")


def _facts() -> Facts:
    best = winner()
    times = {degrees: number for degrees in _STOPS if (number := best_of(degrees)) is not None}
    slow = max(times.values(), key=lambda i: grid().outcomes[i].latency)
    return {
        "best": _called(_degrees(best)),
        "time": _step(best),
        "slow": _called(_degrees(slow)),
        "worst": _step(slow),
        "pipeline": _step(times[1, 1, 16]),
        "held": _held((16, 1, 1)),
        "capacity": show_memory(grid().mesh.devices[0].memory_capacity or 0, "B"),
        "count": f"{len(grid()):,}",
    }


LEVEL = Level(
    number=14,
    title="Who wins on your machine?",
    idea="Copies of the network (data), operators shared by devices (tensor) and stages (pipeline) can be combined.",
    asks="Train GPT-3 13B on two nodes of eight H200s with 64 sequences per step. Which strategy is fastest in "
    "simulation?",
    task=_task,
    hints=(
        "Each copy holds all weights and their optimizer state. Does that fit?",
        "Tensor parallelism communicates in every layer: keep it inside a node and over few devices.",
        "Pipelines communicate little, but they fill and drain.",
    ),
    why=(
        "Sixteen copies would need {held} on a device that has {capacity}.",
        "{best} takes {time} per step, the least of all {count} configurations; {slow} takes {worst}.",
        "A pipeline of sixteen stages takes {pipeline}. On another mesh, or with another batch, it may win.",
    ),
    facts=_facts,
    source="Santhanam et al., DistIR, arXiv 2111.05426",
)
