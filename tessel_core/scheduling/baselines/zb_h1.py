"""ZB-H1: 1F1B whose weight halves are put off to where stages would idle, in 1F1B's memory."""

from __future__ import annotations

from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.baselines.chain import Chain
from tessel_core.scheduling.baselines.late_weights import find_split_chain, order_with_late_weights
from tessel_core.scheduling.order import Run, published_order
from tessel_core.scheduling.problem import Scheduler


def objection(plan: MicroBatchPlan) -> str:
    """ZB-H1 needs a chain of stages with a split backward."""
    chain = find_split_chain(plan)
    return "" if isinstance(chain, Chain) else f"ZB-H1 needs a chain of stages with a split backward, but {chain}"


def order(plan: MicroBatchPlan, micro_batches: int) -> list[Run]:
    """1F1B's forward passes and input halves; weight halves start late enough for every stage to hold as many
    activations as the first one [Qi 2024, section 2.1]."""
    chain = find_split_chain(plan)
    assert isinstance(chain, Chain)
    return order_with_late_weights(plan, chain, micro_batches, extra=0)


ZB_H1 = Scheduler(
    "zb-h1",
    "ZB-H1",
    "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, arXiv 2401.10241",
    published_order(order),
    objection=objection,
)
