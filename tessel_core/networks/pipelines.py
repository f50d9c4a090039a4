"""From parts with costs in seconds to micro-batch plans in nanoseconds, on H200s in nodes of eight."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, product
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from tessel_core.costs import h200
from tessel_core.costs.meshes import DEVICES_PER_NODE, NVLINK, broadcast_seconds, hop_seconds
from tessel_core.errors import InputError
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice
from tessel_core.model.plan import label_of
from tessel_core.model.schedule import IntColumn
from tessel_core.networks.parts import STATIC_BYTES_PER_PARAMETER, Dimensions, Part, embedding, join, vocabulary_loss
from tessel_core.networks.shapes import forward_half
from tessel_core.units import to_bytes, to_ticks


@dataclass(frozen=True, slots=True)
class Placed:
    """A part on its devices, and what its two blocks are called."""

    part: Part
    devices: tuple[int, ...]
    forward: str
    backward: str

    def forward_block(self) -> Block:
        """Acquires what the part keeps."""
        ticks, held = to_ticks(self.part.forward), to_bytes(self.part.kept_bytes)
        return Block(self.forward, BlockKind.FORWARD, self.devices, ticks, held, label_of(self.part.layers))

    def backward_block(self) -> Block:
        """Releases what the part kept."""
        ticks, held = to_ticks(self.part.backward), to_bytes(self.part.kept_bytes)
        return Block(self.backward, BlockKind.BACKWARD, self.devices, ticks, -held, label_of(self.part.layers))

    def backward_halves(self) -> tuple[Block, Block]:
        """B computes the input gradient, which the stage before waits for, and W the weight gradients, for which
        nothing waits [Qi 2024, arXiv 2401.10241]."""
        whole, name = self.backward_block(), self.backward.replace("B", "W")
        weight, held = to_ticks(self.part.weight_gradient), to_bytes(self.part.kept_for_weights)
        by_input = replace(whole, duration=whole.duration - weight, memory=whole.memory + held)
        return by_input, replace(whole, name=name, kind=BlockKind.WEIGHT, duration=weight, memory=-held)


def cut_stages(parts: Sequence[Part], places: int | Sequence[int]) -> tuple[Part, ...]:
    """The parts as contiguous stages, so many or one for each of some devices, of which the busiest device is least."""
    places = range(places) if isinstance(places, int) else places
    cut = shared_cut([to_ticks(part.seconds) for part in parts], places)
    return tuple(join(*(parts[i] for i in stage)) for stage in cut)


def best_cut(loads: Sequence[float], stages: int) -> tuple[range, ...]:
    """The contiguous ranges of `loads`, one a stage and none empty, whose largest sum is least.

    Exact for integers.  Among cuts of the same largest sum it takes the least sum of squares, so that the other stages
    are even, and among those the one whose early stages are short, because they hold the most micro-batches.

    >>> best_cut([1, 1, 1, 1, 9], 3)
    (range(0, 2), range(2, 4), range(4, 5))

    Raises InputError when there are more stages than parts.
    """
    if not 1 <= stages <= len(loads):
        raise InputError("stages", f"must be between 1 and the {len(loads)} parts there are, got {stages}")
    sums = [0, *accumulate(loads)]
    ends = _evenest(sums, stages, _least_largest(sums, stages))
    return tuple(range(first, last) for first, last in pairwise((0, *ends)))


def shared_cut(loads: Sequence[float], places: Sequence[int]) -> tuple[range, ...]:
    """As `best_cut`, a range for each of `places`, of which several may be the same device: then the largest sum of a
    device counts.

    Exact where all places differ.  Where each comes twice, the second time in the same order or in the reverse one (a
    loop, ZB-V), whole cuts are searched by what the two stages of each device can reach, which was never worse than
    brute force in 1,500 small cases.  From there, else from the best cut of equal stages, ends move, any neighbouring
    ones together, as long as the largest sum of a device falls, or at the same largest the sum of squares.
    """
    cut = best_cut(loads, len(places))
    if len(set(places)) == len(places):
        return cut
    sums = [0, *accumulate(loads)]

    def unevenness(ends: tuple[int, ...]) -> tuple[float, float]:
        held = dict.fromkeys(places, 0.0)
        for place, (first, last) in zip(places, pairwise(ends), strict=True):
            held[place] += sums[last] - sums[first] if first < last else inf
        return max(held.values()), sum(load**2 for load in held.values())

    begin = (0, *(stage.stop for stage in cut))
    ends, moved = tuple[int, ...](), min([begin, *_cut_in_two_rounds(loads, places)], key=unevenness)
    while ends != moved:
        ends, inner = moved, range(1, len(places))
        shifts = ((low, high, by) for low in inner for high in inner if low <= high for by in (-1, 1))
        moves = (tuple(e + by * (low <= i <= high) for i, e in enumerate(ends)) for low, high, by in shifts)
        moved = min((ends, *moves), key=unevenness)
    return tuple(range(first, last) for first, last in pairwise(ends))


def _cut_in_two_rounds(loads: Sequence[float], places: Sequence[int]) -> list[tuple[int, ...]]:
    """0 and the ends of a cut of least largest sum, where each place comes twice; empty where they do not so."""
    half, whole = len(places) // 2, len(loads)
    first, second = tuple(places[:half]), tuple(places[half:])
    if second not in (first, first[::-1]) or len(set(first)) < half:
        return []
    middles = range(half, whole - half + 1) if second == first else (None,)
    found, most, least = tuple[int, ...](), ceil(sum(loads)), ceil(sum(loads) / half) - 1
    for turned, middle in product((False, True), middles):  # what reaches further is not always better: both ways
        each = _Rounds(loads[::-1] if turned else loads, half, middle)
        low, limit = least, most - 1
        while low < most - 1:
            ends = each.within(limit)
            if ends:
                found, most = tuple(whole - end for end in reversed(ends)) if turned else ends, limit
            else:
                low = limit
            limit = (low + most) // 2
    return [found] if found else []


class _Rounds:
    """Cuts of parts in two rounds over some devices; the second begins at `middle`, or comes back from the end."""

    def __init__(self, loads: Sequence[float], devices: int, middle: int | None = None) -> None:
        self._devices, self._middle, self._whole = devices, middle, len(loads)
        self._there = _sums(loads[:middle])
        self._back = _sums(loads[::-1] if middle is None else loads[middle:])

    def within(self, limit: float) -> tuple[int, ...]:
        """0 and the ends of a cut in which no device has more than `limit`; empty where there is none.

        After each device, by the end of its first stage: the most that its second can end at.
        """
        there, back, inside = self._there, self._back, np.arange(len(self._there))
        reached, came = np.where(inside > 0, -1, 0), list[tuple[IntColumn, IntColumn]]()
        room = limit - (there[None, :] - there[:, None])
        for after in reversed(range(self._devices)):
            if self._middle is None:
                most = self._whole - inside - 2 * after
            else:
                most = np.where(inside <= self._middle - after, len(back) - 1 - after, -1)
            ends = np.searchsorted(back, back[reached][:, None] + room, side="right") - 1
            ends = np.minimum(ends, most[None, :])
            ends[(inside[:, None] >= inside[None, :]) | (reached[:, None] < 0) | (ends <= reached[:, None])] = -1
            reached, before = ends.max(axis=0), ends.argmax(axis=0)
            came.append((reached, before))
        needed = self._whole - inside if self._middle is None else np.where(inside == self._middle, len(back) - 1, -2)
        last = np.flatnonzero((reached == needed) & (reached > 0))
        if not last.size:
            return ()
        at, there_ends, back_ends = int(last[0]), list[int](), list[int]()
        for reached, before in reversed(came):
            there_ends.append(at)
            back_ends.append(int(reached[at]))
            at = int(before[at])
        if self._middle is None:
            return 0, *there_ends[::-1], *(self._whole - end for end in back_ends[1:]), self._whole
        return 0, *there_ends[::-1], *(self._middle + end for end in back_ends[::-1])


def _sums(loads: Sequence[float]) -> NDArray[np.float64]:
    return np.array([0, *accumulate(loads)], dtype=np.float64)


def _least_largest(sums: list[float], stages: int) -> float:
    """Least load of the busiest stage; in each round, `best[e]` is that of the first e parts in `count` stages."""
    best = list(sums)
    for count in range(2, stages + 1):
        best = [
            min((max(best[cut], sums[end] - sums[cut]) for cut in range(count - 1, end)), default=inf)
            for end in range(len(sums))
        ]
    return best[-1]


def _evenest(sums: list[float], stages: int, most: float) -> tuple[int, ...]:
    """Ends of the stages of the cut of least sum of squares among those whose stages all stay within `most`."""

    def square(load: float) -> float:
        return load**2 if load <= most else inf

    best: list[tuple[float, tuple[int, ...]]] = [(square(total), (end,)) for end, total in enumerate(sums)]
    for count in range(2, stages + 1):
        best = [
            min(
                ((best[cut][0] + square(sums[end] - sums[cut]), (*best[cut][1], end)) for cut in range(count - 1, end)),
                default=(inf, ()),
            )
            for end in range(len(sums))
        ]
    return best[-1][1]


def pipeline_plan(
    name: str, chains: Sequence[Sequence[Placed]], group: int = 1, *, split: bool = False
) -> MicroBatchPlan:
    """Chains of stages, each forward in order and backward in reverse, that hold their weights on the devices that they
    pass; outputs and their gradients travel between neighbours.

    With `split`, every backward is in two.  With `group` above 1, a plan's device is a tensor-parallel group of that
    many GPUs, and its memory is one GPU's.
    """
    blocks, links = list[Block](), list[Dependency]()
    static = [0] * (1 + max(stage.devices[0] for chain in chains for stage in chain))
    for chain in chains:
        blocks += training_blocks(chain, split=split)
        links += [*stage_links(chain, group), link(chain[-1].forward, chain[-1].backward)]
        for stage in chain:
            static[stage.devices[0]] += stage.part.static_bytes
            by_input, weight = stage.backward_halves()
            links += [link(by_input.name, weight.name)] if split else []
    return h200_plan(name, blocks, links, static, group)


def sharded_plan(
    name: str, size: Dimensions, stages: Sequence[Part], decoder_stage: int | None = None
) -> MicroBatchPlan:
    """A V of stages between blocks on all devices: the sharded embedding E, and projection and loss H, with their
    backwards Eb and Hb; and, before the decoder's first stage, the same embedding once more as D and Db.

    The last stage's output reaches all devices before H, an input gradient before Eb or Db, by broadcast; the other
    way, all-reduces inside the blocks leave the sums everywhere.  D needs nothing but tokens and nothing needs Db:
    dependencies hold them at the places that the NN shape gives them.
    """
    devices, last = len(stages), len(stages) - 1
    embed, loss = embedding(size, devices), vocabulary_loss(size, devices)
    spread = broadcast_seconds(NVLINK, size.hidden_bytes, devices)
    in_turn = in_stages(stages, range(devices))
    placed = [everywhere("E", embed, devices), *in_turn, everywhere("H", loss, devices)]
    links = [link("E", "F0"), *stage_links(in_turn), link(f"F{last}", "H", spread)]
    links += [link("H", "Hb"), link("Hb", f"B{last}"), link("B0", "Eb", spread)]
    if decoder_stage is not None:
        placed.insert(1 + decoder_stage, everywhere("D", embed, devices))
        links += [link(f"F{decoder_stage - 1}", "D"), link("D", f"F{decoder_stage}")]
        links += [link(f"B{decoder_stage}", "Db", spread), link("Db", f"B{decoder_stage - 1}")]
    shards = embed.static_bytes + loss.static_bytes
    return h200_plan(name, training_blocks(placed), links, [stage.static_bytes + shards for stage in stages])


def in_stages(stages: Iterable[Part], devices: Iterable[int], branch: str = "") -> tuple[Placed, ...]:
    """A stage each on `devices` in turn; the branch's letter comes before F and B."""
    places = enumerate(zip(stages, devices, strict=True))
    return tuple(Placed(stage, (device,), f"{branch}F{s}", f"{branch}B{s}") for s, (stage, device) in places)


