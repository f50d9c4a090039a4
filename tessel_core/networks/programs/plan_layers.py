"""Interpret a micro-batch plan as a network: find the layers of its blocks, and the tensors along its dependencies.

Each forward block is a layer. Its input is the sum of the outputs of the forward blocks before it. Gradients flow along
the same dependencies in reverse. So a backward block belongs to a forward block whose output is used by the layers of
the preceding backward blocks. Without preceding backward blocks, this output is an output of the network. A block of
kind "other" counts as forward if it does not depend on a backward block. A layer without a backward block is frozen,
and so are all layers before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.model import BlockKind, MicroBatchPlan

_ALTERNATIVE = "use --stand-ins to run any plan"


@dataclass(frozen=True, slots=True)
class Network:
    """The network of a plan. The number of a layer is the index of its forward block."""

    plan: MicroBatchPlan
    layers: tuple[int, ...]
    """Layers in topological order."""
    inputs: dict[int, tuple[int, ...]]
    """For each layer, the layers whose outputs it uses. If there are none, its input is the micro-batch."""
    backward: dict[int, tuple[int, ...]]
    """For each backward block, the layers whose gradients it computes, last layer first."""
    weight: dict[int, tuple[int, ...]]
    """For each weight block, the layers whose weight gradients it computes instead of the backward block."""
    carried: tuple[tuple[int, ...], ...]
    """For each dependency, the layers whose outputs, or gradients of outputs, it carries.

    An empty entry means that the dependency only orders the blocks.
    """

    @classmethod
    def of(cls, plan: MicroBatchPlan) -> Network:
        """Return the network of a plan. Raises InputError with the name of a block if the plan has none."""
        return _Reading(plan).network()

    @property
    def sinks(self) -> tuple[int, ...]:
        """Layers whose output is an output of the network."""
        used = {layer for inputs in self.inputs.values() for layer in inputs}
        return tuple(layer for layer in self.layers if layer not in used)

    @property
    def trained(self) -> dict[int, int]:
        """For each layer that is not frozen, its backward block."""
        return {layer: block for block, layers in self.backward.items() for layer in layers}

    @property
    def halved(self) -> frozenset[int]:
        """Layers whose weight gradients a separate block computes."""
        return frozenset(layer for layers in self.weight.values() for layer in layers)


class _Reading:
    """Searches for the layers of each backward block."""

    def __init__(self, plan: MicroBatchPlan) -> None:
        self.plan = plan
        kinds = [block.kind for block in plan.blocks]
        backward = sum(1 << b for b, kind in enumerate(kinds) if kind in (BlockKind.BACKWARD, BlockKind.WEIGHT))
        self.layers = tuple(
            b
            for b in plan.topological_order
            if kinds[b] is BlockKind.FORWARD or (kinds[b] is BlockKind.OTHER and not plan.ancestors[b] & backward)
        )
        among = set(self.layers)
        self.before = {b: tuple(before for before, _ in plan.predecessors[b] if before in among) for b in self.layers}
        self.after = {b: tuple(after for after, _ in plan.successors[b] if after in among) for b in self.layers}
        self.covered = dict[int, list[int]]()
        self.block_of = dict[int, int]()

    def network(self) -> Network:
        """Return the network. Raises InputError with the name of a block if the plan has none."""
        plan = self.plan
        for b in plan.topological_order:
            if plan.blocks[b].kind is BlockKind.BACKWARD:
                self._cover(b)
        while any(self._widen(b, self._has_trained_before) for b in self.covered):
            pass
        self._check_gradients()
        weight = {b: self._completed(b) for b, block in enumerate(plan.blocks) if block.kind is BlockKind.WEIGHT}
        place = {layer: i for i, layer in enumerate(self.layers)}
        backward = {b: tuple(sorted(layers, key=place.__getitem__, reverse=True)) for b, layers in self.covered.items()}
        carried = tuple(self._carried(before, after) for before, after, _ in plan.arcs)
        return Network(plan, self.layers, self.before, backward, weight, carried)

    def _cover(self, block: int) -> None:
        """Find the layer of a backward block. The layers of its predecessors must be known already."""
        makers = [before for before, _ in self.plan.predecessors[block] if before in self.covered]
        candidates = self._candidates(block, makers)
        while not candidates and any(self._widen(maker) for maker in makers):
            candidates = self._candidates(block, makers)
        if not candidates:
            raise self._refused(block, "belongs to no forward block on its devices, so it has no gradient to compute")
        layer = min(candidates, key=lambda layer: self._mismatch(layer, block))
        self.covered[block], self.block_of[layer] = [layer], block

    def _candidates(self, block: int, makers: Iterable[int]) -> list[int]:
        """Return the layers whose gradient the block may compute.

        These are the inputs of the layers of `makers`, and outputs of the network on which the block depends.
        """
        back = {layer for maker in makers for each in self.covered[maker] for layer in self.before[each]}
        ends = {layer for layer, _ in self.plan.predecessors[block] if layer in self.after and not self.after[layer]}
        return [layer for layer in self.layers if layer in back | ends and self._may_be_of(layer, block)]

    def _mismatch(self, layer: int, block: int) -> tuple[bool, bool, int, int]:
        """Return how badly a layer and a backward block mirror each other. A smaller tuple is a better match.

        The tuple compares dependencies, then devices, then memory. Among equal matches, the last layer is best.
        """
        plan, backward = self.plan, BlockKind.BACKWARD
        makers = {before for before, _ in plan.predecessors[block] if before in self.covered}
        takers = [plan.blocks[after] for after, _ in plan.successors[block]]
        targets = sorted(sorted(each.devices) for each in takers if each.kind is backward)
        inputs = sorted(sorted(plan.blocks[before].devices) for before in self.before[layer])
        left = abs(plan.blocks[layer].memory + self._released(block))
        fits = makers == {self.block_of[after] for after in self.after[layer]}
        return not fits, targets != inputs, left, -self.layers.index(layer)

    def _widen(self, block: int, needed: Callable[[int], bool] = lambda layer: True) -> bool:
        """Assign one more layer to a backward block. Return False if there is no such layer.

        The layer must be on the block's devices and belong to no other block. Its output may be used only by layers of
        the block.
        """
        covered = self.covered[block]
        for layer in [before for each in covered for before in self.before[each]]:
            if needed(layer) and set(self.after[layer]) <= set(covered) and self._may_be_of(layer, block):
                covered.append(layer)
                self.block_of[layer] = block
                return True
        return False

    def _has_trained_before(self, layer: int) -> bool:
        return any(self.plan.ancestors[layer] >> other & 1 for other in self.block_of)

    def _may_be_of(self, layer: int, block: int) -> bool:
        same = set(self.plan.blocks[layer].devices) == set(self.plan.blocks[block].devices)
        return same and layer not in self.block_of and all(after in self.block_of for after in self.after[layer])

    def _released(self, block: int) -> int:
        """Return the memory change of a backward block together with its weight blocks."""
        halves = [after for after, _ in self.plan.successors[block]]
        weights = (self.plan.blocks[b].memory for b in halves if self.plan.blocks[b].kind is BlockKind.WEIGHT)
        return self.plan.blocks[block].memory + sum(weights)

    def _completed(self, block: int) -> tuple[int, ...]:
        """Return the layers whose weight gradients a weight block computes."""
        devices = set(self.plan.blocks[block].devices)
        backward = [
            before
            for before, _ in self.plan.predecessors[block]
            if before in self.covered and set(self.plan.blocks[before].devices) == devices
        ]
        if len(backward) != 1:
            raise self._refused(
                block,
                f"completes {len(backward) or 'no'} backward blocks on its devices, but must complete exactly one",
            )
        other = [b for b, _ in self.plan.successors[backward[0]] if self.plan.blocks[b].kind is BlockKind.WEIGHT]
        rival = next((b for b in other if b != block and set(self.plan.blocks[b].devices) == devices), None)
        if rival is not None:
            name, both = self.plan.blocks[rival].name, self.plan.blocks[backward[0]].name
            raise self._refused(block, f"completes {both}, which {name} already completes")
        return tuple(self.covered[backward[0]])

    def _check_gradients(self) -> None:
        """Raise InputError if a layer after a trained layer is frozen, or if no dependency can carry a gradient."""
        ways = {(before, after) for before, after, _ in self.plan.arcs}
        for layer in self.layers:
            back = self.block_of.get(layer)
            for before in self.before[layer]:
                name, target = self.plan.blocks[before].name, self.block_of.get(before)
                if target is None or back == target:
                    continue
                if back is None:
                    raise self._refused(layer, f"has no backward block, but its input {name} has one")
                if (back, target) not in ways:
                    names = f"{self.plan.blocks[back].name} to {self.plan.blocks[target].name}"
                    raise self._refused(
                        layer, f"uses the output of {name}, but no dependency from {names} returns the gradient"
                    )

    def _carried(self, before: int, after: int) -> tuple[int, ...]:
        if before in self.before.get(after, ()):
            return (before,)
        if before not in self.covered or after not in self.covered:
            return ()
        back = {layer for each in self.covered[before] for layer in self.before[each]}
        return tuple(layer for layer in self.covered[after] if layer in back)

    def _refused(self, block: int, why: str) -> InputError:
        return InputError(f"block {self.plan.blocks[block].name}", f"{why}, so the plan has no network; {_ALTERNATIVE}")
