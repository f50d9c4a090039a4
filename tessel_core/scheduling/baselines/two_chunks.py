"""Two chunks a device, down the devices and up again, each with a split backward: the ground of ZB-V, V-Half, V-Min."""

from __future__ import annotations

from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.baselines.chain import Chain, find_chain


def find_two_chunks(plan: MicroBatchPlan) -> Chain | str:
    """The plan as a chain of 2p stages, of which s and 2p - 1 - s share a device, or why it is none."""
    chain = find_chain(plan)
    if isinstance(chain, str):
        return chain
    devices = len(chain.devices) // 2
    if chain.devices[:devices] != chain.devices[devices:][::-1] or len(set(chain.devices)) != devices:
        return "its stages do not go down the devices and up again, two on each"
    return chain if chain.split else "not every stage has its backward split into an input and a weight half"
