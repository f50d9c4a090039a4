"""Build micro-batch plans in nanoseconds from the parts of a network. Devices are H200 GPUs in nodes of eight."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain as joined
from itertools import pairwise

from tessel_core.costs.devices import H200
from tessel_core.costs.meshes import DEVICES_PER_NODE, INFINIBAND, NVLINK, broadcast_seconds, hop_seconds
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice
from tessel_core.model.plan import label_of
from tessel_core.networks.layer_costs import Part
from tessel_core.units import to_ticks


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a network on its devices, with the names of its blocks."""

    part: Part
    devices: tuple[int, ...]
    forward: str
    backward: str = ""
    """Name of the backward block. Empty if the stage has no backward pass; the stage then holds no memory."""
    nodes: int = 1
    """Number of nodes that process the same micro-batch."""

    @property
    def weight(self) -> str:
        """Name of the block that computes weight gradients, if the backward pass is split."""
        return self.backward.replace("B", "W")

    def forward_block(self) -> Block:
        """Return the forward block, which allocates the memory of the part's activations."""
        return self._block(self.forward, BlockKind.FORWARD, self.part.forward, self.part.kept_bytes)

    def backward_blocks(self, *, split: bool) -> tuple[Block, ...]:
        """Return the backward block, or with `split` two blocks. They free the memory of the activations.

        Block B computes the input gradient, for which the previous stage waits. Block W computes the weight gradients,
        for which no block waits [Qi 2024, arXiv 2401.10241].
        """
        part = self.part
        if not split:
            return (self._block(self.backward, BlockKind.BACKWARD, part.backward, -part.kept_bytes),)
        weight = min(
            max(1, part.weight_gradient), part.backward - 1
        )  # A stage without matrix products has no weight block.
        change = part.kept_for_weights - part.kept_bytes
        by_input = self._block(self.backward, BlockKind.BACKWARD, part.backward - weight, change)
        return by_input, self._block(self.weight, BlockKind.WEIGHT, weight, -part.kept_for_weights)

    def _block(self, name: str, kind: BlockKind, ticks: int, memory: int) -> Block:
        return Block(name, kind, self.devices, ticks, memory if self.backward else 0, label_of(self.part.layers))


def in_stages(parts: Iterable[Part], devices: Iterable[int], branch: str = "", first: int = 0) -> tuple[Stage, ...]:
    """Return one stage per part and device, numbered from `first`. Names of blocks begin with `branch`."""
    places = enumerate(zip(parts, devices, strict=True), start=first)
    return tuple(Stage(part, (device,), f"{branch}F{s}", f"{branch}B{s}") for s, (part, device) in places)


def pipeline_plan(
    name: str,
    chains: Sequence[Sequence[Stage]],
    group: int = 1,
    *,
    split: bool = False,
    weights: Iterable[Stage] | None = None,
) -> MicroBatchPlan:
    """Build a plan from chains of stages. Each chain runs forward in order and backward in reverse order.

    Neighbouring stages send each other outputs and gradients.

    Parameters
    ----------
    name : str
        Beginning of the plan's name.
    chains : Sequence
        Chains of stages. A stage may be part of several chains.
    group : int
        Number of GPUs that form one device of the plan, a tensor-parallel group. Memory is that of one GPU.
    split : bool
        Whether weight gradients are computed in separate blocks.
    weights : Iterable
        Stages that have their own copy of their weights. By default all stages.
    """
    stages, links = dict[str, Stage](), dict[tuple[str, str], int]()
    for chain in chains:
        stages |= {stage.forward: stage for stage in chain}
        stages[chain[-1].forward] = stages.pop(
            chain[-1].forward
        )  # A last stage that several chains share comes after all chains.
        trained = [stage for stage in chain if stage.backward]
        links |= {(a.forward, b.forward): _transfer(a, b, a.part.sent_bytes, group) for a, b in pairwise(chain)}
        links |= {(b.backward, a.backward): _transfer(b, a, a.part.sent_bytes, group) for a, b in pairwise(trained)}
        links |= {(stage.forward, stage.backward): 0 for stage in trained[-1:]}
        links |= {(stage.backward, stage.weight): 0 for stage in trained if split}
    backward = (stage.backward_blocks(split=split) for stage in reversed(stages.values()) if stage.backward)
    blocks = (*(stage.forward_block() for stage in stages.values()), *joined.from_iterable(backward))
    static = [0] * (1 + max(device for stage in stages.values() for device in stage.devices))
    for stage in stages.values() if weights is None else weights:
        for device in stage.devices:
            static[device] += stage.part.static_bytes
    kind = {1: "gpu", DEVICES_PER_NODE: "node"}.get(group, "group")
    devices = tuple(PlanDevice(f"{kind}{d}", H200.memory_capacity, held) for d, held in enumerate(static))
    arcs = tuple(Dependency(*pair, lag) for pair, lag in links.items())
    return MicroBatchPlan(f"{name}-{len(static)}", devices, blocks, arcs, "ns", "B")


def _transfer(before: Stage, after: Stage, amount: int, group: int) -> int:
    """Return the duration of a transfer between two stages in nanoseconds.

    `amount` is the size in bytes. Between two single devices, a transfer is one message. To a stage on several devices,
    it is a broadcast inside each node. If a stage runs on several devices, each device already has the complete result.
    If nodes process different samples of the micro-batch, the samples of other nodes are sent over InfiniBand.
    """
    if before.devices == after.devices:
        return 0
    if len(before.devices) == len(after.devices) == 1:
        return to_ticks(hop_seconds(amount, before.devices[0], after.devices[0], group))
    nodes = max(before.nodes, after.nodes)
    seconds = (nodes - 1) * INFINIBAND.seconds(amount / nodes)
    if len(after.devices) > 1:
        seconds += broadcast_seconds(NVLINK, amount / nodes, len(after.devices) // nodes)
    return to_ticks(seconds) if seconds else 0
