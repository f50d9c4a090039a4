"""ZB-H2: almost twice 1F1B's forward passes ahead, so that no stage idles between its first and its last run."""

from __future__ import annotations

from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.baselines.chain import Chain
from tessel_core.scheduling.baselines.late_weights import find_split_chain, order_with_late_weights
from tessel_core.scheduling.order import Run, published_order
from tessel_core.scheduling.problem import Scheduler


def objection(plan: MicroBatchPlan) -> str:
    """ZB-H2 needs a chain of stages with a split backward."""
    chain = find_split_chain(plan)
    return "" if isinstance(chain, Chain) else f"ZB-H2 needs a chain of stages with a split backward, but {chain}"


def order(plan: MicroBatchPlan, micro_batches: int) -> list[Run]:
    """Of p stages, stage s begins with 2(p - s) - 1 forward passes and ends with 2s + 1 weight halves, which makes the
    schedule a parallelogram and holds 2p - 1 activations [Qi 2024, section 2.2].

    It needs as many micro-batches; with fewer it goes as far from ZB-H1 as they allow.
    """
    chain = find_split_chain(plan)
    assert isinstance(chain, Chain)
    stages = len(chain.devices)
    return order_with_late_weights(plan, chain, micro_batches, extra=min(stages - 1, max(0, micro_batches - stages)))


ZB_H2 = Scheduler(
    "zb-h2",
    "ZB-H2",
    "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, arXiv 2401.10241",
    published_order(order),
    objection=objection,
)
