"""A recommended strategy looked at closely: its stages, its schedule, and what fills the fullest device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tessel_core.model import MicroBatchPlan, Schedule
from tessel_core.scheduling import solve_schedule
from tessel_core.strategies.block_engine import BlockEngine
from tessel_core.strategies.blocks import BlockTable
from tessel_core.strategies.evaluation import Configuration
from tessel_core.strategies.recommendation import Candidate, Question
from tessel_core.strategies.stage_plan import stage_plan_of


@dataclass(frozen=True)
class Look:
    """What a strategy is made of."""

    plan: MicroBatchPlan | None
    """The stages as blocks; None where there is one stage."""
    schedule: Schedule | None
    """The plan in the strategy's order."""
    fullest: int
    """The device of the pipeline that holds most."""
    memory_parts: Mapping[str, int]
    """Bytes of that device at its fullest moment, by what they are."""


def look_at(question: Question, candidate: Candidate) -> Look:
    """The stages of a candidate, its schedule and its memory."""
    strategy, peaks = candidate.strategy, candidate.outcome.peaks
    table = BlockTable(question.family, question.spec, question.mesh)
    staged = BlockEngine(table).staged(Configuration(question.spec, strategy))
    fullest = max(range(len(peaks)), key=peaks.__getitem__)
    mine = [stage for s, stage in enumerate(staged.stages) if staged.device_of[s] == fullest]
    weights, gradients, state = (round(sum(stage.parts[i] for stage in mine)) for i in range(3))
    rest = peaks[fullest] - weights - gradients - state
    parts = {"weights": weights, "gradients": gradients, "optimizer": state, "activations": max(0, rest)}
    if strategy.stages == 1:
        return Look(None, None, fullest, parts)
    name = f"{question.family.name} P{strategy.pipeline} T{strategy.tensor} D{strategy.data}"
    plan = stage_plan_of(name, staged, table.wiring(strategy).ranks, question.mesh)
    report = solve_schedule(strategy.schedule, plan, strategy.micro_batches)
    return Look(plan, report.drawable, fullest, parts)
