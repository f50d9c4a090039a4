"""Communication between ranks: asynchronous sends and receives, and collectives."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from tessel_core.execution.rank_process import Rank
from tessel_core.execution.share import Share
from tessel_core.execution.torch_operators.formats import TORCH_TYPES, Tensor
from tessel_core.ir.operators.attributes import integer
from tessel_core.ir.operators.communication import added_up, joined, parts_along, tensors_of
from tessel_core.ir.operators.experts import rows_apart, rows_per_device
from tessel_core.ir.operators.operator import Values
from tessel_core.ir.project import RankOp
from tessel_core.ir.types import TensorType

_MOVED_AS_BYTES = (torch.int16, torch.bool)
"""Number formats for which gloo or nccl has no collectives. Their memory is sent as bytes."""
_MAX_PENDING_SENDS = 64
"""Wait for the oldest send when more than this many are unfinished."""


@dataclass(frozen=True, slots=True)
class Arriving:
    """A tensor whose receive may be unfinished."""

    tensor: Tensor
    work: Any

    def arrived(self) -> Tensor:
        """Wait until the tensor is received, and return it."""
        self.work.wait()
        return self.tensor


Made = dict[int, "Tensor | Arriving"]
"""Outputs of an operation on this rank, by value number."""


class Talk:
    """Runs the communication operations of one rank, in the order of its program.

    Each method named after a communication pattern runs this rank's part of that operation. It receives the operation,
    the inputs on this rank by value number, and the attributes, and returns the outputs on this rank.
    """

    def __init__(
        self, rank: Rank, share: Share, held: Callable[[Tensor], None], let_go: Callable[[Tensor], None]
    ) -> None:
        """Store two callbacks: `held` for a tensor whose send starts, and `let_go` when the send has ended."""
        self._me, self._place = rank.number, rank.device
        self._types, self._rank_of = share.program.program.types, share.rank_of
        self._groups = rank.groups(share.groups)
        self._held, self._let_go = held, let_go
        self._sending = deque[tuple[Any, Tensor]]()

    def run(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """Run this rank's part of an operation, one tensor after the other. `given` has the inputs on this rank."""
        count = tensors_of(values)
        if count == 1:
            return _PATTERNS[each.op.kind](self, each, given, values)
        axes = values.get("axis")
        made: Made = {}
        for i in range(count):
            op = replace(each.op, inputs=each.op.inputs[i::count], outputs=each.op.outputs[i::count])
            one = replace(each, op=op, inputs=each.inputs[i : i + 1], outputs=each.outputs[i : i + 1])
            along = {} if axes is None else {"axis": axes[i] if isinstance(axes, tuple) else axes}
            made |= _PATTERNS[op.kind](self, one, given, along)
        return made

    def finish(self, at_most: int = 0) -> None:
        """Wait until at most `at_most` sends are unfinished."""
        while len(self._sending) > at_most:
            work, tensor = self._sending.popleft()
            work.wait()
            self._let_go(tensor)

    def post(self, tensor: Tensor, to: int) -> None:
        """Start to send a tensor to a rank."""
        while self._sending and self._sending[0][0].is_completed():
            self.finish(len(self._sending) - 1)
        self.finish(_MAX_PENDING_SENDS)
        tensor = _at_least_a_byte(tensor).contiguous()
        self._held(tensor)
        self._sending.append((dist.isend(tensor, to), tensor))

    def receive(self, of_type: TensorType, source: int) -> Arriving:
        """Start to receive a tensor from a rank."""
        tensor = self._empty(of_type)
        return Arriving(tensor, dist.irecv(_at_least_a_byte(tensor), source))

    def _empty(self, of_type: TensorType) -> Tensor:
        return torch.empty(of_type.shape, dtype=TORCH_TYPES[of_type.dtype], device=self._place)

    def _rank(self, value: int) -> int:
        return self._rank_of[self._types[value].device]

    def send(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """Send a tensor. For an operation `delay` the tensor is empty, and only its time of arrival matters."""
        ((taken,), (made,)) = each.op.inputs, each.op.outputs
        if self._rank(taken) == self._rank(made):
            return {made: self._empty(self._types[made])}
        if each.inputs:
            sent = given[taken] if each.op.kind == "send" else self._empty(self._types[made])
            self.post(sent, self._rank(made))
            return {}
        return {made: self.receive(self._types[made], self._rank(taken))}

    def scatter(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """Send one part of a tensor to each device of the group."""
        (taken,) = each.op.inputs
        source = self._rank(taken)
        if not given:
            return {made: self.receive(self._types[made], source) for made in each.outputs}
        parts = parts_along(given[taken], len(each.op.outputs), values)
        own: Made = {}
        for made, part in zip(each.op.outputs, parts, strict=True):
            if self._rank(made) == self._me:
                own[made] = part.clone()
            else:
                self.post(part, self._rank(made))
        return own

    def gather(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """Concatenate the inputs of all devices on one device."""
        return self._at_one(each, given, lambda parts: joined(parts, values))

    def reduce(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """Add up the inputs of all devices on one device."""
        return self._at_one(each, given, added_up)

    def _at_one(self, each: RankOp, given: Mapping[int, Tensor], combined: Callable[[list[Tensor]], Tensor]) -> Made:
        (made,) = each.op.outputs
        if self._rank(made) != self._me:
            self.post(given[each.inputs[0]], self._rank(made))
            return {}
        parts = [
            given[value] if value in given else self.receive(self._types[value], self._rank(value))
            for value in each.op.inputs
        ]
        return {made: combined([part.arrived() if isinstance(part, Arriving) else part for part in parts])}

    def broadcast(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """Copy a tensor of one device to all devices of the group."""
        (taken,) = each.op.inputs
        group = self._group(each)
        tensor = given[taken].clone(memory_format=torch.contiguous_format) if given else self._empty(self._types[taken])
        if group is not None and tensor.numel():
            dist.broadcast(_movable(tensor), self._rank(taken), group=group)
        return dict.fromkeys(each.outputs, tensor)

    def allreduce(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """Add up the inputs of all devices on every device."""
        own, group = given[each.inputs[0]], self._group(each)
        if group is None or not own.numel() or own.dtype in _MOVED_AS_BYTES:
            return {each.outputs[0]: added_up(self._all(each, own)).clone()}
        total = own.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return {each.outputs[0]: total}

    def allgather(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """Concatenate the inputs of all devices on every device."""
        return {each.outputs[0]: joined(self._all(each, given[each.inputs[0]]), values)}

    def reduce_scatter(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """Return this device's part of the sum over the group."""
        own, group = given[each.inputs[0]], self._group(each)
        parts = parts_along(own, len(each.op.inputs), values)
        at = each.op.outputs.index(each.outputs[0])
        if group is None or not own.numel() or own.dtype in _MOVED_AS_BYTES:
            return {each.outputs[0]: parts_along(added_up(self._all(each, own)), len(parts), values)[at].clone()}
        by_rank = sorted(zip(map(self._rank, each.op.outputs), parts, strict=True), key=lambda pair: pair[0])
        total = torch.empty_like(parts[at], memory_format=torch.contiguous_format)
        dist.reduce_scatter(total, [part.contiguous() for _, part in by_rank], group=group)
        return {each.outputs[0]: total}

    def alltoall(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """Concatenate this device's part of the input of every device."""
        parts = parts_along(given[each.inputs[0]], len(each.op.inputs), values)
        received = self._exchanged(each, parts, [len(part) for part in parts])
        return {each.outputs[0]: joined(received, {"axis": values["joined"]})}

    def shift(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """Send this device's tensor to the next device of the ring, and receive that of the previous device."""
        (own,), (made,), ring = each.inputs, each.outputs, each.op.inputs
        if len(ring) == 1:
            return {made: given[own].clone()}
        at = ring.index(own)
        sent, received = _at_least_a_byte(given[own]).contiguous(), self._empty(self._types[made])
        # Start both together: with nccl, two ranks that both send first would wait for each other.
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, sent, self._rank(ring[(at + 1) % len(ring)])),
                dist.P2POp(dist.irecv, _at_least_a_byte(received), self._rank(ring[at - 1])),
            ]
        )
        self._held(sent)
        self._sending.append((works[0], sent))
        self.finish(_MAX_PENDING_SENDS)
        return {made: Arriving(received, works[-1])}

    def exchange_choice(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """Return, from each device of the group, the choices of experts on this device. Experts are numbered from 0."""
        choice, devices = given[each.inputs[0]], len(each.op.outputs)
        sent, received = self._rows(each, choice, values)
        chosen = torch.cat(self._exchanged(each, choice.reshape(-1).sort().values.split(sent), received))
        first = each.op.outputs.index(each.outputs[0]) * integer(values, "experts") // devices
        return {each.outputs[0]: chosen[:, None] - first}

    def exchange_rows(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """Return, from each device of the group, the rows for experts on this device."""
        rows, choice = (given[value] for value in each.inputs)
        sent, received = self._rows(each, choice, values)
        return {each.outputs[0]: torch.cat(self._exchanged(each, rows_apart(rows, sent), received))}

    def return_rows(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """Return the rows that this device sent with `exchange_rows`, sorted by expert."""
        rows, choice = (given[value] for value in each.inputs)
        sent, received = self._rows(each, choice, values)
        return {each.outputs[0]: torch.cat(self._exchanged(each, rows_apart(rows, received), sent))}

    def _rows(self, each: RankOp, choice: Tensor, values: Values) -> tuple[list[int], list[int]]:
        """Return two lists: how many rows this device sends to each device of the group, and how many it receives."""
        devices = len(each.op.outputs)
        sent = rows_per_device(choice, devices, integer(values, "experts"))
        received = torch.cat(self._exchanged(each, sent.split(1), [1] * devices))
        return sent.tolist(), received.tolist()

    def _exchanged(self, each: RankOp, parts: Sequence[Tensor], rows: Sequence[int]) -> list[Tensor]:
        """Send one of `parts` to each device of the group.

        Return the parts received, whose numbers of rows are `rows`.
        """
        group = self._group(each)
        if group is None:
            return list(parts)
        received = [part.new_empty(count, *part.shape[1:]) for part, count in zip(parts, rows, strict=True)]
        in_order = sorted(range(len(parts)), key=lambda i: self._rank(each.op.outputs[i]))
        sent, taken = ([_movable(some[i].contiguous()).view(-1) for i in in_order] for some in (parts, received))
        sizes = [len(part) for part in taken]
        arrived = taken[0].new_empty(sum(sizes))
        dist.all_to_all_single(arrived, torch.cat(sent), sizes, [len(part) for part in sent], group=group)
        for part, memory in zip(arrived.split(sizes), taken, strict=True):
            memory.copy_(part)
        return received

    def _all(self, each: RankOp, own: Tensor) -> list[Tensor]:
        """Return the inputs of all ranks of the group, in the order of the operation's inputs."""
        group = self._group(each)
        if group is None or not own.numel():
            return [own] * len(each.op.inputs)
        own = own.contiguous()
        gathered = [torch.empty_like(own) for _ in each.op.inputs]
        dist.all_gather([_movable(part) for part in gathered], _movable(own), group=group)
        by_rank = dict(zip(sorted(map(self._rank, each.op.inputs)), gathered, strict=True))
        return [by_rank[self._rank(value)] for value in each.op.inputs]

    def _group(self, each: RankOp) -> Any:
        """Return the process group of an operation; None if this rank is its only member."""
        ranks = tuple(sorted(self._rank_of[device] for device in each.group))
        return self._groups[ranks] if len(ranks) > 1 else None


_PATTERNS: dict[str, Callable[[Talk, RankOp, Mapping[int, Tensor], Values], Made]] = {
    "send": Talk.send,
    "delay": Talk.send,
    "scatter": Talk.scatter,
    "gather": Talk.gather,
    "reduce": Talk.reduce,
    "broadcast": Talk.broadcast,
    "allreduce": Talk.allreduce,
    "allgather": Talk.allgather,
    "allgather_in_place": Talk.allgather,
    "reduce_scatter": Talk.reduce_scatter,
    "alltoall": Talk.alltoall,
    "shift": Talk.shift,
    "exchange_choice": Talk.exchange_choice,
    "exchange_rows": Talk.exchange_rows,
    "return_rows": Talk.return_rows,
}
COMMUNICATIONS = frozenset(_PATTERNS)
"""Kinds of operations that `Talk` runs."""


def _at_least_a_byte(tensor: Tensor) -> Tensor:
    """Return the tensor, or a one-byte tensor in place of an empty one, which could not be sent."""
    return tensor if tensor.numel() else torch.zeros(1, dtype=torch.uint8, device=tensor.device)


def _movable(tensor: Tensor) -> Tensor:
    """Return the tensor, or a view of its bytes if its format has no collectives."""
    return tensor.view(-1).view(torch.uint8) if tensor.dtype in _MOVED_AS_BYTES else tensor
