"""Details of a recommended strategy: its stages, its schedule, and the memory by kind of its fullest device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tessel_core.model import MicroBatchPlan, Schedule
from tessel_core.scheduling import solve_schedule
from tessel_core.strategies.block_engine import BlockEngine, Staged
from tessel_core.strategies.blocks import BlockTable
from tessel_core.strategies.evaluation import Configuration
from tessel_core.strategies.recommendation import Candidate, Question
from tessel_core.strategies.stage_plan import stage_plan_of


@dataclass(frozen=True)
class Look:
    """Details of a strategy."""

    plan: MicroBatchPlan | None
    """The stages as blocks of a micro-batch plan. None if there is only one stage."""
    schedule: Schedule | None
    """Schedule of the plan in the order of the strategy. None if there is no plan."""
    fullest: int
    """Position in the pipeline whose devices have the largest peak memory."""
    memory_parts: Mapping[str, int]
    """Peak memory of that device in bytes, by kind: weights, gradients, optimizer state and activations."""


def look_at(question: Question, candidate: Candidate, table: BlockTable | None = None) -> Look:
    """Return the stages of a candidate, its schedule and its memory. `table` may have the blocks of the question."""
    strategy, peaks = candidate.strategy, candidate.outcome.peaks
    table = table or BlockTable(question.family, question.spec, question.mesh)
    staged = BlockEngine(table).staged(Configuration(question.spec, strategy))
    fullest = max(range(len(peaks)), key=peaks.__getitem__)
    mine = [stage for s, stage in enumerate(staged.stages) if staged.device_of[s] == fullest]
    weights, gradients, state = (round(sum(stage.parts[i] for stage in mine)) for i in range(3))
    rest = peaks[fullest] - weights - gradients - state
    parts = {"weights": weights, "gradients": gradients, "optimizer": state, "activations": max(0, rest)}
    if strategy.stages == 1:
        return Look(None, None, fullest, parts)
    plan = plan_of_stages(staged, table)
    report = solve_schedule(strategy.schedule, plan, strategy.micro_batches)
    return Look(plan, report.drawable, fullest, parts)


def plan_of_stages(staged: Staged, table: BlockTable) -> MicroBatchPlan:
    """Return the stages of a strategy as a plan. Its name consists of the network and the degrees."""
    strategy = staged.asked.strategy
    name = f"{table.family.name} P{strategy.pipeline} T{strategy.tensor} D{strategy.data}"
    return stage_plan_of(name, staged, table.wiring(strategy).ranks, table.mesh)
