"""Build the micro-batch plan of a placement, and the question of a joint search."""

from __future__ import annotations

from tessel_core.errors import InputError
from tessel_core.model import BlockKind, MicroBatchPlan, OperatorGraph
from tessel_core.networks.graphs.backward import with_weights_apart
from tessel_core.planning import JointConfig, JointQuestion, kind_of, plan_of
from tessel_core.scheduling.schedulers import Scheduler
from tessel_core.workbench.placing import Placing


def has_weight_gradients(graph: OperatorGraph) -> bool:
    """Return whether weight gradients are separate operators, or can be separated from input gradients."""
    split = with_weights_apart(graph)
    return any(kind_of(each, split_weights=True) is BlockKind.WEIGHT for each in split.operators)


def planned(placing: Placing, *, split_weights: bool = False) -> MicroBatchPlan:
    """Return the micro-batch plan of the placement.

    Something must be placed. Raises InputError if no plan is possible, for example because an operator has no device.
    """
    placement = placing.placement
    assert placement is not None
    return plan_of(placement, split_weights=split_weights)


def split_for(
    placing: Placing, plan: MicroBatchPlan, scheduler: Scheduler, micro_batches: int
) -> MicroBatchPlan | None:
    """Return the placement's plan with separate weight gradients, for a scheduler that needs them.

    None if `plan` already has them, is not the placement's plan, or the scheduler would still not apply.
    """
    halves = any(block.kind is BlockKind.WEIGHT for block in plan.blocks)
    suits = not scheduler.splits and not scheduler.why_not(plan, micro_batches)
    if halves or suits or placing.graph is None or placing.placement is None:
        return None
    try:
        if planned(placing) != plan:
            return None
        found = planned(placing, split_weights=True)
    except InputError:
        return None
    return None if scheduler.why_not(found, micro_batches) else found


def plan_source(placing: Placing) -> str:
    """Return the origin of the placement's plan in a few words. A graph must be open."""
    assert placing.graph is not None
    where = placing.mesh.mesh.name if placing.on_mesh else f"{len(placing.devices)} devices"
    where += f" in groups of {placing.tensor}" if placing.tensor > 1 else ""
    return f"placement of {placing.graph.graph.name} on {where}"


def halves_source(placing: Placing) -> str:
    """Return the origin of the placement's plan with separate weight gradients, in a few words."""
    return f"{plan_source(placing)}, backward in halves"


def joint_question(placing: Placing, config: JointConfig, *, split_weights: bool = False) -> JointQuestion:
    """Return the question of a joint search. Raises InputError as `Placing.problem` does."""
    return JointQuestion(placing.problem, config, split_weights=split_weights)
