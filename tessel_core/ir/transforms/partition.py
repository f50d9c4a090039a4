"""Build the program of all devices from a model and a schedule.

It runs the operations of each block in the order of the schedule's runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from tessel_core.ir.builder import ProgramBuilder, collection_paused
from tessel_core.ir.distributed import Distributed, Piece, divided, elsewhere
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op, Scope, Tag
from tessel_core.model import Schedule

Run = tuple[int, int, int]
"""Start, block and micro-batch."""
ANYWHERE = -1
_SCATTERING_LAYERS = 2
"""Number of the latest layers whose reduce-scatters of gradients may still be running.

Their gradients are not yet added to the sums.
"""
ChooseSender = Callable[[Sequence[int], int], int]
"""Chooses which of several devices with the same tensor sends it to another device."""


def first_of(senders: Sequence[int], receiver: int) -> int:
    """Return the first of the devices that have the tensor."""
    return senders[0]


@dataclass(frozen=True, slots=True)
class Partition:
    """Runs every operation once per micro-batch, on the devices of its block, in the order of the schedule.

    A tensor that a block on another device uses is sent after the run that computes it. Runs that start together are
    issued together, followed by their transfers. Every device of a block runs all operations of the block, unless
    `shares` is set. Outputs without a batch axis, such as gradients, are added over micro-batches. Outputs with a batch
    axis are concatenated. Tensors that are changed in place, such as caches, are neither added nor concatenated: each
    micro-batch has its own output.

    Raises InputError if the batch does not divide into micro-batches.
    """

    schedule: Schedule
    block_of: tuple[int, ...]
    """Block of each operation. `ANYWHERE` marks a view, which every device that uses it computes itself."""
    stage_of: tuple[int, ...]
    """Stage number of each block, for the tags of its operations."""
    as_planned: bool = False
    """Whether operations start and end as in the plan. The model is then the program of one micro-batch.

    All devices of a run begin together, when all of the run's inputs have arrived. They send results when the run has
    ended. No other operation runs at the same time as its collectives. The products that compute gradients also add
    them up, as in Megatron-LM's fused accumulation. Outputs with a batch axis are not concatenated.
    """
    sums_in_place: bool = False
    """Whether a micro-batch is added directly into the memory of the sum.

    A gradient buffer in the format of the gradients allows this [Megatron-LM, param_and_grad_buffer.py; PyTorch,
    _fsdp_param.py].
    """
    shares: bool = False
    """If set, each block has as many devices as the model, and the h-th device of a block runs what device h of the
    model runs.

    Device p of the plan is then device 1 + p of the program.
    """
    sender: ChooseSender = first_of
    """Chooses the sender of a tensor that several devices of a block have."""

    def __call__(self, model: Distributed) -> Distributed:
        """Return the model on the devices of a plan with P devices.

        Each of the model's devices 1 … H becomes P devices. Device p of copy h has the number 1 + h P + p, where h
        counts from 0.
        """
        with collection_paused():
            return _Partitioning(model, self).distributed()


def runs_by_start(schedule: Schedule) -> Iterator[Run]:
    """Yield all runs, sorted by start. Runs that start together are sorted by device, micro-batch and dependencies."""
    plan = schedule.plan
    place = {b: i for i, b in enumerate(plan.topological_order)}
    rows = zip(schedule.block.tolist(), schedule.micro_batch.tolist(), schedule.start.tolist(), strict=True)
    runs = sorted((start, plan.blocks[b].devices[0], micro_batch, place[b], b) for b, micro_batch, start in rows)
    for start, _, micro_batch, _, b in runs:
        yield start, b, micro_batch


class _Pending(NamedTuple):
    """A value that must still be added to the sum over micro-batches."""

    output: int
    micro_batch: int
    made: int
    layer: tuple[Scope, int] | None
    """Layer and micro-batch of a gradient whose reduce-scatter may still be running. None for other values."""


class _Partitioning:
    def __init__(self, model: Distributed, how: Partition) -> None:
        self._model, self._schedule, self._how = model, how.schedule, how
        self._source, self._blocks = model.program, how.schedule.plan.blocks
        self._width = len(how.schedule.plan.devices)
        self._build = ProgramBuilder(self._source.name)
        self._inputs = list[Piece]()
        self._made: dict[tuple[int, int, int], int] = {}
        """Value of the new program, by value of the model, micro-batch and device."""
        self._input_values: dict[tuple[int, int, int], int] = {}
        """Input of the new program, by value of the model, micro-batch and device.

        Inputs of all micro-batches have micro-batch -1.
        """
        self._sums: dict[int, dict[int, dict[tuple[int, int], int]]] = defaultdict(lambda: defaultdict(dict))
        """For each output and device, sums (or joined parts) of consecutive micro-batches.

        The key is the first micro-batch and the one after the last.
        """
        self._pending: dict[int, list[_Pending]] = defaultdict(list)
        """For each device, the values that must still be added to their sums."""
        self._fresh = set[int]()
        """Devices that got pending values after the last call of `_add_up`."""
        self._tags: dict[tuple[int, int, str, str], Tag] = {}
        """Tags by block, micro-batch, phase and name. Equal tags are one object, which saves memory."""
        self._arrived: dict[int, set[int]] = defaultdict(set)
        """For each device, the values for which its next operation waits."""
        self._latest: dict[tuple[int, int, int], int] = {}
        """The last value that each run computed on each device."""

    @cached_property
    def _ops_of(self) -> dict[int, list[Op]]:
        """For each block, its operations."""
        found: dict[int, list[Op]] = defaultdict(list)
        for op, block in zip(self._source.ops, self._how.block_of, strict=True):
            found[block].append(op)
        return found

    @cached_property
    def _homes(self) -> dict[int, list[int]]:
        """For each value, the devices on which operations use it, in ascending order."""
        found: dict[int, dict[int, None]] = defaultdict(dict)
        for op, block in zip(reversed(self._source.ops), reversed(self._how.block_of), strict=True):
            through = [device for value in op.outputs for device in found.get(value, ())]
            for value in op.inputs:
                found[value] |= dict.fromkeys(through if block == ANYWHERE else self._devices(value, block))
        return {value: sorted(devices) for value, devices in found.items()}

    @cached_property
    def _maker_of(self) -> dict[int, tuple[Op, int]]:
        """For each value, the operation and the block that compute it. Views with block `ANYWHERE` are left out."""
        pairs = zip(self._source.ops, self._how.block_of, strict=True)
        return {value: (op, block) for op, block in pairs for value in op.outputs if block != ANYWHERE}

    @cached_property
    def _views(self) -> dict[int, Op]:
        """For each value that is a view with block `ANYWHERE`, the operation that computes it."""
        pairs = zip(self._source.ops, self._how.block_of, strict=True)
        return {value: op for op, block in pairs for value in op.outputs if block == ANYWHERE}

    def _viewed(self, values: Iterable[int]) -> Iterator[int]:
        """Yield each of the values, or for a view the value that it shows."""
        for value in values:
            if value in self._views:
                yield from self._viewed(self._views[value].inputs)
            else:
                yield value

    def distributed(self) -> Distributed:
        """Return the new program: its inputs, the runs sorted by start, and its outputs."""
        for value, piece in self._model.piece_of.items():
            self._add_input(value, piece)
        for _, together in groupby(runs_by_start(self._schedule), key=lambda run: run[0]):
            ran = list(together)
            for _, block, micro_batch in ran:
                if self._how.as_planned:
                    self._await(block, micro_batch)
                for op in self._ops_of[block]:
                    for there in self._copies[block]:
                        self._add(op, block, micro_batch, there)
                self._add_up()
            for _, block, micro_batch in ran:
                self._send(block, micro_batch)
        self._add_up(last=True)
        outputs, pieces = list[int](), list[Piece]()
        for value, piece in zip(self._source.outputs, self._model.outputs, strict=True):
            for _, sums in sorted(self._sums[value].items()):
                for (micro_batch, _), made in sorted(sums.items()):
                    outputs.append(made)
                    pieces.append(self._part(piece, micro_batch) if value in self._apart else piece)
        return Distributed(self._build.finish(outputs), tuple(self._inputs), tuple(pieces), self._model.roles)

    def _part(self, piece: Piece, micro_batch: int) -> Piece:
        return piece.cut(self._model.role_of(piece).batch_axis or 0, self._schedule.micro_batches, micro_batch)

    @cached_property
    def _apart(self) -> frozenset[int]:
        """Outputs that are not joined over micro-batches.

        With `as_planned`, these are all outputs with a batch axis. Otherwise they are the outputs that are changed in
        place, because joining would copy them.
        """
        if self._how.as_planned:
            return frozenset(value for value, axis in self._batch_axis.items() if axis is not None)
        changed = {value for op in self._source.ops if find_operator(op.kind).in_place for value in op.outputs}
        return frozenset(value for value, axis in self._batch_axis.items() if axis is not None and value in changed)

    @cached_property
    def _copies(self) -> list[list[dict[int, int]]]:
        """For each block and each copy of its operations: the plan's device for each device of the model."""
        model = self._source.devices
        if self._how.shares:
            return [[{h: 1 + p for h, p in zip(model, block.devices, strict=True)}] for block in self._blocks]
        return [[{h: 1 + (h - 1) * self._width + p for h in model} for p in block.devices] for block in self._blocks]

    def _devices(self, value: int, block: int) -> list[int]:
        """Return the devices of a block that have a value or use it."""
        source = self._source.types[value].device
        return [there[source] for there in self._copies[block]]

    def _add_input(self, value: int, piece: Piece) -> None:
        """Add an input on every device that uses it: one per micro-batch, or one for all micro-batches."""
        axis, of_type = self._model.role_of(piece).batch_axis, self._source.types[value]
        count, name = self._schedule.micro_batches, self._source.value_name(value)
        homes = self._homes.get(value, [1 if self._how.shares else 1 + (of_type.device - 1) * self._width])
        for device in homes:
            there = of_type.on(device)
            suffix = f".p{(device - 1) % self._width}" if len(homes) > 1 else ""
            if axis is None or count == 1:
                self._input_values[value, -1, device] = self._build.input(name + suffix, there)
                self._inputs.append(piece)
                continue
            part = there if self._how.as_planned else divided(there, axis, count, piece.name)
            for micro_batch in range(count):
                self._input_values[value, micro_batch, device] = self._build.input(
                    f"{name}{suffix}.m{micro_batch}", part
                )
                self._inputs.append(piece.cut(axis, count, micro_batch))

    def _value(self, value: int, micro_batch: int, device: int) -> int:
        made = self._made.get((value, micro_batch, device))
        if made is not None:
            return made
        shared = self._input_values.get((value, -1, device))
        if shared is not None:
            return shared
        given = self._input_values.get((value, micro_batch, device))
        if given is not None:
            return given
        if value in self._views:
            return self._view(value, micro_batch, device)
        return self._sent(value, micro_batch, device)

    def _view(self, value: int, micro_batch: int, device: int) -> int:
        op = self._views[value]
        taken = [self._value(each, micro_batch, device) for each in op.inputs]
        made = self._build.append(op.kind, taken, op.attributes, Tag(None, micro_batch, op.tag.phase, op.tag.name))
        self._made |= {(each, micro_batch, device): there for each, there in zip(op.outputs, made, strict=True)}
        return self._made[value, micro_batch, device]

    def _add(self, op: Op, block: int, micro_batch: int, there: dict[int, int]) -> None:
        types, communicates = self._source.types, bool(find_operator(op.kind).pattern)
        taken = [self._value(value, micro_batch, there[types[value].device]) for value in op.inputs]
        tag = self._tag(op, block, micro_batch)
        for place in range(len(taken) if communicates else 1) if self._arrived else ():
            taken[place] = self._when_arrived(taken[place], tag)
        if not communicates and (device := self._build.type_of(taken[0]).device) in self._fresh:
            self._add_up(device)
        attributes = elsewhere(op.attributes, there.__getitem__)
        for value, made in zip(op.outputs, self._build.append(op.kind, taken, attributes, tag), strict=True):
            device = self._build.type_of(made).device
            self._made[value, micro_batch, device] = self._latest[block, micro_batch, device] = made
            if communicates and self._how.as_planned:
                self._arrived[device].add(made)
            if value in self._place_of:
                layer = (op.tag.scope, micro_batch) if op.kind == "reduce_scatter" else None
                self._pending[device].append(_Pending(value, micro_batch, made, layer))
                self._fresh.add(device)

    def _add_up(self, only: int | None = None, *, last: bool = False) -> None:
        """Add pending outputs to their sums on device `only`, or on all devices.

        Gradients stay pending as long as the two latest layers may still scatter them, so that no device waits for a
        reduce-scatter. With `last`, nothing stays pending.
        """
        for device in [only] if only is not None else list(self._pending):
            self._fresh.discard(device)
            every = self._pending.pop(device, [])
            exchanged = list(dict.fromkeys(each.layer for each in every if each.layer is not None))
            latest = [] if last or self._how.as_planned else exchanged[-_SCATTERING_LAYERS:]
            waiting = [each for each in every if each.layer in latest]
            if waiting:
                self._pending[device] = waiting
            ready = (each for each in every if each not in waiting)
            for each in sorted(ready, key=lambda each: self._place_of[each.output]):
                self._combine(each.output, each.micro_batch, each.made)

    @cached_property
    def _place_of(self) -> dict[int, int]:
        """For each output value, its index among the outputs."""
        return {value: i for i, value in enumerate(self._source.outputs)}

    def _combine(self, value: int, micro_batch: int, made: int) -> None:
        """Add an output to the sum of the earlier micro-batches, or join it with the neighbouring micro-batches."""
        op, block = self._maker_of[value]
        axis = self._batch_axis[value]
        tag = Tag(self._how.stage_of[block], micro_batch, self._last_phase, op.tag.name)
        parts = self._sums[value][self._build.type_of(made).device]
        if value in self._apart:
            parts[micro_batch, micro_batch + 1] = made
            return
        shared = not self._how.as_planned or self._source.uses[value]  # Otherwise the only use of the value is the sum.
        if not parts and self._schedule.micro_batches > 1 and shared:
            made = self._build.one("identity", [made], tag)
        elif axis is None and parts:
            ((first, _), before) = parts.popitem()
            add = "accumulate" if self._how.as_planned else "add_in_place" if self._how.sums_in_place else "add"
            made, micro_batch = self._build.one(add, [before, made], tag), first
        span = micro_batch, micro_batch + 1
        for part in list(parts) if axis is not None else []:
            if part[1] == span[0] or part[0] == span[1]:
                pair = [parts.pop(part), made] if part[1] == span[0] else [made, parts.pop(part)]
                made = self._build.one("concat", pair, tag, axis=axis or 0)
                span = min(part[0], span[0]), max(part[1], span[1])
        parts[span] = made

    @cached_property
    def _last_phase(self) -> str:
        """Phase in which outputs are complete: the forward phase if there is no backward pass."""
        return "backward" if any(op.tag.phase == "backward" for op in self._source.ops) else "forward"

    @cached_property
    def _batch_axis(self) -> dict[int, int | None]:
        pairs = zip(self._source.outputs, self._model.outputs, strict=True)
        return {value: self._model.role_of(piece).batch_axis for value, piece in pairs}

    def _send(self, block: int, micro_batch: int) -> None:
        """After a run, send each value that it computed to the other devices that use it."""
        for op in self._ops_of[block]:
            for value in op.outputs:
                for other in self._homes.get(value, []):
                    if (value, micro_batch, other) not in self._made:
                        self._sent(value, micro_batch, other)

    def _sent(self, value: int, micro_batch: int, to: int) -> int:
        op, block = self._maker_of[value]
        having = self._devices(value, block)
        device = having[0] if len(having) == 1 else self._how.sender(having, to)
        made, tag = self._made[value, micro_batch, device], self._tag(op, block, micro_batch)
        last = self._latest[block, micro_batch, device]
        if self._how.as_planned and last != made:
            made = self._build.one("after", [made, last], tag)
        self._made[value, micro_batch, to] = found = self._build.one("send", [made], tag, to=to)
        return found

    def _tag(self, op: Op, block: int, micro_batch: int) -> Tag:
        key = block, micro_batch, op.tag.phase, op.tag.name
        tag = self._tags.get(key)
        if tag is None:
            tag = self._tags[key] = Tag(self._how.stage_of[block], micro_batch, op.tag.phase, op.tag.name)
        return tag

    def _await(self, block: int, micro_batch: int) -> None:
        """Make the first operation of a run on each device wait for all inputs that come from other devices."""
        for value, device in self._lacked[block]:
            self._arrived[device].add(self._value(value, micro_batch, device))
        self._synchronize(block, micro_batch)

    @cached_property
    def _lacked(self) -> dict[int, dict[tuple[int, int], None]]:
        """For each block, pairs of a value and a device: the device receives the value from another device."""
        found: dict[int, dict[tuple[int, int], None]] = defaultdict(dict)
        for op, block in zip(self._source.ops, self._how.block_of, strict=True):
            for value in self._viewed(op.inputs) if block != ANYWHERE else ():
                maker = self._maker_of.get(value)
                having = [] if maker is None else self._devices(value, maker[1])
                for device in self._devices(value, block) if having else ():
                    if device not in having:
                        found[block][value, device] = None
        return found

    def _when_arrived(self, value: int, tag: Tag) -> int:
        """Return a value that becomes available when all values have arrived for which its device waits."""
        arrived = self._arrived.pop(self._build.type_of(value).device, set()) - {value}
        return self._build.one("after", [value, *sorted(arrived)], tag) if arrived else value

    def _synchronize(self, block: int, micro_batch: int) -> None:
        """Make the devices of a block begin together.

        The first device waits for all others, and then they wait for it.
        """
        first, *others = (1 + device for device in self._blocks[block].devices)
        if not others or not self._ops_of[block]:
            return
        for other in others:
            self._signal(self._ready(block, micro_batch, other), first, block, micro_batch)
        ready = self._ready(block, micro_batch, first)
        for other in others:
            self._signal(ready, other, block, micro_batch)

    def _ready(self, block: int, micro_batch: int, device: int) -> int:
        """Return a value that becomes available when a device has ended earlier work and has all inputs of a run."""
        op, value = next(
            (op, value) for op in self._ops_of[block] for value in op.inputs if device in self._devices(value, block)
        )
        there = self._value(value, micro_batch, device)
        arrived = self._arrived.pop(device, set()) - {there}
        return self._build.one("after", [there, *(sorted(arrived) or [there])], self._tag(op, block, micro_batch))

    def _signal(self, ready: int, to: int, block: int, micro_batch: int) -> None:
        """Make the next operation of a device wait until another device is ready."""
        tag = self._tag(self._ops_of[block][0], block, micro_batch)
        self._arrived[to].add(self._build.one("delay", [ready], tag, seconds=0.0, to=to))
