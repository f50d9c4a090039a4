"""Micro-batch plans: the work of one micro-batch, as blocks on devices with dependencies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from tessel_core.errors import InputError
from tessel_core.model.checks import check_integer, check_name, check_unique, find_cycle, grouped, topological_order
from tessel_core.shown import Shown
from tessel_core.units import MAGNITUDE

_NUMBERED = re.compile(r"(.*?[^\d\W_])[ _.-]?(\d{1,9})")
_MAX_LABEL_PARTS, _MAX_PART_CHARACTERS = 5, 30


class BlockKind(StrEnum):
    """Kind of a block's computation. It decides the block's colour in charts and its order in published schedules."""

    FORWARD = "forward"
    BACKWARD = "backward"
    WEIGHT = "weight"
    """Weight gradients of a backward pass that is split into two blocks."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class PlanDevice:
    """Name of a device, and its memory in the plan's unit."""

    name: str
    memory_capacity: int | None = None
    """Total capacity, including `static_memory`. None means unlimited."""
    static_memory: int = 0

    def __post_init__(self) -> None:
        check_name("a device", self.name)
        where = f"device {self.name}"
        check_integer(where, "static_memory", self.static_memory, least=0)
        if self.memory_capacity is not None:
            check_integer(where, "memory_capacity", self.memory_capacity, least=0)

    @property
    def activation_capacity(self) -> int | None:
        """Capacity minus static memory. It may be negative. None means unlimited."""
        return None if self.memory_capacity is None else self.memory_capacity - self.static_memory


@dataclass(frozen=True, slots=True)
class Block:
    """Work of one micro-batch that occupies a set of devices for the same interval."""

    name: str
    kind: BlockKind
    devices: tuple[int, ...]
    duration: int
    memory: int = 0
    """Memory on each of the block's devices: acquired at its start if positive, released at its end if negative."""
    label: str = ""
    """Readable name of the block's layers, such as "layers 0–11". Searches ignore it."""

    @property
    def title(self) -> str:
        """Name and label of the block. The label is left out if the name contains the same layers."""
        name, label = (re.findall(r"\d+|[^\W\d_]+|…", text.lower()) for text in (self.name, self.label))
        singular = [label[0], label[0].removesuffix("s")] if label else []
        said = "…" not in name and not {*singular}.isdisjoint(name) and label[-1] in name
        return self.name if said or not label else f"{self.name} · {self.label}"

    def __post_init__(self) -> None:
        check_name("a block", self.name)
        where = f"block {self.name}"
        if self.label:
            check_name(f"{where}, label", self.label)
        if not isinstance(self.kind, BlockKind):
            raise InputError(where, f"kind must be one of {', '.join(BlockKind)}, got {self.kind!r}")
        if not self.devices:
            raise InputError(where, "devices is empty, but a block needs at least one")
        if len(set(self.devices)) < len(self.devices):
            raise InputError(where, f"devices names a device twice: {list(self.devices)}")
        check_integer(where, "duration", self.duration, least=1)
        check_integer(where, "memory", self.memory, least=-MAGNITUDE)


@dataclass(frozen=True, slots=True)
class Dependency:
    """`successor` starts at least `lag` ticks after `predecessor` ends, for the same micro-batch."""

    predecessor: str
    successor: str
    lag: int = 0

    def __post_init__(self) -> None:
        check_integer(f"dependency {self.predecessor} -> {self.successor}", "lag", self.lag, least=0)


