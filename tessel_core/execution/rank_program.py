"""Execute the program of one rank: compute, send, receive and join collectives in the program's order."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
import torch.distributed as dist

from tessel_core.errors import InputError
from tessel_core.execution.collectives import COMMUNICATIONS, Arriving, Talk
from tessel_core.execution.needed_memory import check_memory
from tessel_core.execution.rank_blocks import RankBlocks
from tessel_core.execution.rank_process import Rank
from tessel_core.execution.run_clock import RunClock
from tessel_core.execution.share import LOSS, RankResult, Share, Span, StepNews, with_receives_ahead
from tessel_core.execution.torch_operators import TORCH_OPERATORS, TORCH_TYPES, from_numpy, to_numpy
from tessel_core.execution.torch_operators.formats import Tensor
from tessel_core.ir.operators import find_operator
from tessel_core.ir.operators.operator import Array, Values
from tessel_core.ir.project import RankOp

_LOSSES = ("loss", "cross_entropy")
_RECEIVE_RUNS_AHEAD = 2
"""Number of runs by which receives are posted early with gloo.

gloo starts a send only when its receive is posted. With nccl, receives are not moved, because both ranks need the same
order of sends and receives.
"""


def walk(rank: Rank, share: Share) -> RankResult:
    """Run all steps of a rank's program.  Raises InputError if a loss is NaN or a GPU has too little memory."""
    if rank.device != "cpu":
        check_memory("memory", share.needs, torch.cuda.mem_get_info()[0], f"GPU {rank.number}")
    return _Walk(rank, share).result()


class _Held:
    """Bytes held by values, with a reference count for each storage."""

    def __init__(self) -> None:
        self._references = defaultdict[int, int](int)
        self.now = self.peak = 0

    def add(self, tensor: Tensor) -> None:
        memory = tensor.untyped_storage()
        if not self._references[memory.data_ptr()]:
            self.now += memory.nbytes()
            self.peak = max(self.peak, self.now)
        self._references[memory.data_ptr()] += 1

    def drop(self, tensor: Tensor) -> None:
        memory = tensor.untyped_storage()
        self._references[memory.data_ptr()] -= 1
        if not self._references[memory.data_ptr()]:
            del self._references[memory.data_ptr()]
            self.now -= memory.nbytes()

    def alone(self, tensor: Tensor) -> bool:
        """Return whether only one value uses the tensor's storage."""
        return self._references[tensor.untyped_storage().data_ptr()] == 1


