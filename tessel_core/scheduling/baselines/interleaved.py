"""Interleaved 1F1B: 1F1B with several stages per device, so that the pipeline fills in shorter steps."""

from __future__ import annotations

from itertools import zip_longest

from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.baselines.chain import Chain, find_chain
from tessel_core.scheduling.order import Run, merge_device_orders, numbered_runs, published


def _find_loop(plan: MicroBatchPlan) -> Chain | str:
    """Return the chain of stages if it loops over the devices at least twice, or one sentence on why not."""
    chain = find_chain(plan)
    if isinstance(chain, str):
        return f"interleaved 1F1B needs a chain of stages, but {chain}"
    if _rounds(chain) < 2:
        return "interleaved 1F1B needs a chain of stages that loops over the devices at least twice, in the same order"
    return chain


def _count_objection(plan: MicroBatchPlan, micro_batches: int) -> str:
    """Return why the micro-batches cannot be grouped by the number of devices, or an empty string if they can."""
    chain = find_chain(plan)
    assert isinstance(chain, Chain)
    group = len(set(chain.devices))
    needs = f"interleaved 1F1B runs micro-batches in groups of {group}, as many as there are devices"
    return f"{needs}, and {micro_batches} is not a multiple of {group}" if micro_batches % group else ""


def _rounds(chain: Chain) -> int:
    """Return how often the chain loops over its devices, always in the same order, or 0 if it does not."""
    devices = len(set(chain.devices))
    rounds = len(chain.devices) // devices
    return rounds if chain.devices == chain.devices[:devices] * rounds else 0


def _order(plan: MicroBatchPlan, chain: Chain, micro_batches: int) -> list[Run]:
    """Return the order of interleaved 1F1B on p devices with v stages each.

    The forward passes of p micro-batches run on a device's first stage, then on its second stage, and so on. Backward
    passes run in the reverse order of stages. Device d runs 2(p - 1 - d) + (v - 1)p forward passes before its first
    backward pass [Narayanan 2021, figure 4 below, section 2.2].
    """
    rounds, p = _rounds(chain), len(set(chain.devices))
    turns = [turn for _ in range(micro_batches // p) for turn in range(rounds) for _ in range(p)]
    orders = []
    for d in range(p):
        ahead = 2 * (p - 1 - d) + (rounds - 1) * p
        blocks = [chain.forward[turn * p + d] for turn in turns[:ahead]]
        for forward, backward in zip_longest(turns[ahead:], turns):
            blocks += [] if forward is None else [chain.forward[forward * p + d]]
            blocks += chain.whole_backward((rounds - 1 - backward) * p + d) if chain.backward else []
        orders.append(numbered_runs(blocks, micro_batches))
    return merge_device_orders(plan, orders)


INTERLEAVED = published(
    "interleaved",
    "Interleaved 1F1B",
    "Narayanan et al., Megatron-LM, SC 2021, arXiv 2104.04473",
    _find_loop,
    _order,
    count_objection=_count_objection,
)
