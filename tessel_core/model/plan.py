"""What one micro-batch does, and on which devices."""

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
_LABELLED, _LABEL_PART = 5, 30
"""Parts of a label, and their letters, at most."""


class BlockKind(StrEnum):
    """The computation of a block; decides its colour and its place in the published schedules."""

    FORWARD = "forward"
    BACKWARD = "backward"
    WEIGHT = "weight"
    """The weight-gradient half of a split backward."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class PlanDevice:
    """A device as the schedule sees it: a name and memory, in the plan's memory unit."""

    name: str
    memory_capacity: int | None = None
    """None is unlimited; `static_memory` counts inside it."""
    static_memory: int = 0

    def __post_init__(self) -> None:
        check_name("a device", self.name)
        where = f"device {self.name}"
        check_integer(where, "static_memory", self.static_memory, least=0)
        if self.memory_capacity is not None:
            check_integer(where, "memory_capacity", self.memory_capacity, least=0)

    @property
    def activation_capacity(self) -> int | None:
        """Capacity left for micro-batches, possibly negative; None is unlimited."""
        return None if self.memory_capacity is None else self.memory_capacity - self.static_memory


@dataclass(frozen=True, slots=True)
class Block:
    """Work that one micro-batch does on a set of devices, holding all of them for the same interval."""

    name: str
    kind: BlockKind
    devices: tuple[int, ...]
    duration: int
    memory: int = 0
    """> 0 acquires at the start, < 0 releases at the end, on each of its devices."""
    label: str = ""
    """What it runs in the network's words, such as "layers 0–11"; searches ignore it."""

    @property
    def title(self) -> str:
        """The name and the label, or the name alone where it names the same layers."""
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
            raise InputError(where, "devices is empty, a block needs at least one")
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
    """A directed acyclic graph of blocks on devices: one micro-batch's work.

    Every plan that exists is well-formed: names are unique, dependencies have no cycle, and on each device the
    memory of the blocks sums to 0 and is never negative in any order that the dependencies allow.

    Raises InputError naming the block, device or dependency and what is wrong with it.
    """

    name: str
    devices: tuple[PlanDevice, ...]
    blocks: tuple[Block, ...]
    dependencies: tuple[Dependency, ...] = ()
    time_unit: str = "step"
    memory_unit: str = "slot"
    samples: int | None = None
    """Of one micro-batch, where that is known; a plan whose micro-batch goes both ways has those of both."""
    replicated: bool = False
    """Whether a block on several devices is done by replicas, a part of the micro-batch each; else a tensor-parallel
    group shares it.  Schedules do not depend on it."""
    _index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for what, text in (("plan", self.name), ("time_unit", self.time_unit), ("memory_unit", self.memory_unit)):
            if text:
                check_name(what, text)
        if self.samples is not None:
            check_integer(f"plan {self.name}", "samples", self.samples, least=1)
        if not self.devices:
            raise InputError("devices", "the plan has none, it needs at least one")
        if not self.blocks:
            raise InputError("blocks", "the plan has none, it needs at least one")
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
                    why = f"unknown device {device}, the plan has devices 0 to {len(self.devices) - 1}"
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
        """Position of the block called `name`; raises KeyError where there is none."""
        return self._index[name]

    def with_capacity(self, capacity: int | None) -> MicroBatchPlan:
        """The same plan with every device's `memory_capacity` replaced."""
        return replace(self, devices=tuple(replace(device, memory_capacity=capacity) for device in self.devices))

    @property
    def unlabelled(self) -> MicroBatchPlan:
        """The same plan as searches see it."""
        return replace(
            self, blocks=tuple(replace(block, label="") for block in self.blocks), samples=None, replicated=False
        )

    @cached_property
    def arcs(self) -> tuple[tuple[int, int, int], ...]:
        """Dependencies as (predecessor, successor, lag) in block indices."""
        return tuple((self._index[d.predecessor], self._index[d.successor], d.lag) for d in self.dependencies)

    @cached_property
    def predecessors(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Per block, its direct (predecessor, lag) pairs."""
        return grouped(len(self.blocks), ((after, (before, lag)) for before, after, lag in self.arcs))

    @cached_property
    def successors(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Per block, its direct (successor, lag) pairs."""
        return grouped(len(self.blocks), ((before, (after, lag)) for before, after, lag in self.arcs))

    @cached_property
    def blocks_on(self) -> tuple[tuple[int, ...], ...]:
        """Per device, the indices of its blocks in file order."""
        return tuple(
            tuple(b for b, block in enumerate(self.blocks) if d in block.devices) for d in range(len(self.devices))
        )

    @cached_property
    def topological_order(self) -> tuple[int, ...]:
        """Block indices with predecessors first, ties in file order."""
        return topological_order(self._before)

    @property
    def _before(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(before for before, _ in each) for each in self.predecessors)

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """Per block, the set of blocks that must run before it, as a bit mask over block indices."""
        masks = [0] * len(self.blocks)
        for block in self.topological_order:
            for before, _ in self.predecessors[block]:
                masks[block] |= masks[before] | 1 << before
        return tuple(masks)

    @cached_property
    def total_time(self) -> int:
        """Durations and lags together: ticks in which one micro-batch ends, whatever it waits for."""
        return sum(block.duration for block in self.blocks) + sum(dep.lag for dep in self.dependencies)

    @cached_property
    def work(self) -> tuple[int, ...]:
        """Ticks that one micro-batch occupies each device."""
        return tuple(sum(self.blocks[b].duration for b in on) for on in self.blocks_on)

    @property
    def busiest_work(self) -> int:
        """Work of the busiest device: no schedule can finish micro-batches faster than one per this many ticks."""
        return max(self.work)


def label_of(layers: Iterable[str]) -> str:
    """Layers as people say them, numbered ones of one name joined, the first of many.

    >>> label_of(["embedding", "layer0", "layer1", "layer2", "layer4", "head"])
    'embedding, layers 0–2, 4, head'
    """
    groups: dict[str, list[int | None]] = {}
    for layer in dict.fromkeys(layers):
        match = _NUMBERED.fullmatch(layer)
        groups.setdefault(match[1] if match else layer, []).append(int(match[2]) if match else None)
    texts = []
    for stem, found in groups.items():
        numbers = sorted(number for number in found if number is not None)
        spans = _spans(numbers)
        texts += [stem] if None in found else []
        texts += [f"{stem}{'s' if len(numbers) > 1 else ''} {spans}"] if numbers else []
    most = f", and {len(texts) - _LABELLED} more" if len(texts) > _LABELLED else ""
    return ", ".join(text[:_LABEL_PART] for text in texts[:_LABELLED]) + most


def _spans(numbers: Sequence[int]) -> str:
    """Ascending numbers with runs of neighbours joined, as in "0–2, 4"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][-1] == number - 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    return ", ".join("–".join(map(str, span)) for span in spans[:_LABELLED]) + (", …" if len(spans) > _LABELLED else "")


def check_memory_returns(plan: MicroBatchPlan) -> None:
    """Raise InputError unless every device's memory sums to 0 and can never go negative.

    The least that any order can hold is a minimum closure: each set of releases needs at least as much acquired
    by their ancestors on that device (Hall), which holds exactly when a flow from acquiring blocks to the releasing
    blocks that they precede saturates the releases [Picard 1976].
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
                "is held: the dependencies do not make the blocks that acquire it come first"
            )
            raise InputError(f"device {plan.devices[device].name}", why)
    if len(releases) < 2 or len(acquires) == 1:
        return
    short = sum(-plan.blocks[b].memory for b in releases) - _saturated(plan, acquires, releases)
    if short:
        why = f"an order that the dependencies allow releases {short} more than is held"
        raise InputError(f"device {plan.devices[device].name}", why)


def _saturated(plan: MicroBatchPlan, acquires: list[int], releases: list[int]) -> int:
    """The most that releases can give back of what is acquired before them."""
    if all(plan.ancestors[r] >> a & 1 for a in acquires for r in releases):
        return min(sum(plan.blocks[a].memory for a in acquires), -sum(plan.blocks[r].memory for r in releases))
    import networkx as nx  # late: in most plans every release comes after all that is acquired

    graph: nx.DiGraph[object] = nx.DiGraph()
    for a in acquires:
        graph.add_edge("source", a, capacity=plan.blocks[a].memory)
    for r in releases:
        graph.add_edge(r, "sink", capacity=-plan.blocks[r].memory)
        graph.add_edges_from((a, r) for a in acquires if plan.ancestors[r] >> a & 1)
    return int(nx.maximum_flow_value(graph, "source", "sink"))
