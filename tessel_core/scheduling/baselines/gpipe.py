"""GPipe: all forward passes, then all backward passes."""

from __future__ import annotations

from collections.abc import Callable, Collection

from tessel_core.model import BlockKind, MicroBatchPlan
from tessel_core.scheduling.order import Run, published
from tessel_core.scheduling.structure import longest_to


def _find_late(plan: MicroBatchPlan) -> set[int] | str:
    """Return the backward blocks, or one sentence if a forward block depends on one of them."""
    late = {b for b, block in enumerate(plan.blocks) if block.kind in (BlockKind.BACKWARD, BlockKind.WEIGHT)}
    for b, block in enumerate(plan.blocks):
        if b not in late and any(plan.ancestors[b] >> a & 1 for a in late):
            return f"GPipe runs all forward blocks first, but {block.name} depends on a backward block"
    return late


def _order(plan: MicroBatchPlan, late: set[int], micro_batches: int) -> list[Run]:
    """Return all forward passes in order of micro-batch, then all backward passes in reverse [Huang 2019, figure 2c].

    The forward passes, and then the backward passes, are ordered as a wavefront: each micro-batch is one block behind
    the micro-batch before it.
    """
    depth = longest_to(plan, [1] * len(plan.blocks), lags=False)

    def wave(blocks: Collection[int], turn: Callable[[int], int]) -> list[Run]:
        runs = ((b, m) for b in blocks for m in range(micro_batches))
        return sorted(runs, key=lambda run: (depth[run[0]] + turn(run[1]), turn(run[1]), run[0]))

    return wave(set(range(len(plan.blocks))) - late, lambda m: m) + wave(late, lambda m: micro_batches - 1 - m)


GPIPE = published("gpipe", "GPipe", "Huang et al., GPipe, NeurIPS 2019, arXiv 1811.06965", _find_late, _order)
