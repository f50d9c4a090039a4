"""How tensors of ranks meet: sends and receives that nobody waits for until they are needed, and collectives."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from tessel_core.execution.rank_process import Rank
from tessel_core.execution.share import Share
from tessel_core.execution.torch_operators.formats import TORCH_TYPES, Tensor
from tessel_core.ir.operators.communication import added_up, joined, parts_along, tensors_of
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
        """This device's part of every input, joined; gloo has no exchange of its own, so all are gathered."""
        at = each.op.inputs.index(each.inputs[0])
        parts = [parts_along(one, len(each.op.inputs), values)[at] for one in self._all(each, given[each.inputs[0]])]
        return {each.outputs[0]: joined(parts, {"axis": values["joined"]})}

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
}
COMMUNICATIONS = frozenset(_PATTERNS)
"""Kinds of operations that are run by `Talk`."""


def _at_least_a_byte(tensor: Tensor) -> Tensor:
    """What stands for a tensor without numbers, so that there is something to wait for."""
    return tensor if tensor.numel() else torch.zeros(1, dtype=torch.uint8, device=tensor.device)


def _movable(tensor: Tensor) -> Tensor:
    """A look at the memory in a format that can be moved."""
    return tensor.view(-1).view(torch.uint8) if tensor.dtype in _MOVED_AS_BYTES else tensor
