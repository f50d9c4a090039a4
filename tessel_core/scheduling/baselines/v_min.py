"""V-Min: a pipeline in a V, in a third of 1F1B's memory."""

from __future__ import annotations

from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.baselines.building_block import repeated
from tessel_core.scheduling.baselines.chain import Chain
from tessel_core.scheduling.baselines.two_chunks import find_two_chunks
from tessel_core.scheduling.order import Run, published_order
from tessel_core.scheduling.problem import Scheduler


def objection(plan: MicroBatchPlan) -> str:
    """V-Min needs two chunks a device in a V, with a split backward."""
    chain = find_two_chunks(plan)
    return "" if isinstance(chain, Chain) else f"V-Min needs two stages a device in a V, but {chain}"


def order(plan: MicroBatchPlan, micro_batches: int) -> list[Run]:
    """In the building block every pass takes one slot a hop, so that p/3 + 4/3 micro-batches' activations suffice
    [Qi 2024, arXiv 2405.15362]."""
    chain = find_two_chunks(plan)
    assert isinstance(chain, Chain)
    p = len(chain.devices) // 2
    pause = 0 if p % 3 else 2  # without which a multiple of three devices would have two passes in a slot
    block = [(s, 4 * p - 1 + pause - s) for s in range(2 * p)]
    return repeated(plan, chain, block, micro_batches, most_held=2 * ((p + 4) // 3))


V_MIN = Scheduler(
    "v-min",
    "V-Min",
    "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024, arXiv 2405.15362",
    published_order(order),
    objection=objection,
)