class _Walk:
    """State of a rank while it executes its program."""

    def __init__(self, rank: Rank, share: Share) -> None:
        self._rank, self._share, self._program = rank, share, share.program
        spans = list(share.spans or ())
        if spans and rank.device == "cpu":
            ops, spans = with_receives_ahead(share.program.ops, spans, _RECEIVE_RUNS_AHEAD)
            self._program = replace(share.program, ops=tuple(ops))
        self._types = share.program.program.types
        self._held = _Held()
        self._talk = Talk(rank, share, self._held.add, self._held.drop)
        self._blocks = None if share.stand_ins is None else RankBlocks(rank, share, share.stand_ins)
        self._known: dict[int, Tensor | Arriving] = {}
        self._lasting: dict[int, Tensor] = {}
        """Inputs that have the same numbers in every step."""
        self._changed = frozenset(share.carried.values())
        self._uses = defaultdict[int, int](int)
        for each in self._program.ops:
            for value in each.inputs:
                self._uses[value] += 1
        for value in self._program.outputs:
            self._uses[value] += 1
        self._left = self._uses
        """Number of remaining uses of each value in this step."""
        self._descriptions = [_description(each) for each in self._program.ops]
        self._values = [dict(each.op.attributes) for each in self._program.ops]
        self._clock = RunClock(rank, share)
        self._spans = [(span, self._taken_by(span)) for span in spans]
        """Runs (a block of one micro-batch each), with the values that they need from operations outside."""
        self._late = frozenset[int]()
        """Inputs that are drawn when a run needs them, so that not all micro-batches are in memory at once."""
        if share.spans is not None:
            self._late = frozenset(v for v, piece in share.pieces.items() if share.inputs.changes(piece.name))

    def result(self) -> RankResult:
        """Run all steps.  All ranks start each step together."""
        steps = list[StepNews]()
        for step in range(self._share.steps):
            self._rank.at(f"the inputs of step {step + 1}")
            self._begin(step)
            if self._share.spans is None:
                dist.barrier()
            else:
                self._clock.begin()
            start = time.monotonic()
            self._run(step)
            self._rank.settle()
            steps.append(StepNews(step, start, time.monotonic(), self._loss()))
            self._rank.tell(steps[-1])
        kept = self._share.kept.items()
        of_values = self._rank.device == "cpu" or self._share.spans is not None
        peak = self._held.peak if of_values else torch.cuda.max_memory_allocated()
        values = [(piece, to_numpy(self._ready(value))) for value, piece in kept]
        return RankResult(tuple(steps), peak, values, tuple(self._clock.runs))

    def _taken_by(self, span: Span) -> tuple[int, ...]:
        made, taken = set[int](), dict[int, None]()
        for each in self._program.ops[span.first : span.end]:
            taken |= dict.fromkeys(value for value in each.inputs if value not in made)
            made.update(each.outputs)
        return tuple(taken)

    def _begin(self, step: int) -> None:
        """Prepare all inputs that are used: from the previous step, unchanged, or drawn."""
        before, self._known = self._known, {}
        for made in before:
            given = self._share.carried.get(made)
            if given is None:
                self._held.drop(before[made])
            else:
                self._known[given] = before[made]
        wanted = [value for value in self._program.inputs if self._uses[value] and value not in self._known]
        for value in wanted:
            if value in self._lasting:
                self._hold(value, self._lasting[value])
            elif self._blocks is not None:
                self._hold(value, self._blocks.memory(value))
        drawn = (value for value in wanted if value not in self._known and value not in self._late)
        for name, values in self._by_tensor(drawn):
            whole = self._share.inputs.whole(name, step)
            for value in values:
                self._hold(value, self._piece(value, whole))
                if self._share.steps > 1 and value not in self._changed and not self._share.inputs.changes(name):
                    self._lasting[value] = self._ready(value)
                    self._held.add(self._lasting[value])

    def _piece(self, value: int, whole: Array) -> Tensor:
        return from_numpy(self._share.pieces[value].of(whole), self._types[value].dtype, self._rank.device)

    def _by_tensor(self, values: Iterable[int]) -> Iterable[tuple[str, list[int]]]:
        """Group inputs by the name of the tensor of which each is a piece."""
        by_name = defaultdict[str, list[int]](list)
        for value in values:
            by_name[self._share.pieces[value].name].append(value)
        return by_name.items()

    def _hold(self, value: int, tensor: Tensor | Arriving) -> None:
        self._known[value] = tensor
        self._held.add(tensor.tensor if isinstance(tensor, Arriving) else tensor)

    def _let_go(self, value: int) -> None:
        self._held.drop(self._ready(value))
        del self._known[value]

    def _run(self, step: int) -> None:
        """Run the whole program once."""
        self._left = self._uses.copy()
        at = 0
        for span, taken in self._spans:
            self._do(at, span.first, step)
            self._timed(span, taken, step)
            at = span.end
        self._do(at, len(self._program.ops), step)
        self._rank.at(f"the end of step {step + 1}")
        self._talk.finish()
        if self._blocks is not None:
            self._blocks.finish()
        if self._share.spans is not None:
            self._clock.tell()

    def _timed(self, span: Span, taken: Sequence[int], step: int) -> None:
        """Run and time the operations of a span.  The time starts when all inputs are present on all of its ranks."""
        self._rank.at(span.run.text)
        for value in taken:
            if value in self._late and value not in self._known:
                self._hold(value, self._piece(value, self._share.inputs.whole(self._share.pieces[value].name, step)))
            self._ready(value)
        if self._blocks is not None:
            self._blocks.wait(taken)
        self._clock.meet(span.run)
        start = time.monotonic_ns()
        self._do(span.first, span.end, step, described=False)
        self._rank.settle()
        end = time.monotonic_ns()
        if self._blocks is not None:
            self._blocks.ended(self._program.ops[span.first], end)
        self._clock.note(span.run, start, end)

    def _do(self, first: int, end: int, step: int, *, described: bool = True) -> None:
        """Run the operations from `first` to before `end`.

        If `described`, store a description of each for error messages.
        """
        for i in range(first, end):
            each, values = self._program.ops[i], self._values[i]
            if described:
                self._rank.at(self._descriptions[i])
            given = {value: self._ready(value) for value in each.inputs}
            made = self._made(each, given, values)
            for value, tensor in made.items():
                self._hold(value, tensor)
            if each.op.kind in _LOSSES and any(bool(self._ready(value).isnan().any()) for value in made):
                raise InputError(LOSS, f"is not a number (NaN) in step {step + 1}")
            for value in each.inputs:
                self._left[value] -= 1
            for value in {*each.inputs, *made}:
                if not self._left[value]:
                    self._let_go(value)

    def _made(self, each: RankOp, given: dict[int, Tensor], values: Values) -> Mapping[int, Tensor | Arriving]:
        """Run an operation and return its outputs on this rank."""
        kind = each.op.kind
        if self._blocks is not None and kind in ("block", "delay"):
            return self._blocks.block(each, values) if kind == "block" else self._blocks.delay(each, values)
        if kind in COMMUNICATIONS:
            return self._talk.run(each, given, values)
        if kind == "block":
            return {value: self._nothing(value) for value in each.outputs}
        tensors = [given[value] for value in each.op.inputs]
        if find_operator(kind).in_place:
            tensors = [self._own(each, i, given) for i in range(len(tensors))]
        return dict(zip(each.outputs, TORCH_OPERATORS[kind](tensors, values), strict=True))

    def _ready(self, value: int) -> Tensor:
        """Return the tensor of a value; wait if its receive is unfinished."""
        tensor = self._known[value]
        if isinstance(tensor, Arriving):
            tensor = self._known[value] = tensor.arrived()
        return tensor

    def _own(self, each: RankOp, place: int, given: dict[int, Tensor]) -> Tensor:
        """Return an input for an operation in place: a copy if the operation changes it and others still need it."""
        value = each.op.inputs[place]
        tensor = given[value]
        if place >= len(each.op.outputs) or (self._left[value] == 1 and self._held.alone(tensor)):
            return tensor
        return tensor.clone()

    def _nothing(self, value: int) -> Tensor:
        """Return zeros that share one element of memory, because a plan does not define what blocks compute."""
        of_type = self._types[value]
        return torch.zeros(1, dtype=TORCH_TYPES[of_type.dtype], device=self._rank.device).expand(of_type.shape)

    def _loss(self) -> float:
        losses = (self._ready(value) for value, piece in self._share.own_outputs.items() if piece.name == LOSS)
        return sum(float(loss.double().sum()) for loss in losses)


def _description(each: RankOp) -> str:
    """Describe an operation for error messages."""
    op, tag = each.op, each.op.tag
    of = "" if tag.micro_batch is None else f", micro-batch {tag.micro_batch}"
    return f"operation {each.place} ({op.kind}{of})"
