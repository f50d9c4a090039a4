"""Recognition of plans that are a chain of pipeline stages, or two chains in opposite directions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tessel_core.model import BlockKind, MicroBatchPlan
from tessel_core.scheduling.structure import independent_parts


@dataclass(frozen=True, slots=True)
class Chain:
    """The blocks of each pipeline stage. Stage s runs on device `devices[s]`, which may have other stages too.

    `forward`, `backward` and `weight` have one block index per stage. If stages are on disjoint groups of devices,
    `devices` has the first device of each group. `backward` is empty for inference. If the backward pass of stage s is
    split, `backward[s]` is its input half, which computes the gradients of inputs, and `weight[s]` is its weight half,
    which computes the gradients of weights. Otherwise `weight[s]` is None.
    """

    devices: tuple[int, ...]
    forward: tuple[int, ...]
    backward: tuple[int, ...]
    weight: tuple[int | None, ...]

    @property
    def straight(self) -> bool:
        """Whether every stage has its own device."""
        return len(set(self.devices)) == len(self.devices)

    @property
    def split(self) -> bool:
        """Whether each backward pass is split into two halves, for input gradients and for weight gradients."""
        return bool(self.weight) and None not in self.weight

    def whole_backward(self, stage: int) -> list[int]:
        """Return the backward block of `stage`, followed by its weight half if the backward pass is split."""
        return [b for b in (self.backward[stage], self.weight[stage]) if b is not None]


def find_chain(plan: MicroBatchPlan, blocks: Collection[int] | None = None) -> Chain | str:
    """Return `blocks` (by default all) as a chain of stages, or one sentence on why they are not a chain.

    Each stage is on one device, or on one of several disjoint groups of devices.
    """
    chosen = set(range(len(plan.blocks)) if blocks is None else blocks)
    kinds: dict[BlockKind, list[int]] = {kind: [] for kind in BlockKind}
    for b in plan.topological_order:
        if b in chosen:
            kinds[plan.blocks[b].kind].append(b)
    forward, backward, weight = (kinds[kind] for kind in (BlockKind.FORWARD, BlockKind.BACKWARD, BlockKind.WEIGHT))
    reason = (
        _why_not_single(plan, chosen)
        or _why_not_line(plan, forward)
        or _why_not_line(plan, backward)
        or _why_not_after(plan, forward, backward + weight)
        or _why_not_after(plan, backward + weight, weight)
        or ("" if forward else "it has no forward block")
    )
    if reason:
        return reason
    devices = tuple(plan.blocks[b].devices[0] for b in forward)
    if not backward and not weight:
        return Chain(devices, tuple(forward), (), ())
    if [plan.blocks[b].devices[0] for b in backward] != list(reversed(devices)):
        return "its backward blocks do not pass the forward blocks' devices in reverse"
    return _with_weights(plan, Chain(devices, tuple(forward), tuple(reversed(backward)), ()), weight)


def find_straight_chain(plan: MicroBatchPlan, blocks: Collection[int] | None = None) -> Chain | str:
    """Return a chain, or a reason why there is none, as `find_chain` does. Every stage must have its own device."""
    chain = find_chain(plan, blocks)
    return "a device holds more than one forward block" if isinstance(chain, Chain) and not chain.straight else chain


Stages = tuple[tuple[int, tuple[int, ...]], ...]
"""The forward block of each stage, with its backward blocks in topological order. Each stage has its own device."""


def find_stages(plan: MicroBatchPlan) -> Stages | str:
    """Return the plan as a sequence of stages with one forward block each, or one sentence on why it is not one.

    A stage may have several backward blocks, with backward blocks of other stages in between. This happens if a stage
    ends inside a layer, so that tensors go back and forth between two stages.
    """
    kinds = [block.kind for block in plan.blocks]
    forward = [b for b in plan.topological_order if kinds[b] is BlockKind.FORWARD]
    others = [b for b in plan.topological_order if kinds[b] is not BlockKind.FORWARD]
    devices = [plan.blocks[b].devices for b in forward]
    reason = (
        _why_not_single(plan, range(len(plan.blocks)))
        or _why_not_line(plan, forward)
        or _why_not_after(plan, forward, others)
        or ("" if len(set(devices)) == len(devices) else "a device holds more than one forward block")
    )
    elsewhere = next((b for b in others if plan.blocks[b].devices not in devices), None)
    if reason or elsewhere is not None:
        return reason or f"block {plan.blocks[elsewhere or 0].name} is on a device without a forward block"
    return tuple((f, tuple(b for b in others if plan.blocks[b].devices == plan.blocks[f].devices)) for f in forward)


def with_split_backward(chain: Chain | str) -> Chain | str:
    """Return the chain if every backward pass is split, or one sentence on why not."""
    if not isinstance(chain, Chain) or chain.split:
        return chain
    whole = [stage for stage, weight in enumerate(chain.weight or (None,) * len(chain.forward)) if weight is None]
    if not chain.backward:
        return "no stage has a backward pass to split"
    some = f"stages {whole[0]} to {whole[-1]} have" if len(whole) == len(chain.forward) > 1 else _stages_have(whole)
    how = "`tessel plan GRAPH PLACEMENT --split-weights` makes a plan with split backward passes"
    return f"{some} a whole backward pass, not an input half and a weight half; {how}"


def _stages_have(stages: Sequence[int]) -> str:
    listed = ", ".join(map(str, stages))
    return f"stage {listed} has" if len(stages) == 1 else f"stages {listed} have"


def find_even_chains(plan: MicroBatchPlan, name: str, why_even: str) -> tuple[Chain, Chain] | str:
    """Return the plan as two chains in opposite directions over an even number of devices, or why it is not.

    `name` and `why_even` begin the sentences of objections.
    """
    chains = _find_opposite_chains(plan)
    if isinstance(chains, str):
        return f"{name} needs two chains of stages in opposite directions, but {chains}"
    devices = len(chains[0].devices)
    return f"{why_even} must be even, not {devices}" if devices % 2 else chains


def _find_opposite_chains(plan: MicroBatchPlan) -> tuple[Chain, Chain] | str:
    """Return the plan as two independent straight chains in opposite directions over the same devices, or why not."""
    parts = independent_parts(plan)
    if len(parts) != 2:
        return f"its blocks fall into {len(parts)} independent part{'s' * (len(parts) > 1)}"
    reason = _why_not_single(plan, range(len(plan.blocks)))
    if reason:
        return reason
    down, up = (find_straight_chain(plan, part) for part in parts)
    if isinstance(down, str) or isinstance(up, str):
        return down if isinstance(down, str) else str(up)
    if not down.backward or not up.backward:
        return "it has no backward blocks"
    if up.devices != down.devices[::-1]:
        return "its two chains do not pass the same devices in opposite directions"
    return down, up


def _why_not_single(plan: MicroBatchPlan, blocks: Collection[int]) -> str:
    groups = {frozenset(plan.blocks[b].devices) for b in blocks}
    apart = sum(map(len, groups)) == len(frozenset().union(*groups))
    for block in (plan.blocks[b] for b in sorted(blocks)):
        if len(block.devices) > 1 and not apart:
            return f"block {block.name} runs on {len(block.devices)} devices at once"
        if block.kind is BlockKind.OTHER:
            return f"block {block.name} is neither forward nor backward"
    return ""


def _why_not_line(plan: MicroBatchPlan, blocks: list[int]) -> str:
    for before, after in pairwise(blocks):
        if not plan.ancestors[after] >> before & 1:
            return f"blocks {plan.blocks[before].name} and {plan.blocks[after].name} are on separate branches"
    return ""


def _why_not_after(plan: MicroBatchPlan, blocks: list[int], others: list[int]) -> str:
    """Return a sentence if one of `blocks` depends on one of `others`, else an empty string.

    Published orders run `others` after `blocks`, or independently of them.
    """
    mask = sum(1 << b for b in others)
    for b in blocks:
        if plan.ancestors[b] & mask:
            first = next(other for other in others if plan.ancestors[b] >> other & 1)
            late = plan.blocks[first]
            return f"{plan.blocks[b].kind} block {plan.blocks[b].name} depends on {late.kind} block {late.name}"
    return ""


def _with_weights(plan: MicroBatchPlan, chain: Chain, weight: list[int]) -> Chain | str:
    """Return the chain with its weight halves (see `Chain`), or one sentence on why a half belongs to no stage.

    A weight half depends on the first few blocks of the backward chain. From the last of these blocks on, the chain
    passes stages down to the first one. The weight half belongs to the first of them that is on its own device.
    """
    weights: list[int | None] = [None] * len(chain.devices)
    mask = sum(1 << b for b in chain.backward)
    for w in weight:
        # The backward blocks that precede a weight half are the first blocks of the backward chain.
        reached = len(weights) - (plan.ancestors[w] & mask).bit_count()
        stage = next((s for s in range(reached, -1, -1) if chain.devices[s : s + 1] == plan.blocks[w].devices[:1]), -1)
        if stage < 0 or weights[stage] is not None:
            return f"weight block {plan.blocks[w].name} belongs to no stage of its own"
        weights[stage] = w
    return Chain(chain.devices, chain.forward, chain.backward, tuple(weights))
