"""From a placement on to schedules: its micro-batch plan, and the joint search near it."""

from __future__ import annotations

from tessel_core.model import BlockKind, MicroBatchPlan, OperatorGraph
from tessel_core.planning import JointConfig, JointQuestion, PlanOptions, kind_of, plan_of
from tessel_core.workbench.placing import Placing


def has_weight_gradients(graph: OperatorGraph) -> bool:
    """Whether some operators compute weight gradients only, so that they can be blocks of their own."""
    return any(kind_of(each, split_weights=True) is BlockKind.WEIGHT for each in graph.operators)


def planned(placing: Placing, *, split_weights: bool = False) -> MicroBatchPlan:
    """The micro-batch plan of the placement, of which there must be one.

    Raises InputError where the placement is no plan, such as for an operator without a device.
    """
    placement = placing.placement
    assert placement is not None
    return plan_of(placement, plan_options(placing, split_weights=split_weights))


def plan_source(placing: Placing) -> str:
    """Where the plan of the placement comes from, in a few words; there must be a graph."""
    assert placing.graph is not None
    where = placing.mesh.mesh.name if placing.on_mesh else f"{len(placing.devices)} devices"
    return f"placement of {placing.graph.graph.name} on {where}"


def joint_question(placing: Placing, config: JointConfig, *, split_weights: bool = False) -> JointQuestion:
    """The question of a joint search; InputError as for `Placing.problem`."""
    return JointQuestion(placing.problem, config, plan_options(placing, split_weights=split_weights))


def plan_options(placing: Placing, *, split_weights: bool = False) -> PlanOptions:
    """How the placement becomes a plan: what its operators' sizes hold follows from the costs."""
    return PlanOptions(placing.costs.in_flight if placing.on_mesh else 1, split_weights)
