"""Changes of a plan by hand, one block or stage at a time.

A stage is a forward block with its backward block and its weight gradient, which must share their devices.  Every
change returns a new plan of the same name, or raises InputError with the block and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count

from tessel_core.editing.asked import number_in
from tessel_core.errors import InputError
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan
from tessel_core.model.checks import joined
from tessel_core.units import show_memory

_MAX_LABEL_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class PlanChange:
    """One change of a plan that a timeline requests.  Blocks and devices are indices in the plan."""

    does: str
    """Kind of change: move, stretch, split, cut, merge or hold."""
    block: int = 0
    source: int = 0
    target: int = 0
    alone: bool = False
    duration: int = 0
    other: int = 0
    capacity: int = 0

    @classmethod
    def of(cls, asked: Mapping[str, object]) -> PlanChange:
        """Read a change from a request of the browser.  Values that are not numbers become 0."""
        numbers = {
            name: number_in(asked, name) for name in ("block", "source", "target", "duration", "other", "capacity")
        }
        return cls(str(asked.get("does")), alone=asked.get("alone") is True, **numbers)

    def made_to(self, plan: MicroBatchPlan) -> MicroBatchPlan:
        """Return the plan with this change.  Raises InputError if the change does not fit the plan."""
        blocks, devices = range(len(plan.blocks)), range(len(plan.devices))
        makes = {
            "move": lambda: moved(plan, self.block, self.source, self.target, alone=self.alone),
            "stretch": lambda: lasting(plan, self.block, self.duration),
            "split": lambda: backward_split(plan, [self.block]),
            "cut": lambda: cut(plan, self.block),
            "merge": lambda: merged(plan, self.block, self.other),
            "hold": lambda: holding(plan, self.target, self.capacity),
        }
        known = {self.block, self.other} <= set(blocks) and {self.source, self.target} <= set(devices)
        if self.does not in makes or not known:
            raise InputError("change", "is of another plan")
        return makes[self.does]()


@lru_cache(maxsize=64)
def stages(plan: MicroBatchPlan) -> tuple[tuple[int, ...], ...]:
    """Group the plan's blocks into stages, in file order.

    A block that acquires memory shares a stage with the block that releases it.  A weight gradient shares a stage with
    its backward block.  Blocks without memory are paired by position: the first forward block with the last backward
    block, and so on.
    """
    ties = [*_by_kind(plan), *(tie for device in range(len(plan.devices)) for tie in _by_memory(plan, device))]
    return joined(len(plan.blocks), [*ties, *_by_place(plan)])


def stage_of(plan: MicroBatchPlan, block: int) -> tuple[int, ...]:
    """Return the stage of a block, including the block itself."""
    return next(stage for stage in stages(plan) if block in stage)


def moved(plan: MicroBatchPlan, block: int, source: int, target: int, *, alone: bool = False) -> MicroBatchPlan:
    """Move the stage of `block` from device `source` to device `target`. With `alone`, move only the block itself."""
    if source not in plan.blocks[block].devices:
        raise _refused(plan, block, f"does not run on device {plan.devices[source].name}")
    moving = [block] if alone else [b for b in stage_of(plan, block) if source in plan.blocks[b].devices]
    for b in moving:
        if source != target and target in plan.blocks[b].devices:
            raise _refused(plan, b, f"already runs on device {plan.devices[target].name}")
    blocks = list(plan.blocks)
    for b in moving:
        devices = tuple(target if d == source else d for d in blocks[b].devices)
        blocks[b] = replace(blocks[b], devices=devices)
    return replace(plan, blocks=tuple(blocks))


def lasting(plan: MicroBatchPlan, block: int, duration: int) -> MicroBatchPlan:
    """Set the duration of one block, in the plan's time unit."""
    blocks = list(plan.blocks)
    blocks[block] = replace(blocks[block], duration=duration)
    return replace(plan, blocks=tuple(blocks))


def holding(plan: MicroBatchPlan, device: int, capacity: int) -> MicroBatchPlan:
    """Set the memory capacity of one device, in the plan's memory unit.

    It must be at least the device's static memory.
    """
    devices, static = list(plan.devices), plan.devices[device].static_memory
    if capacity < static:
        least, asked = (show_memory(amount, plan.memory_unit) for amount in (static, capacity))
        raise InputError(f"device {devices[device].name}", f"holds {least} all the time, more than {asked}")
    devices[device] = replace(devices[device], memory_capacity=capacity)
    return replace(plan, devices=tuple(devices))


