"""PipeDream's order as DistIR simulates it: forward and backward in turn, without a limit on memory."""

from __future__ import annotations

from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.baselines.chain import Chain, find_straight_chain
from tessel_core.scheduling.order import Run, published


def _find_return_chain(plan: MicroBatchPlan) -> Chain | str:
    """Return the chain of stages with backward blocks, each stage on its own device, or one sentence on why not."""
    chain = find_straight_chain(plan)
    if not isinstance(chain, Chain):
        return f"PipeDream's order needs a chain of stages, but {chain}"
    return chain if chain.backward else "PipeDream's order needs backward blocks, but the plan has none"


def _order(plan: MicroBatchPlan, chain: Chain, micro_batches: int) -> list[Run]:
    """Return the order of DistIR's simulation in unit time steps.

    In each time step, a stage switches between forward and backward, or repeats the last kind if the other kind is not
    ready. The lowest micro-batch comes first. Passes that become ready in a time step run in the next step at the
    earliest. On the first stage, all forward passes are ready at once. So, of N micro-batches, stage s of p stages
    holds at most min(N, 2 (p - s) - 1) at the same time.
    """
    last = len(chain.devices) - 1
    ready: list[dict[bool, list[int]]] = [{False: [], True: []} for _ in chain.devices]
    ready[0][False] = list(range(micro_batches))
    went_back = [True] * len(chain.devices)
    runs = list[Run]()
    while any(each[False] or each[True] for each in ready):
        soon = list[tuple[int, bool, int]]()
        for stage, waiting in enumerate(ready):
            if not waiting[False] and not waiting[True]:
                continue
            back = not went_back[stage] if waiting[not went_back[stage]] else went_back[stage]
            micro_batch = min(waiting[back])
            waiting[back].remove(micro_batch)
            went_back[stage] = back
            blocks = chain.whole_backward(stage) if back else [chain.forward[stage]]
            runs += [(b, micro_batch) for b in blocks]
            if not back and stage == last:
                soon.append((stage, True, micro_batch))
            elif not back:
                soon.append((stage + 1, False, micro_batch))
            elif stage:
                soon.append((stage - 1, True, micro_batch))
        for stage, back, micro_batch in soon:
            ready[stage][back].append(micro_batch)
    return runs


PIPEDREAM = published(
    "pipedream",
    "PipeDream's order",
    "Narayanan et al., PipeDream, SOSP 2019, as in Santhanam et al., DistIR, arXiv 2111.05426",
    _find_return_chain,
    _order,
)