def everywhere(name: str, part: Part, devices: int) -> Placed:
    """A part that runs on all devices at the same time."""
    return Placed(part, tuple(range(devices)), name, f"{name}b")


def stage_links(placed: Sequence[Placed], group: int = 1) -> tuple[Dependency, ...]:
    """Between neighbours: the output on the way down, its gradient, as large, on the way up."""
    up = [link(after.backward, before.backward, _hop(before, after, group)) for before, after in pairwise(placed)]
    return (*forward_links(placed, group), *reversed(up))


def forward_links(placed: Sequence[Placed], group: int = 1) -> tuple[Dependency, ...]:
    """The way down alone."""
    return tuple(link(before.forward, after.forward, _hop(before, after, group)) for before, after in pairwise(placed))


def _hop(before: Placed, after: Placed, group: int) -> float:
    if before.devices == after.devices:
        return 0.0
    return hop_seconds(before.part.sent_bytes, before.devices[0], after.devices[0], group)


def link(predecessor: str, successor: str, seconds: float = 0.0) -> Dependency:
    """A dependency whose transfer takes that long."""
    return Dependency(predecessor, successor, to_ticks(seconds) if seconds else 0)


def training_blocks(placed: Sequence[Placed], *, split: bool = False) -> tuple[Block, ...]:
    """Forward blocks in order and backward blocks, or their halves, in reverse order."""
    forward = [each.forward_block() for each in placed]
    backward = [each.backward_halves() if split else (each.backward_block(),) for each in reversed(placed)]
    return (*forward, *[block for blocks in backward for block in blocks])


def h200_plan(
    name: str, blocks: Sequence[Block], links: Iterable[Dependency], static: Sequence[int], group: int = 1
) -> MicroBatchPlan:
    """A plan on H200s, of which each holds `static` bytes whatever runs; `group` of them are a device of the plan."""
    kind = {1: "gpu", DEVICES_PER_NODE: "node"}.get(group, "group")
    devices = tuple(PlanDevice(f"{kind}{d}", h200.MEMORY_BYTES, to_bytes(held)) for d, held in enumerate(static))
    return MicroBatchPlan(f"{name}-{len(static)}", devices, tuple(blocks), tuple(links), "ns", "B")


def weights_only(plan: MicroBatchPlan, name: str) -> MicroBatchPlan:
    """Inference: the forward blocks alone, holding nothing, on devices without gradients and optimizer state."""
    half = forward_half(plan, name)
    share = STATIC_BYTES_PER_PARAMETER // h200.BYTES_PER_ELEMENT
    devices = tuple(replace(device, static_memory=device.static_memory // share) for device in half.devices)
    return replace(half, devices=devices)
