"""How tensors of ranks meet: sends and receives that nobody waits for until they are needed, and collectives."""

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
"""Formats that gloo or nccl has no collectives of."""
_SENT = 64
"""Sends under way before the oldest is looked at."""


@dataclass(frozen=True, slots=True)
class Arriving:
    """A tensor that is received into its memory."""

    tensor: Tensor
    work: Any

    def arrived(self) -> Tensor:
        self.work.wait()
        return self.tensor


Made = dict[int, "Tensor | Arriving"]
"""Outputs on this rank, by value."""


class Talk:
    """One rank's part in communications, which it takes part in in the order of its program."""

    def __init__(
        self, rank: Rank, share: Share, held: Callable[[Tensor], None], let_go: Callable[[Tensor], None]
    ) -> None:
        """What is on its way to others is `held` until it is received."""
        self._me, self._place = rank.number, rank.device
        self._types, self._rank_of = share.program.program.types, share.rank_of
        self._groups = rank.groups(share.groups)
        self._held, self._let_go = held, let_go
        self._sending = deque[tuple[Any, Tensor]]()

    def run(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """This rank's part of an operation; `given` are its inputs here."""
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
        """Wait until all but so many sends are received."""
        while len(self._sending) > at_most:
            work, tensor = self._sending.popleft()
            work.wait()
            self._let_go(tensor)

    def post(self, tensor: Tensor, to: int) -> None:
        """Begin to send a tensor to a rank."""
        while self._sending and self._sending[0][0].is_completed():
            self.finish(len(self._sending) - 1)
        self.finish(_SENT)
        tensor = _at_least_a_byte(tensor).contiguous()
        self._held(tensor)
        self._sending.append((dist.isend(tensor, to), tensor))

    def receive(self, of_type: TensorType, source: int) -> Arriving:
        """Begin to receive a tensor from a rank."""
        tensor = self._empty(of_type)
        return Arriving(tensor, dist.irecv(_at_least_a_byte(tensor), source))

    def _empty(self, of_type: TensorType) -> Tensor:
        return torch.empty(of_type.shape, dtype=TORCH_TYPES[of_type.dtype], device=self._place)

    def _rank(self, value: int) -> int:
        return self._rank_of[self._types[value].device]

    def send(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """Also of a delay, whose outputs are nothing but news."""
        ((taken,), (made,)) = each.op.inputs, each.op.outputs
        if self._rank(taken) == self._rank(made):
            return {made: self._empty(self._types[made])}
        if each.inputs:
            sent = given[taken] if each.op.kind == "send" else self._empty(self._types[made])
            self.post(sent, self._rank(made))
            return {}
        return {made: self.receive(self._types[made], self._rank(taken))}

    def scatter(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """A part for each device of the group, sent by the one that has the whole."""
        (taken,) = each.op.inputs
        source = self._rank(taken)
        if not given:
            return {made: self.receive(self._types[made], source) for made in each.outputs}
        parts = parts_along(given[taken], len(each.op.outputs), values)
        found: Made = {}
        for made, part in zip(each.op.outputs, parts, strict=True):
            if self._rank(made) == self._me:
                found[made] = part.clone()
            else:
                self.post(part, self._rank(made))
        return found

    def gather(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        return self._at_one(each, given, lambda parts: joined(parts, values))

    def reduce(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
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
        (taken,) = each.op.inputs
        group = self._group(each)
        tensor = given[taken].clone(memory_format=torch.contiguous_format) if given else self._empty(self._types[taken])
        if group is not None and tensor.numel():
            dist.broadcast(_movable(tensor), self._rank(taken), group=group)
        return dict.fromkeys(each.outputs, tensor)

    def allreduce(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        mine, group = given[each.inputs[0]], self._group(each)
        if group is None or not mine.numel() or mine.dtype in _MOVED_AS_BYTES:
            return {each.outputs[0]: added_up(self._all(each, mine)).clone()}
        total = mine.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return {each.outputs[0]: total}

    def allgather(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        return {each.outputs[0]: joined(self._all(each, given[each.inputs[0]]), values)}

    def reduce_scatter(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """Each device's part of the sum over the group."""
        mine, group = given[each.inputs[0]], self._group(each)
        parts = parts_along(mine, len(each.op.inputs), values)
        at = each.op.outputs.index(each.outputs[0])
        if group is None or not mine.numel() or mine.dtype in _MOVED_AS_BYTES:
            return {each.outputs[0]: parts_along(added_up(self._all(each, mine)), len(parts), values)[at].clone()}
        by_rank = sorted(zip(map(self._rank, each.op.outputs), parts, strict=True), key=lambda pair: pair[0])
        total = torch.empty_like(parts[at], memory_format=torch.contiguous_format)
        dist.reduce_scatter(total, [part.contiguous() for _, part in by_rank], group=group)
        return {each.outputs[0]: total}

    def alltoall(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """This device's part of every input, joined."""
        parts = parts_along(given[each.inputs[0]], len(each.op.inputs), values)
        found = self._exchanged(each, parts, [len(part) for part in parts])
        return {each.outputs[0]: joined(found, {"axis": values["joined"]})}

    def shift(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """The tensor of the device before this one, while the next one gets this one's."""
        (mine,), (made,), ring = each.inputs, each.outputs, each.op.inputs
        if len(ring) == 1:
            return {made: given[mine].clone()}
        at = ring.index(mine)
        sent, taken = _at_least_a_byte(given[mine]).contiguous(), self._empty(self._types[made])
        # Together, because with nccl two ranks that both send first would wait for each other.
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, sent, self._rank(ring[(at + 1) % len(ring)])),
                dist.P2POp(dist.irecv, _at_least_a_byte(taken), self._rank(ring[at - 1])),
            ]
        )
        self._held(sent)
        self._sending.append((works[0], sent))
        self.finish(_SENT)
        return {made: Arriving(taken, works[-1])}

    def exchange_choice(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """The choices of experts of this device, which are numbered from 0 here."""
        choice, devices = given[each.inputs[0]], len(each.op.outputs)
        mine, theirs = self._rows(each, choice, values)
        found = torch.cat(self._exchanged(each, choice.reshape(-1).sort().values.split(mine), theirs))
        first = each.op.outputs.index(each.outputs[0]) * integer(values, "experts") // devices
        return {each.outputs[0]: found[:, None] - first}

    def exchange_rows(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """Rows of the experts of this device, from each device in turn."""
        rows, choice = (given[value] for value in each.inputs)
        mine, theirs = self._rows(each, choice, values)
        return {each.outputs[0]: torch.cat(self._exchanged(each, rows_apart(rows, mine), theirs))}

    def return_rows(self, each: RankOp, given: Mapping[int, Tensor], values: Values) -> Made:
        """The rows that this device sent before, sorted by expert again."""
        rows, choice = (given[value] for value in each.inputs)
        mine, theirs = self._rows(each, choice, values)
        return {each.outputs[0]: torch.cat(self._exchanged(each, rows_apart(rows, theirs), mine))}

    def _rows(self, each: RankOp, choice: Tensor, values: Values) -> tuple[list[int], list[int]]:
        """Rows that this device has for the experts of each device of the group, and each device for those here."""
        devices = len(each.op.outputs)
        mine = rows_per_device(choice, devices, integer(values, "experts"))
        theirs = torch.cat(self._exchanged(each, mine.split(1), [1] * devices))
        return mine.tolist(), theirs.tolist()

    def _exchanged(self, each: RankOp, parts: Sequence[Tensor], rows: Sequence[int]) -> list[Tensor]:
        """The part of each device of the group for this one, of so many rows; `parts` are those for them."""
        group = self._group(each)
        if group is None:
            return list(parts)
        found = [part.new_empty(count, *part.shape[1:]) for part, count in zip(parts, rows, strict=True)]
        in_order = sorted(range(len(parts)), key=lambda i: self._rank(each.op.outputs[i]))
        sent, taken = ([_movable(some[i].contiguous()).view(-1) for i in in_order] for some in (parts, found))
        sizes = [len(part) for part in taken]
        arrived = taken[0].new_empty(sum(sizes))
        dist.all_to_all_single(arrived, torch.cat(sent), sizes, [len(part) for part in sent], group=group)
        for part, memory in zip(arrived.split(sizes), taken, strict=True):
            memory.copy_(part)
        return found

    def _all(self, each: RankOp, mine: Tensor) -> list[Tensor]:
        """Every rank's input, in the order of the inputs."""
        group = self._group(each)
        if group is None or not mine.numel():
            return [mine] * len(each.op.inputs)
        mine = mine.contiguous()
        found = [torch.empty_like(mine) for _ in each.op.inputs]
        dist.all_gather([_movable(part) for part in found], _movable(mine), group=group)
        by_rank = dict(zip(sorted(map(self._rank, each.op.inputs)), found, strict=True))
        return [by_rank[self._rank(value)] for value in each.op.inputs]

    def _group(self, each: RankOp) -> Any:
        """None where the rank is alone."""
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
"""Kinds of operations that are run by `Talk`."""


def _at_least_a_byte(tensor: Tensor) -> Tensor:
    """What stands for a tensor without numbers, so that there is something to wait for."""
    return tensor if tensor.numel() else torch.zeros(1, dtype=torch.uint8, device=tensor.device)


def _movable(tensor: Tensor) -> Tensor:
    """A look at the memory in a format that can be moved."""
    return tensor.view(-1).view(torch.uint8) if tensor.dtype in _MOVED_AS_BYTES else tensor
