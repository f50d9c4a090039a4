"""ZB-V, V-Half and V-Min: pipelines in a V, down the devices and up again, with split backward passes.

Each device has two stages, called chunks. Publications draw these schedules in *slots*, and every pass takes one slot.
Only the order of the slots is used here. A *building block* is the slots of all passes of one micro-batch. It repeats
with every micro-batch, six slots later each time. A split backward pass has an input half and a weight half (see
`chain.Chain`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from tessel_core.model import BlockKind, MicroBatchPlan
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.baselines.chain import Chain, find_chain, with_split_backward
from tessel_core.scheduling.order import Run, merge_device_orders, numbered_runs, published

_PERIOD_SLOTS = 6
"""Number of slots from one micro-batch to the next. Each device runs three passes for each of its two chunks."""

Slots = dict[Run, int]


def _find_two_chunks(plan: MicroBatchPlan) -> Chain | str:
    """Return the plan as a chain of 2p stages on p devices, or one sentence on why it is not one.

    The stages s and 2p - 1 - s share a device.
    """
    chain = find_chain(plan)
    if isinstance(chain, str):
        return chain
    devices = len(chain.devices) // 2
    if chain.devices[:devices] != chain.devices[devices:][::-1] or len(set(chain.devices)) != devices:
        return "its stages do not go down the devices and up again with two stages on each"
    return with_split_backward(chain)


def _in_slots(slots: Slots) -> list[Run]:
    """Return the runs in order of their slots."""
    return sorted(slots, key=slots.__getitem__)


def _weights_where_idle(plan: MicroBatchPlan, chain: Chain, order: Sequence[Run], most_held: int) -> Slots:
    """Return slots for the runs of `order`, and for the weight halves that `order` lacks.

    These weight halves run where a device would idle.

    Runs start as early as the order on their device allows. The activations of a chunk are held from its forward pass
    to its weight half. No device holds the activations of more than `most_held` chunks.
    """
    own: dict[int, list[Run]] = {device: [] for device in chain.devices}
    for b, m in order:
        own[plan.blocks[b].devices[0]].append((b, m))
    lines = [_Line(plan, chain, runs, most_held) for runs in own.values()]
    slots: Slots = {}
    now = 0
    while any(line.waiting or line.late for line in lines):
        taken = [run for run in (line.take(slots) for line in lines) if run is not None]
        assert taken, f"the orders of the devices of plan {plan.name} deadlock"
        slots.update((run, now) for run in taken)
        now += 1
    return slots


class _Line:
    """The runs that one device still has to execute.

    `room` is the number of chunks whose activations it can still hold.
    """

    def __init__(self, plan: MicroBatchPlan, chain: Chain, runs: Sequence[Run], most_held: int) -> None:
        self.plan = plan
        self.room = most_held
        self.waiting = deque(runs)
        self.late: deque[Run] = deque()
        self.weight_of = dict(zip(chain.backward, chain.weight, strict=True))
        self.placed = set(self.waiting)

    def take(self, done: Slots) -> Run | None:
        """Return the run for the current slot, or None. Runs in `done` have ended."""
        if self.waiting and self._can_start(self.waiting[0], done):
            b, m = self.waiting.popleft()
        elif self.late and self._can_start(self.late[0], done):
            b, m = self.late.popleft()
        else:
            return None
        kind, weight = self.plan.blocks[b].kind, self.weight_of.get(b)
        self.room += (kind is BlockKind.WEIGHT) - (kind is BlockKind.FORWARD)
        if weight is not None and (weight, m) not in self.placed:
            self.late.append((weight, m))
        return b, m

    def _can_start(self, run: Run, done: Slots) -> bool:
        b, m = run
        if not self.room and self.plan.blocks[b].kind is BlockKind.FORWARD:
            return False
        return all((a, m) in done for a, _ in self.plan.predecessors[b])


def _zb_v_order(plan: MicroBatchPlan, chain: Chain, micro_batches: int) -> list[Run]:
    """Return the handcrafted order of ZB-V on p devices [Qi 2024, section 6].

    Its steady phase alternates a forward pass, an input half and a weight half of each chunk. It needs 2p - 1
    micro-batches. With fewer micro-batches, weight halves run where devices would idle instead.
    """
    devices = len(chain.devices) // 2
    planned = max(micro_batches, 2 * devices - 1)
    orders = [numbered_runs(_blocks(chain, d, planned), micro_batches) for d in range(devices)]
    merged = merge_device_orders(plan, orders)
    if micro_batches == planned:
        return merged
    urgent = [run for run in merged if run[0] not in chain.weight]
    return _in_slots(_weights_where_idle(plan, chain, urgent, most_held=2 * devices))


def _blocks(chain: Chain, device: int, micro_batches: int) -> list[int]:
    """Return the blocks of a device in their order. `micro_batches` is at least 2p - 1 on p devices.

    Local names such as f0 end in the chunk: 0 is on the way down, and 1 is on the way up.
    """
    devices = len(chain.devices) // 2
    second, below = 2 * devices - 1 - device, devices - device
    f0, b0, w0 = chain.forward[device], *chain.whole_backward(device)
    f1, b1, w1 = chain.forward[second], *chain.whole_backward(second)
    blocks = [f0] * (2 * below - 1) + [f1, f0] * device + [f1, b1, w1] * below
    blocks += [f0, b0, w0, f1, b1, w1] * (micro_batches - (2 * devices - 1) + device)
    blocks += [b0, w0, f1, b1, w1] * (below - 1)
    return blocks + [b0, b1] * device + [b0, w0] * below + [w1] * device + [w0] * device


ZB_V = published(
    "zb-v",
    "ZB-V",
    "Qi et al., Zero Bubble Pipeline Parallelism, 2024, arXiv 2401.10241; Pipeline Parallelism with Controllable "
    "Memory, NeurIPS 2024, arXiv 2405.15362",
    _find_two_chunks,
    _zb_v_order,
    needs="ZB-V needs two stages per device in a V",
)


def _v_half_order(plan: MicroBatchPlan, chain: Chain, micro_batches: int) -> list[Run]:
    """Return the order of V-Half on p devices [Qi 2024, arXiv 2405.15362].

    A device holds the activations of at most p/2 + 1 micro-batches. In the building block, a micro-batch reaches the
    next device after two slots in forward passes of first chunks and in input halves of second chunks, and after one
    slot in all other passes.
    """
    p = len(chain.devices) // 2
    pause = 0 if p % 2 else 3  # without this pause, two passes would share a slot if p is even
    first = [(2 * s, 6 * p - 2 + pause - s) for s in range(p)]
    second = [(p - 1 + s, 7 * p - 3 + pause - 2 * s) for s in range(p, 2 * p)]
    return _repeated(plan, chain, first + second, micro_batches, most_held=2 * ((p + 2) // 2))


V_HALF = published(
    "v-half",
    "V-Half",
    "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024, arXiv 2405.15362",
    _find_two_chunks,
    _v_half_order,
    needs="V-Half needs two stages per device in a V",
)


def _v_min_order(plan: MicroBatchPlan, chain: Chain, micro_batches: int) -> list[Run]:
    """Return the order of V-Min on p devices [Qi 2024, arXiv 2405.15362].

    A device holds the activations of at most p/3 + 4/3 micro-batches. In the building block, a micro-batch reaches the
    next device after one slot in every pass.
    """
    p = len(chain.devices) // 2
    pause = 0 if p % 3 else 2  # without this pause, two passes would share a slot if p is a multiple of three
    block = [(s, 4 * p - 1 + pause - s) for s in range(2 * p)]
    return _repeated(plan, chain, block, micro_batches, most_held=2 * ((p + 4) // 3))


V_MIN = published(
    "v-min",
    "V-Min",
    "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024, arXiv 2405.15362",
    _find_two_chunks,
    _v_min_order,
    needs="V-Min needs two stages per device in a V",
)


def _repeated(
    plan: MicroBatchPlan, chain: Chain, block: Sequence[tuple[int, int]], micro_batches: int, most_held: int
) -> list[Run]:
    """Return the order of a repeated building block, with shortened warmup and cooldown.

    `block[s]` has the slots of the forward pass and the input half of stage s. Weight halves fill the gaps. Then passes
    of warmup and cooldown are moved to idle slots, as long as that shortens the schedule. No device holds the
    activations of more than `most_held` chunks. Between warmup and cooldown, the building block stays unchanged.
    """
    slots: Slots = {}
    for stage, pair in enumerate(block):
        for b, slot in zip((chain.forward[stage], chain.backward[stage]), pair, strict=True):
            slots.update(((b, m), slot + m * _PERIOD_SLOTS) for m in range(micro_batches))
    slots.update(_gaps_for_weights(plan, chain, slots))
    slots = _reordered(plan, chain, slots, most_held)
    while True:
        shorter = _reordered(plan, chain, slots, most_held)
        if max(shorter.values()) >= max(slots.values()):
            return _in_slots(slots)
        slots = shorter


def _reordered(plan: MicroBatchPlan, chain: Chain, slots: Slots, most_held: int) -> Slots:
    """Return slots with earlier passes of warmup and cooldown. Weight halves of the cooldown run where devices idle."""
    moved = _moved_earlier(plan, chain, slots, most_held)
    cooldown = max(slot for run, slot in moved.items() if run[0] == chain.forward[0])
    weights = set(chain.weight)
    kept = [run for run in _in_slots(moved) if run[0] not in weights or moved[run] < cooldown]
    return _weights_where_idle(plan, chain, kept, most_held)


def _gaps_for_weights(plan: MicroBatchPlan, chain: Chain, slots: Slots) -> Slots:
    """Return a slot for each weight half: the first idle slot of its device, in order of the input halves."""
    busy = {(plan.blocks[b].devices[0], slot) for (b, _), slot in slots.items()}
    weight_of = dict(zip(chain.backward, chain.weight, strict=True))
    gaps: Slots = {}
    next_gap = dict.fromkeys(chain.devices, 0)
    for b, m in _in_slots(slots):
        weight = weight_of.get(b)
        if weight is None:
            continue
        d = plan.blocks[b].devices[0]
        slot = max(next_gap[d], slots[b, m] + 1)
        while (d, slot) in busy:
            slot += 1
        gaps[weight, m], next_gap[d] = slot, slot + 1
    return gaps


def _moved_earlier(plan: MicroBatchPlan, chain: Chain, slots: Slots, most_held: int) -> Slots:
    """Return slots in which each run of warmup and cooldown is in its device's first idle slot after its predecessors.

    A forward pass moves only if its device then holds the activations of at most `most_held` chunks. Warmup ends with
    the first stage's first input half, and cooldown begins with the first stage's last forward pass.
    """
    moved = dict(slots)
    warm, cold = slots[chain.backward[0], 0], max(slots[run] for run in slots if run[0] == chain.forward[0])
    busy = {(plan.blocks[b].devices[0], slot) for (b, _), slot in slots.items()}
    held = _held(plan, slots)
    for b, m in _in_slots(slots):
        d, kind, was = plan.blocks[b].devices[0], plan.blocks[b].kind, moved[b, m]
        if warm < was < cold:
            continue
        before = [moved[run] for run in ((b, m - 1), *((a, m) for a, _ in plan.predecessors[b])) if run in moved]
        for slot in range(max(before, default=-1) + 1, was):
            if (d, slot) in busy or (kind is BlockKind.FORWARD and held[d, slot:was].max() >= most_held):
                continue
            busy ^= {(d, slot), (d, was)}
            moved[b, m] = slot
            if kind is BlockKind.FORWARD:
                held[d, slot:was] += 1
            elif kind is BlockKind.WEIGHT:
                held[d, slot + 1 : was + 1] -= 1
            break
    return moved


def _held(plan: MicroBatchPlan, slots: Slots) -> IntColumn:
    """Return the number of chunks whose activations each device holds in each slot, shaped (devices, slots)."""
    change = np.zeros((len(plan.devices), max(slots.values()) + 2), dtype=np.int64)
    for (b, _), slot in slots.items():
        block = plan.blocks[b]
        if block.kind is BlockKind.FORWARD:
            change[block.devices[0], slot] += 1
        elif block.kind is BlockKind.WEIGHT:
            change[block.devices[0], slot + 1] -= 1
    return np.cumsum(change, axis=1)