def backward_split(plan: MicroBatchPlan, blocks: Iterable[int] | None = None) -> MicroBatchPlan:
    """Split backward blocks into input gradients and weight gradients.

    By default, split all blocks that are not split yet. The weight gradient runs on the same devices and takes half of
    the time, rounded down. No block depends on it. It releases the memory that the backward block released.
    """
    whole = [b for stage in stages(plan) for b in _whole_backward(plan, stage)]
    chosen = sorted(whole if blocks is None else blocks)
    if not chosen:
        raise InputError("blocks", "the plan has no backward block that is not split")
    made, arcs, names = list(plan.blocks), list(plan.dependencies), _free_names(plan)
    for b in reversed(chosen):
        block = plan.blocks[b]
        if b not in whole:
            raise _refused(plan, b, "is not a backward block, or is already split")
        half = _half_of(plan, b)
        name = names(f"W{block.name[1:]}" if block.name.startswith("B") else f"{block.name}.w")
        weight = replace(block, name=name, kind=BlockKind.WEIGHT, duration=half)
        made[b : b + 1] = [replace(block, duration=block.duration - half, memory=0), weight]
        arcs.append(Dependency(block.name, name))
    return replace(plan, blocks=tuple(made), dependencies=tuple(arcs))


def cut(plan: MicroBatchPlan, block: int) -> MicroBatchPlan:
    """Cut the stage of `block` into two stages on the same devices, each with half of every duration and memory.

    Forward blocks run the first half first, backward blocks the second half first.
    """
    stage, names = stage_of(plan, block), _free_names(plan)
    memory, halves = _second_halves(plan, stage), dict[str, tuple[Block, Block]]()
    for b in stage:
        each, half = plan.blocks[b], _half_of(plan, b)
        halves[each.name] = (
            replace(each, name=names(f"{each.name}.1"), duration=each.duration - half, memory=each.memory - memory[b]),
            replace(each, name=names(f"{each.name}.2"), duration=half, memory=memory[b]),
        )
    arcs = list[Dependency]()
    for one, other in halves.values():
        if one.kind is BlockKind.BACKWARD:
            arcs.append(Dependency(other.name, one.name))
        elif one.kind is not BlockKind.WEIGHT:
            arcs.append(Dependency(one.name, other.name))
    for arc in plan.dependencies:
        before, after = halves.get(arc.predecessor), halves.get(arc.successor)
        if before and after:
            arcs += [Dependency(one.name, other.name, arc.lag) for one, other in zip(before, after, strict=True)]
        else:
            arcs += [
                Dependency(one, other, arc.lag)
                for one in (_ends(before)[1] if before else (arc.predecessor,))
                for other in (_ends(after)[0] if after else (arc.successor,))
            ]
    blocks = [part for each in plan.blocks for part in halves.get(each.name, (each,))]
    return replace(plan, blocks=tuple(blocks), dependencies=tuple(arcs))


def merged(plan: MicroBatchPlan, block: int, other: int) -> MicroBatchPlan:
    """Merge the stages of two blocks on the same devices.  The result keeps the names of the stage that runs first."""
    if other in stage_of(plan, block):
        raise _refused(plan, block, f"is already in one stage with {plan.blocks[other].name}")
    order = plan.topological_order
    two = sorted((stage_of(plan, b) for b in (block, other)), key=lambda stage: min(map(order.index, stage)))
    stays, goes = ({plan.blocks[b].kind: b for b in stage} for stage in two)
    if sorted(stays) != sorted(plan.blocks[b].kind for b in two[1]) or len(stays) < len(two[0]):
        raise _refused(
            plan, block, f"is in a stage with other kinds of blocks than the stage of {plan.blocks[other].name}"
        )
    made, new_name = list(plan.blocks), dict[str, str]()
    for kind, gone in goes.items():
        one, second = plan.blocks[stays[kind]], plan.blocks[gone]
        if set(one.devices) != set(second.devices):
            raise _refused(plan, gone, f"runs on other devices than {one.name}")
        label = " + ".join(each for each in (one.label, second.label) if each)[:_MAX_LABEL_CHARACTERS]
        duration, memory = one.duration + second.duration, one.memory + second.memory
        made[stays[kind]] = replace(one, duration=duration, memory=memory, label=label)
        new_name[second.name] = one.name
    arcs = dict[tuple[str, str], int]()
    for arc in plan.dependencies:
        before, after = (new_name.get(name, name) for name in (arc.predecessor, arc.successor))
        if before != after:
            arcs[before, after] = max(arc.lag, arcs.get((before, after), 0))
    return replace(
        plan,
        blocks=tuple(each for each in made if each.name not in new_name),
        dependencies=tuple(Dependency(*ends, lag) for ends, lag in arcs.items()),
    )


def _by_kind(plan: MicroBatchPlan) -> Iterator[tuple[int, int]]:
    for b, block in enumerate(plan.blocks):
        for before, _ in plan.predecessors[b] if block.kind is BlockKind.WEIGHT else ():
            if plan.blocks[before].kind is BlockKind.BACKWARD and _same_devices(plan, before, b):
                yield before, b


