"""A plan understood as a network: the layers that its blocks run, and what its dependencies carry.

A forward block is a layer, which takes the sum of what the forward blocks before it make.  Gradients flow along the
same dependencies the other way, so a backward block belongs to the forward block from which its gradients' makers have
their inputs, or whose output is the network's.  Blocks of kind other that wait for no backward block count as forward.
A layer without a backward block is frozen, and then so is all before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.model import BlockKind, MicroBatchPlan

_INSTEAD = "--stand-ins run any plan"


@dataclass(frozen=True, slots=True)
class Network:
    """What each block of a plan runs; layers are named by their forward blocks' places in the plan."""

    plan: MicroBatchPlan
    layers: tuple[int, ...]
    """In the order in which data flows."""
    inputs: dict[int, tuple[int, ...]]
    """Per layer, those whose outputs it takes; of none: it takes the micro-batch."""
    backward: dict[int, tuple[int, ...]]
    """Per backward block, the layers whose gradient it runs, the last one first."""
    weight: dict[int, tuple[int, ...]]
    """Per weight block, the layers whose weight gradients it runs in place of the backward block."""
    carried: tuple[tuple[int, ...], ...]
    """Per dependency, the layers whose output it carries, or the gradient of whose output; of none: it only orders."""

    @classmethod
    def of(cls, plan: MicroBatchPlan) -> Network:
        """The plan's network; raises InputError, naming a block, where it has none."""
        return _Reading(plan).network()

    @property
    def sinks(self) -> tuple[int, ...]:
        """Layers whose output is the network's."""
        taken = {each for taken in self.inputs.values() for each in taken}
        return tuple(layer for layer in self.layers if layer not in taken)

    @property
    def trained(self) -> dict[int, int]:
        """Per layer that is not frozen, its backward block."""
        return {layer: block for block, layers in self.backward.items() for layer in layers}

    @property
    def halved(self) -> frozenset[int]:
        """Layers whose weight gradients come later than their input gradients."""
        return frozenset(layer for layers in self.weight.values() for layer in layers)


