"""Chimera: two 1F1B pipelines in opposite directions that fill each other's idle time."""

from __future__ import annotations

from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.baselines.chain import Chain, find_even_chains
from tessel_core.scheduling.baselines.one_f_one_b import slots_of_1f1b
from tessel_core.scheduling.order import Run, published


def _order(plan: MicroBatchPlan, chains: tuple[Chain, Chain], micro_batches: int) -> list[Run]:
    """Return the order in which both directions run the slots of 1F1B.

    The slots of the two directions never collide on an even number p of devices [Li 2021, figure 3]. A unit is p/2
    micro-batches in each direction, which have work for 2p slots. Each unit starts 2p slots after the unit before it
    (direct concatenation). A micro-batch of the plan is one micro-batch in each direction.
    """
    devices = len(chains[0].devices)
    rank = {b: i for i, b in enumerate(plan.topological_order)}
    slots = [row for chain in chains for row in slots_of_1f1b(chain, micro_batches)]
    # In 1F1B, each micro-batch starts 2 slots after the one before, so units of p/2 micro-batches start p slots apart.
    # Add p slots.
    table = sorted((slot + devices * (m // (devices // 2)), rank[b], m, b) for slot, b, m in slots)
    return [(b, m) for _, _, m, b in table]


CHIMERA = published(
    "chimera",
    "Chimera",
    "Li and Hoefler, Chimera, SC 2021, arXiv 2107.06925",
    lambda plan: find_even_chains(plan, "Chimera", "Chimera fits two directions together, so the number of devices"),
    _order,
)