@dataclass(frozen=True)
class MicroBatchPlan(Shown):
    """A directed acyclic graph of blocks on devices, which is the work of one micro-batch.

    Every instance is well-formed: names are unique and dependencies have no cycle. On each device, the memory of the
    blocks sums to 0, and no order that the dependencies allow makes it negative.

    Raises InputError, which names the block, device or dependency at fault.
    """

    name: str
    devices: tuple[PlanDevice, ...]
    blocks: tuple[Block, ...]
    dependencies: tuple[Dependency, ...] = ()
    time_unit: str = "step"
    memory_unit: str = "slot"
    samples: int | None = None
    """Samples per micro-batch, or None if unknown. In a bidirectional pipeline, those of both directions count."""
    replicated: bool = False
    """Whether the devices of a block are replicas that divide the micro-batch, and not a tensor-parallel group.
    Schedules do not depend on it."""
    _index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for what, text in (("plan", self.name), ("time_unit", self.time_unit), ("memory_unit", self.memory_unit)):
            if text:
                check_name(what, text)
        if self.samples is not None:
            check_integer(f"plan {self.name}", "samples", self.samples, least=1)
        if not self.devices:
            raise InputError("devices", "the plan has none, but needs at least one")
        if not self.blocks:
            raise InputError("blocks", "the plan has none, but needs at least one")
        check_unique("devices", (device.name for device in self.devices))
        check_unique("blocks", (block.name for block in self.blocks))
        object.__setattr__(self, "_index", {block.name: i for i, block in enumerate(self.blocks)})
        self._check_references()
        self._check_sums()
        check_memory_returns(self)

    def _check_references(self) -> None:
        for block in self.blocks:
            for device in block.devices:
                if not 0 <= device < len(self.devices):
                    why = f"unknown device {device}: the plan has devices 0 to {len(self.devices) - 1}"
                    raise InputError(f"block {block.name}", why)
        check_unique("dependencies", (f"{dep.predecessor} -> {dep.successor}" for dep in self.dependencies))
        for dep in self.dependencies:
            for name in (dep.predecessor, dep.successor):
                if name not in self._index:
                    raise InputError(f"dependency {dep.predecessor} -> {dep.successor}", f"unknown block {name!r}")
        cycle = find_cycle(self._before)
        if cycle:
            raise InputError("dependencies", f"they form a cycle: {' -> '.join(self.blocks[b].name for b in cycle)}")

    def _check_sums(self) -> None:
        if self.total_time > MAGNITUDE:
            raise InputError("blocks", f"durations and lags sum to {self.total_time}, more than 2^53")
        for i, device in enumerate(self.devices):
            held = sum(abs(self.blocks[b].memory) for b in self.blocks_on[i]) + device.static_memory
            if held > MAGNITUDE:
                raise InputError(f"device {device.name}", f"memory sums to {held}, more than 2^53")

    def block_index(self, name: str) -> int:
        """Return the position of the block called `name`. Raises KeyError if there is none."""
        return self._index[name]

    def with_capacity(self, capacity: int | None) -> MicroBatchPlan:
        """Return the plan with another `memory_capacity` for every device."""
        return replace(self, devices=tuple(replace(device, memory_capacity=capacity) for device in self.devices))

    @property
    def unlabelled(self) -> MicroBatchPlan:
        """The plan without labels, `samples` and `replicated`, which do not change the result of a search."""
        return replace(
            self, blocks=tuple(replace(block, label="") for block in self.blocks), samples=None, replicated=False
        )

    @cached_property
    def arcs(self) -> tuple[tuple[int, int, int], ...]:
        """Dependencies as (predecessor, successor, lag), with block indices."""
        return tuple((self._index[d.predecessor], self._index[d.successor], d.lag) for d in self.dependencies)

    @cached_property
    def predecessors(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Pairs (predecessor, lag) of each block, for its direct predecessors."""
        return grouped(len(self.blocks), ((after, (before, lag)) for before, after, lag in self.arcs))

    @cached_property
    def successors(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Pairs (successor, lag) of each block, for its direct successors."""
        return grouped(len(self.blocks), ((before, (after, lag)) for before, after, lag in self.arcs))

    @cached_property
    def blocks_on(self) -> tuple[tuple[int, ...], ...]:
        """Block indices of each device, in the plan's order."""
        return tuple(
            tuple(b for b, block in enumerate(self.blocks) if d in block.devices) for d in range(len(self.devices))
        )

    @cached_property
    def topological_order(self) -> tuple[int, ...]:
        """Block indices with predecessors first. Blocks that may come in any order keep the plan's order."""
        return topological_order(self._before)

    @property
    def _before(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(before for before, _ in each) for each in self.predecessors)

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """Blocks that must run before each block, as a bit mask over block indices."""
        masks = [0] * len(self.blocks)
        for block in self.topological_order:
            for before, _ in self.predecessors[block]:
                masks[block] |= masks[before] | 1 << before
        return tuple(masks)

    @cached_property
    def total_time(self) -> int:
        """Sum of all durations and lags, in ticks. No micro-batch that runs alone needs more time."""
        return sum(block.duration for block in self.blocks) + sum(dep.lag for dep in self.dependencies)

    @cached_property
    def work(self) -> tuple[int, ...]:
        """Ticks for which one micro-batch occupies each device."""
        return tuple(sum(self.blocks[b].duration for b in on) for on in self.blocks_on)

    @property
    def busiest_work(self) -> int:
        """Work of the busiest device in ticks. No schedule has a shorter period per micro-batch."""
        return max(self.work)


def label_of(layers: Iterable[str]) -> str:
    """Write a short list of layers. Layers that differ only in their number are joined, and a long list is cut.

    >>> label_of(["embedding", "layer0", "layer1", "layer2", "layer4", "head"])
    'embedding, layers 0–2, 4, head'
    """
    groups: dict[str, list[int | None]] = {}
    for layer in dict.fromkeys(layers):
        match = _NUMBERED.fullmatch(layer)
        groups.setdefault(match[1] if match else layer, []).append(int(match[2]) if match else None)
    texts = []
    for stem, members in groups.items():
        numbers = sorted(number for number in members if number is not None)
        spans = _spans(numbers)
        texts += [stem] if None in members else []
        texts += [f"{stem}{'s' if len(numbers) > 1 else ''} {spans}"] if numbers else []
    most = f", and {len(texts) - _MAX_LABEL_PARTS} more" if len(texts) > _MAX_LABEL_PARTS else ""
    return ", ".join(text[:_MAX_PART_CHARACTERS] for text in texts[:_MAX_LABEL_PARTS]) + most


def _spans(numbers: Sequence[int]) -> str:
    """Write ascending numbers with consecutive ones joined, as in "0–2, 4"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][-1] == number - 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    texts = ["–".join(map(str, span)) for span in spans[:_MAX_LABEL_PARTS]]
    return ", ".join([*texts, "…"] if len(spans) > _MAX_LABEL_PARTS else texts)


def check_memory_returns(plan: MicroBatchPlan) -> None:
    """Raise InputError unless every device's memory sums to 0 and never becomes negative.

    The least memory over all orders is a minimum closure. It is not negative if and only if the ancestors of each set
    of releases acquire at least what the set releases (Hall's condition). Equivalently, a flow from acquiring blocks
    to the releasing blocks after them saturates the releases [Picard 1976].
    """
    for d, device in enumerate(plan.devices):
        acquires = [b for b in plan.blocks_on[d] if plan.blocks[b].memory > 0]
        releases = [b for b in plan.blocks_on[d] if plan.blocks[b].memory < 0]
        total = sum(plan.blocks[b].memory for b in acquires + releases)
        if total != 0:
            why = f"the memory of one micro-batch's blocks must sum to 0, it sums to {total}"
            raise InputError(f"device {device.name}", why)
        _check_never_negative(plan, d, acquires, releases)


def _check_never_negative(plan: MicroBatchPlan, device: int, acquires: list[int], releases: list[int]) -> None:
    for release in releases:
        available = sum(plan.blocks[a].memory for a in acquires if plan.ancestors[release] >> a & 1)
        if available < -plan.blocks[release].memory:
            why = (
                f"block {plan.blocks[release].name} can release {-plan.blocks[release].memory} when only {available} "
                "is held: no dependency makes it wait for the blocks that acquire this memory"
            )
            raise InputError(f"device {plan.devices[device].name}", why)
    if len(releases) < 2 or len(acquires) == 1:
        return
    short = sum(-plan.blocks[b].memory for b in releases) - _saturated(plan, acquires, releases)
    if short:
        why = f"in some order that the dependencies allow, blocks release {short} more than is held"
        raise InputError(f"device {plan.devices[device].name}", why)


def _saturated(plan: MicroBatchPlan, acquires: list[int], releases: list[int]) -> int:
    """Return the maximum flow of memory from blocks that acquire it to later blocks that release it."""
    if all(plan.ancestors[r] >> a & 1 for a in acquires for r in releases):
        return min(sum(plan.blocks[a].memory for a in acquires), -sum(plan.blocks[r].memory for r in releases))
    import networkx as nx  # imported here: in most plans, every release follows all acquiring blocks

    graph: nx.DiGraph[object] = nx.DiGraph()
    for a in acquires:
        graph.add_edge("source", a, capacity=plan.blocks[a].memory)
    for r in releases:
        graph.add_edge(r, "sink", capacity=-plan.blocks[r].memory)
        graph.add_edges_from((a, r) for a in acquires if plan.ancestors[r] >> a & 1)
    return int(nx.maximum_flow_value(graph, "source", "sink"))
