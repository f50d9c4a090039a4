"""V-Half: a zero-bubble pipeline in a V, in half of 1F1B's memory."""

from __future__ import annotations

from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.baselines.building_block import repeated
from tessel_core.scheduling.baselines.chain import Chain
from tessel_core.scheduling.baselines.two_chunks import find_two_chunks
from tessel_core.scheduling.order import Run, published_order
from tessel_core.scheduling.problem import Scheduler


def objection(plan: MicroBatchPlan) -> str:
    """V-Half needs two chunks a device in a V, with a split backward."""
    chain = find_two_chunks(plan)
    return "" if isinstance(chain, Chain) else f"V-Half needs two stages a device in a V, but {chain}"


def order(plan: MicroBatchPlan, micro_batches: int) -> list[Run]:
    """In the building block, forward passes of the first chunks and input halves of the second ones take two slots a
    hop, the others one, so that p/2 + 1 micro-batches' activations suffice [Qi 2024, arXiv 2405.15362]."""
    chain = find_two_chunks(plan)
    assert isinstance(chain, Chain)
    p = len(chain.devices) // 2
    pause = 0 if p % 2 else 3  # without which an even number of devices would have two passes in a slot
    first = [(2 * s, 6 * p - 2 + pause - s) for s in range(p)]
    second = [(p - 1 + s, 7 * p - 3 + pause - 2 * s) for s in range(p, 2 * p)]
    return repeated(plan, chain, first + second, micro_batches, most_held=2 * ((p + 2) // 2))


V_HALF = Scheduler(
    "v-half",
    "V-Half",
    "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024, arXiv 2405.15362",
    published_order(order),
    objection=objection,
)
