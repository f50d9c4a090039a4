"""The skeleton cut into pipeline stages: what one run of each stage does, sends and leaves behind."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, lru_cache

from tessel_core.strategies.skeleton import Kind, Skeleton

FORWARD, BACKWARD = 0, 1


@dataclass(frozen=True, slots=True)
class Compute:
    """An operation of the network."""

    kind: Kind
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Combine:
    """An output of one micro-batch meets those before it: they are added up, or joined where samples have their own."""

    value: int
    joins: bool


Item = Compute | Combine


@dataclass(frozen=True, slots=True)
class Send:
    """A value that a stage makes and another one takes."""

    value: int
    to: int


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage; pairs are forward and backward.  Values are those of the skeleton."""

    items: tuple[tuple[Item, ...], tuple[Item, ...]]
    sends: tuple[tuple[Send, ...], tuple[Send, ...]]
    inputs: tuple[int, ...]
    """Inputs of the program that it holds."""
    gradients: tuple[int, ...]
    """In the order in which replicas sum them."""
    weights: frozenset[int]
    """Those that it has gradients of."""

    @cached_property
    def last_use(self) -> dict[int, tuple[int, int]]:
        """Per value, the phase and the number of the item that takes it last; sends count on after the items."""
        found: dict[int, tuple[int, int]] = {}
        for phase in (FORWARD, BACKWARD):
            for i, item in enumerate(self.items[phase]):
                for value in taken_by(item):
                    found[value] = phase, i
            for i, send in enumerate(self.sends[phase], len(self.items[phase])):
                found[send.value] = phase, i
        return found


def taken_by(item: Item) -> tuple[int, ...]:
    """The values that an item takes."""
    return (item.value,) if isinstance(item, Combine) else item.inputs


def talks(item: Item) -> bool:
    """Whether it is communication."""
    return not isinstance(item, Combine) and item.kind.talks


def layers_of_stages(layers: int, pipeline: int) -> tuple[int, ...]:
    """As many as divide, the first ones one more."""
    few, more = divmod(layers, pipeline)
    return tuple(few + (stage < more) for stage in range(pipeline))


@lru_cache(maxsize=256)
def stages_of(skeleton: Skeleton, layers: tuple[int, ...], several: bool) -> tuple[Stage, ...]:
    """The stages in order, of so many layers each; `several` micro-batches."""
    stage_of_layer = [stage for stage, count in enumerate(layers) for _ in range(count)]
    homes: dict[int, set[int]] = defaultdict(set)
    for op in skeleton.ops:
        for value in op.inputs:
            homes[value].add(stage_of_layer[op.layer])
    return tuple(_stage(skeleton, stage, stage_of_layer, homes, several) for stage in range(len(layers)))


def _stage(
    skeleton: Skeleton, stage: int, stage_of_layer: list[int], homes: dict[int, set[int]], several: bool
) -> Stage:
    items, sends = list[tuple[Item, ...]](), list[tuple[Send, ...]]()
    for phase in (FORWARD, BACKWARD):
        ops = [op for op in skeleton.ops if stage_of_layer[op.layer] == stage and op.backward == bool(phase)]
        computes = [Compute(op.kind, op.inputs, op.outputs) for op in ops]
        items.append(_combined(skeleton, computes) if several else tuple(computes))
        made = [value for op in ops for value in op.outputs]
        sends.append(tuple(Send(value, to) for value in made for to in sorted(homes[value] - {stage})))
    mine = {value for each in items for item in each if isinstance(item, Compute) for value in item.outputs}
    gradients = tuple(value for value in skeleton.outputs if value in skeleton.weight_of and value in mine)
    return Stage(
        (items[FORWARD], items[BACKWARD]),
        (sends[FORWARD], sends[BACKWARD]),
        tuple(value for value in skeleton.inputs if stage in homes[value]),
        gradients,
        frozenset(skeleton.weight_of[value] for value in gradients),
    )


def _combined(skeleton: Skeleton, computes: list[Compute]) -> tuple[Item, ...]:
    """Finished outputs are combined before the next operation that is no communication, as the pipeline does it."""
    items, pending = list[Item](), list[int]()
    for compute in computes:
        if not compute.kind.talks:
            items += _combines(skeleton, pending)
            pending = []
        items.append(compute)
        pending += [value for value in compute.outputs if value in skeleton.place_of_output]
    return (*items, *_combines(skeleton, pending))


def _combines(skeleton: Skeleton, pending: list[int]) -> list[Item]:
    return [
        Combine(value, value in skeleton.joined) for value in sorted(pending, key=skeleton.place_of_output.__getitem__)
    ]