class _Reading:
    """How the layers of backward blocks are found."""

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
        """The plan's network; raises InputError, naming a block, where it has none."""
        plan = self.plan
        for b in plan.topological_order:
            if plan.blocks[b].kind is BlockKind.BACKWARD:
                self._cover(b)
        while any(self._widen(b, self._has_trained_before) for b in self.covered):
            pass
        self._check_gradients()
        weight = {b: self._completed(b) for b, block in enumerate(plan.blocks) if block.kind is BlockKind.WEIGHT}
        place = {layer: i for i, layer in enumerate(self.layers)}
        backward = {b: tuple(sorted(found, key=place.__getitem__, reverse=True)) for b, found in self.covered.items()}
        carried = tuple(self._carried(before, after) for before, after, _ in plan.arcs)
        return Network(plan, self.layers, self.before, backward, weight, carried)

    def _cover(self, block: int) -> None:
        """Find the layer of a backward block, those of the blocks before it being known."""
        makers = [before for before, _ in self.plan.predecessors[block] if before in self.covered]
        found = self._candidates(block, makers)
        while not found and any(self._widen(maker) for maker in makers):
            found = self._candidates(block, makers)
        if not found:
            raise self._refused(block, "runs the gradient of no forward block on its devices")
        layer = min(found, key=lambda layer: self._unlike(layer, block))
        self.covered[block], self.block_of[layer] = [layer], block

    def _candidates(self, block: int, makers: Iterable[int]) -> list[int]:
        """Layers that wait for this gradient alone: of what comes back, or of the network's output."""
        back = {layer for maker in makers for each in self.covered[maker] for layer in self.before[each]}
        ends = {layer for layer, _ in self.plan.predecessors[block] if layer in self.after and not self.after[layer]}
        return [layer for layer in self.layers if layer in back | ends and self._may_be_of(layer, block)]

    def _unlike(self, layer: int, block: int) -> tuple[bool, bool, int, int]:
        """How little a layer and a backward block mirror each other; of equals the last layer is the least."""
        plan, backward = self.plan, BlockKind.BACKWARD
        makers = {before for before, _ in plan.predecessors[block] if before in self.covered}
        takers = [plan.blocks[after] for after, _ in plan.successors[block]]
        targets = sorted(sorted(each.devices) for each in takers if each.kind is backward)
        inputs = sorted(sorted(plan.blocks[before].devices) for before in self.before[layer])
        left = abs(plan.blocks[layer].memory + self._released(block))
        fits = makers == {self.block_of[after] for after in self.after[layer]}
        return not fits, targets != inputs, left, -self.layers.index(layer)

    def _widen(self, block: int, needed: Callable[[int], bool] = lambda layer: True) -> bool:
        """Take a layer that comes right before those of a block alone, on the same devices, and is no other block's."""
        mine = self.covered[block]
        for layer in [before for each in mine for before in self.before[each]]:
            if needed(layer) and set(self.after[layer]) <= set(mine) and self._may_be_of(layer, block):
                mine.append(layer)
                self.block_of[layer] = block
                return True
        return False

    def _has_trained_before(self, layer: int) -> bool:
        return any(self.plan.ancestors[layer] >> other & 1 for other in self.block_of)

    def _may_be_of(self, layer: int, block: int) -> bool:
        same = set(self.plan.blocks[layer].devices) == set(self.plan.blocks[block].devices)
        return same and layer not in self.block_of and all(after in self.block_of for after in self.after[layer])

    def _released(self, block: int) -> int:
        """Memory of a backward block and of the weight blocks that complete it."""
        halves = [after for after, _ in self.plan.successors[block]]
        weights = (self.plan.blocks[b].memory for b in halves if self.plan.blocks[b].kind is BlockKind.WEIGHT)
        return self.plan.blocks[block].memory + sum(weights)

    def _completed(self, block: int) -> tuple[int, ...]:
        """The layers of the backward block whose weight gradients are this block."""
        devices = set(self.plan.blocks[block].devices)
        found = [
            before
            for before, _ in self.plan.predecessors[block]
            if before in self.covered and set(self.plan.blocks[before].devices) == devices
        ]
        if len(found) != 1:
            raise self._refused(block, f"completes {len(found) or 'no'} backward blocks on its devices, not one")
        other = [b for b, _ in self.plan.successors[found[0]] if self.plan.blocks[b].kind is BlockKind.WEIGHT]
        rival = next((b for b in other if b != block and set(self.plan.blocks[b].devices) == devices), None)
        if rival is not None:
            name, both = self.plan.blocks[rival].name, self.plan.blocks[found[0]].name
            raise self._refused(block, f"completes {both} as {name} does")
        return tuple(self.covered[found[0]])

    def _check_gradients(self) -> None:
        """Every layer before which another one is trained is so itself, and its gradient has a way back."""
        ways = {(before, after) for before, after, _ in self.plan.arcs}
        for layer in self.layers:
            back = self.block_of.get(layer)
            for before in self.before[layer]:
                name, target = self.plan.blocks[before].name, self.block_of.get(before)
                if target is None or back == target:
                    continue
                if back is None:
                    raise self._refused(layer, f"has no backward block, and {name}, which it takes from, has one")
                if (back, target) not in ways:
                    names = f"{self.plan.blocks[back].name} to {self.plan.blocks[target].name}"
                    raise self._refused(layer, f"takes from {name}, and no dependency from {names} takes it back")

    def _carried(self, before: int, after: int) -> tuple[int, ...]:
        if before in self.before.get(after, ()):
            return (before,)
        if before not in self.covered or after not in self.covered:
            return ()
        back = {layer for each in self.covered[before] for layer in self.before[each]}
        return tuple(layer for layer in self.covered[after] if layer in back)

    def _refused(self, block: int, why: str) -> InputError:
        return InputError(f"block {self.plan.blocks[block].name}", f"{why}, so the plan has no network; {_INSTEAD}")
