"""GPipe: all forward passes, then all backward passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tessel_core.model import BlockKind, MicroBatchPlan
from tessel_core.scheduling.order import Run, published_order
from tessel_core.scheduling.problem import Scheduler


def objection(plan: MicroBatchPlan) -> str:
    """GPipe needs every forward block to be free of backward ones before it."""
    late = {b for b, block in enumerate(plan.blocks) if block.kind in (BlockKind.BACKWARD, BlockKind.WEIGHT)}
    for b, block in enumerate(plan.blocks):
        if b not in late and any(plan.ancestors[b] >> a & 1 for a in late):
            return f"GPipe runs all forward blocks first, but {block.name} depends on a backward block"
    return ""


def order(plan: MicroBatchPlan, micro_batches: int) -> list[Run]:
    """Forward passes in order of micro-batch, then backward passes in reverse order [Huang 2019, figure 2c].

    Both run as wavefronts: block by block down the pipeline, one micro-batch behind the other.
    """
    late = (BlockKind.BACKWARD, BlockKind.WEIGHT)
    depth: dict[int, int] = {}
    for b in plan.topological_order:
        depth[b] = 1 + max((depth[a] for a, _ in plan.predecessors[b]), default=0)

    def wave(runs: Iterable[Run], turn: Callable[[int], int]) -> list[Run]:
        return sorted(runs, key=lambda run: (depth[run[0]] + turn(run[1]), turn(run[1]), run[0]))

    forward = ((b, m) for b in depth for m in range(micro_batches) if plan.blocks[b].kind not in late)
    backward = ((b, m) for b in depth for m in range(micro_batches) if plan.blocks[b].kind in late)
    return wave(forward, lambda m: m) + wave(backward, lambda m: micro_batches - 1 - m)


GPIPE = Scheduler(
    "gpipe",
    "GPipe",
    "Huang et al., GPipe, NeurIPS 2019, arXiv 1811.06965",
    published_order(order),
    objection=objection,
)
