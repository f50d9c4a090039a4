"""1F1B: after a warmup, each stage alternates one forward and one backward."""

from __future__ import annotations

from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.baselines.chain import Chain, find_straight_chain, slots_of_1f1b
from tessel_core.scheduling.order import Run, published_order
from tessel_core.scheduling.problem import Scheduler


def objection(plan: MicroBatchPlan) -> str:
    """1F1B needs a chain of stages, each on a device of its own."""
    chain = find_straight_chain(plan)
    return "" if isinstance(chain, Chain) else f"1F1B needs a chain of single-device stages, but {chain}"


def order(plan: MicroBatchPlan, micro_batches: int) -> list[Run]:
    """The slots of 1F1B's table in order; a split backward's weight half follows its input half at once."""
    chain = find_straight_chain(plan)
    assert isinstance(chain, Chain)
    rank = {b: i for i, b in enumerate(plan.topological_order)}
    table = sorted(slots_of_1f1b(chain, micro_batches), key=lambda row: (row[0], rank[row[1]]))
    return [(b, m) for _, b, m in table]


ONE_F_ONE_B = Scheduler(
    "1f1b",
    "1F1B",
    "Narayanan et al., PipeDream, SOSP 2019; Megatron-LM, SC 2021, arXiv 2104.04473",
    published_order(order),
    objection=objection,
)