def _by_memory(plan: MicroBatchPlan, device: int) -> Iterator[tuple[int, int]]:
    """Pair each block that releases memory with the blocks that acquired it.

    The last release gives back the first acquired memory, and so on.  Acquiring blocks are ordered by the number of
    forward blocks before them, releasing blocks by the number of backward blocks after them.  A weight gradient has
    the position of its backward block, because nothing bounds how late it may run.
    """
    position = list(range(len(plan.blocks)))
    for backward, weight in _by_kind(plan):
        position[weight] = backward
    before, after = _forwards_before(plan), _backwards_after(plan)
    left = {b: plan.blocks[b].memory for b in sorted(plan.blocks_on[device], key=before.__getitem__)}
    releases = sorted(plan.blocks_on[device], key=lambda b: after[position[b]])
    for release in releases:
        owed = max(0, -plan.blocks[release].memory)
        for acquire, held in left.items():
            given = min(owed, held) if held > 0 and plan.ancestors[release] >> acquire & 1 else 0
            left[acquire] = held - given
            owed -= given
            if given:
                yield acquire, release


def _forwards_before(plan: MicroBatchPlan) -> list[int]:
    """Return for each block the number of forward blocks among its ancestors."""
    forward = sum(1 << b for b, block in enumerate(plan.blocks) if block.kind is BlockKind.FORWARD)
    return [(ancestors & forward).bit_count() for ancestors in plan.ancestors]


def _backwards_after(plan: MicroBatchPlan) -> list[int]:
    """Return for each block the number of backward blocks among its descendants."""
    after = [0] * len(plan.blocks)
    for b in reversed(plan.topological_order):
        for follows, _ in plan.successors[b]:
            itself = plan.blocks[follows].kind is BlockKind.BACKWARD
            after[b] |= after[follows] | itself << follows
    return [each.bit_count() for each in after]


def _by_place(plan: MicroBatchPlan) -> Iterator[tuple[int, int]]:
    free = [b for b in plan.topological_order if plan.blocks[b].memory == 0]
    forward, backward = (
        [b for b in free if plan.blocks[b].kind is kind] for kind in (BlockKind.FORWARD, BlockKind.BACKWARD)
    )
    if len(forward) == len(backward):
        pairs = zip(forward, reversed(backward), strict=True)
        yield from (pair for pair in pairs if _same_devices(plan, *pair))


def _same_devices(plan: MicroBatchPlan, one: int, other: int) -> bool:
    return set(plan.blocks[one].devices) == set(plan.blocks[other].devices)


def _whole_backward(plan: MicroBatchPlan, stage: Sequence[int]) -> list[int]:
    kinds = [plan.blocks[b].kind for b in stage]
    split = BlockKind.WEIGHT in kinds
    return [] if split else [b for b, kind in zip(stage, kinds, strict=True) if kind is BlockKind.BACKWARD]


def _half_of(plan: MicroBatchPlan, block: int) -> int:
    duration = plan.blocks[block].duration
    if duration < 2:
        raise _refused(plan, block, "has duration 1 and cannot be halved")
    return duration // 2


def _second_halves(plan: MicroBatchPlan, stage: Sequence[int]) -> dict[int, int]:
    """Return the memory of the second half of each block: half of each acquisition, released in equal amount."""
    amounts = {b: plan.blocks[b].memory for b in stage}
    second = {b: max(0, amount) // 2 for b, amount in amounts.items()}
    owed = sum(second.values())
    released = -sum(min(0, amount) for amount in amounts.values())
    for b, amount in amounts.items():
        if amount < 0:
            share = owed * -amount // released
            second[b], owed, released = -share, owed - share, released + amount
    return second


def _ends(halves: tuple[Block, Block]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the halves that run first, and of those that run last."""
    one, other = halves[0].name, halves[1].name
    if halves[0].kind is BlockKind.WEIGHT:
        return (one, other), (one, other)
    return ((other,), (one,)) if halves[0].kind is BlockKind.BACKWARD else ((one,), (other,))


def _free_names(plan: MicroBatchPlan) -> Callable[[str], str]:
    """Return a function that makes a name unique in the plan by appending a number if needed."""
    taken = {block.name for block in plan.blocks}

    def free(preferred: str) -> str:
        name = next(name for i in count(1) if (name := preferred if i == 1 else f"{preferred}.{i}") not in taken)
        taken.add(name)
        return name

    return free


def _refused(plan: MicroBatchPlan, block: int, why: str) -> InputError:
    return InputError(f"block {plan.blocks[block].name}", why)
