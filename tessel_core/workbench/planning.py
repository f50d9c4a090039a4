"""From a placement on to schedules: its micro-batch plan, and the joint search near it."""

from __future__ import annotations

from tessel_core.errors import InputError
from tessel_core.model import BlockKind, MicroBatchPlan, OperatorGraph
from tessel_core.networks.graphs.backward import with_weights_apart
from tessel_core.planning import JointConfig, JointQuestion, PlanOptions, kind_of, plan_of
from tessel_core.scheduling.schedulers import Scheduler
from tessel_core.workbench.placing import Placing


def has_weight_gradients(graph: OperatorGraph) -> bool:
    """Whether weight gradients can be blocks of their own: they are operators of their own, or can become so."""
    split = with_weights_apart(graph)
    return any(kind_of(each, split_weights=True) is BlockKind.WEIGHT for each in split.operators)


def planned(placing: Placing, *, split_weights: bool = False) -> MicroBatchPlan:
    """The micro-batch plan of the placement, of which there must be one.

    Raises InputError where the placement is no plan, such as for an operator without a device.
    """
    placement = placing.placement
    assert placement is not None
    return plan_of(placement, PlanOptions(split_weights))


def split_for(
    placing: Placing, plan: MicroBatchPlan, scheduler: Scheduler, micro_batches: int
) -> MicroBatchPlan | None:
    """The plan of the placement with its backward in halves, for a scheduler that needs them.

    None where `plan` is in halves already, is not that of the placement, or where halves do not help.
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
    """Where the plan of the placement comes from, in a few words; there must be a graph."""
    assert placing.graph is not None
    where = placing.mesh.mesh.name if placing.on_mesh else f"{len(placing.devices)} devices"
    where += f" in groups of {placing.tensor}" if placing.tensor > 1 else ""
    return f"placement of {placing.graph.graph.name} on {where}"


def halves_source(placing: Placing) -> str:
    """As `plan_source`, for a plan with its backward in halves."""
    return f"{plan_source(placing)}, backward in halves"


def joint_question(placing: Placing, config: JointConfig, *, split_weights: bool = False) -> JointQuestion:
    """The question of a joint search; InputError as for `Placing.problem`."""
    return JointQuestion(placing.problem, config, PlanOptions(split_weights))
