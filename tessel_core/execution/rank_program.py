"""One rank walks its program: computing, sending, receiving and meeting in the program's order."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable

import torch
import torch.distributed as dist

from tessel_core.errors import InputError
from tessel_core.execution.collectives import COMMUNICATIONS, Arriving, Talk
from tessel_core.execution.needed_memory import check_memory
from tessel_core.execution.rank_process import Rank
from tessel_core.execution.share import LOSS, RankResult, Share, StepNews
from tessel_core.execution.torch_operators import TORCH_OPERATORS, TORCH_TYPES, from_numpy, to_numpy
from tessel_core.execution.torch_operators.formats import Tensor
from tessel_core.ir.operators import find_operator
from tessel_core.ir.project import RankOp

_LOSSES = ("loss", "cross_entropy")


def walk(rank: Rank, share: Share) -> RankResult:
    """All steps of a rank's program.  Raises InputError where a loss is no number, or a GPU has too little memory."""
    if rank.device != "cpu":
        check_memory("memory", share.needs, torch.cuda.mem_get_info()[0], f"GPU {rank.number}")
    return _Walk(rank, share).result()


class _Held:
    """The memory of values: who looks at it, and how much there is."""

    def __init__(self) -> None:
        self._looks = defaultdict[int, int](int)
        self.now = self.peak = 0

    def add(self, tensor: Tensor) -> None:
        memory = tensor.untyped_storage()
        if not self._looks[memory.data_ptr()]:
            self.now += memory.nbytes()
            self.peak = max(self.peak, self.now)
        self._looks[memory.data_ptr()] += 1

    def drop(self, tensor: Tensor) -> None:
        memory = tensor.untyped_storage()
        self._looks[memory.data_ptr()] -= 1
        if not self._looks[memory.data_ptr()]:
            del self._looks[memory.data_ptr()]
            self.now -= memory.nbytes()

    def alone(self, tensor: Tensor) -> bool:
        """Whether only one value looks at the tensor's memory."""
        return self._looks[tensor.untyped_storage().data_ptr()] == 1


class _Walk:
    def __init__(self, rank: Rank, share: Share) -> None:
        self._rank, self._share, self._program = rank, share, share.program
        self._types = share.program.program.types
        self._held = _Held()
        self._talk = Talk(rank, share, self._held.add, self._held.drop)
        self._known: dict[int, Tensor | Arriving] = {}
        self._lasting: dict[int, Tensor] = {}
        """Inputs that are the same in every step."""
        self._changed = frozenset(share.carried.values())
        self._uses = defaultdict[int, int](int)
        for each in self._program.ops:
            for value in each.inputs:
                self._uses[value] += 1
        for value in self._program.outputs:
            self._uses[value] += 1
        self._words = [_words(each) for each in self._program.ops]
        self._values = [dict(each.op.attributes) for each in self._program.ops]

    def result(self) -> RankResult:
        """All steps, one after the other; ranks begin each together."""
        steps = list[StepNews]()
        for step in range(self._share.steps):
            self._rank.at(f"the inputs of step {step + 1}")
            self._begin(step)
            dist.barrier()
            start = time.monotonic()
            self._run(step)
            self._rank.settle()
            steps.append(StepNews(step, start, time.monotonic(), self._loss()))
            self._rank.tell(steps[-1])
        kept = self._share.told.items() if self._share.keep else ()
        peak = self._held.peak if self._rank.device == "cpu" else torch.cuda.max_memory_allocated()
        return RankResult(tuple(steps), peak, [(piece, to_numpy(self._ready(value))) for value, piece in kept])

    def _begin(self, step: int) -> None:
        """Every input that something takes: from the step before, as in every step, or drawn."""
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
        for name, values in self._by_tensor(value for value in wanted if value not in self._lasting):
            whole = self._share.inputs.whole(name, step)
            for value in values:
                piece = self._share.pieces[value].of(whole)
                self._hold(value, from_numpy(piece, self._types[value].dtype, self._rank.device))
                if self._share.steps > 1 and value not in self._changed and not self._share.inputs.changes(name):
                    self._lasting[value] = self._ready(value)
                    self._held.add(self._lasting[value])

    def _by_tensor(self, values: Iterable[int]) -> Iterable[tuple[str, list[int]]]:
        """Inputs by the name of the tensor that they are pieces of."""
        found = defaultdict[str, list[int]](list)
        for value in values:
            found[self._share.pieces[value].name].append(value)
        return found.items()

    def _hold(self, value: int, tensor: Tensor | Arriving) -> None:
        self._known[value] = tensor
        self._held.add(tensor.tensor if isinstance(tensor, Arriving) else tensor)

    def _let_go(self, value: int) -> None:
        self._held.drop(self._ready(value))
        del self._known[value]

    def _run(self, step: int) -> None:
        left = self._uses.copy()
        for each, words, values in zip(self._program.ops, self._words, self._values, strict=True):
            self._rank.at(words)
            given = {value: self._ready(value) for value in each.inputs}
            made: dict[int, Tensor | Arriving]
            if each.op.kind in COMMUNICATIONS:
                made = self._talk.run(each, given, values)
            elif each.op.kind == "block":
                made = {value: self._nothing(value) for value in each.outputs}
            else:
                tensors = [given[value] for value in each.op.inputs]
                if find_operator(each.op.kind).in_place:
                    tensors = [self._own(each, i, given, left) for i in range(len(tensors))]
                made = dict(zip(each.outputs, TORCH_OPERATORS[each.op.kind](tensors, values), strict=True))
            for value, tensor in made.items():
                self._hold(value, tensor)
            if each.op.kind in _LOSSES and any(bool(self._ready(value).isnan().any()) for value in made):
                raise InputError(LOSS, f"is not a number (NaN) in step {step + 1}")
            for value in each.inputs:
                left[value] -= 1
            for value in {*each.inputs, *made}:
                if not left[value]:
                    self._let_go(value)
        self._rank.at(f"the end of step {step + 1}")
        self._talk.finish()

    def _ready(self, value: int) -> Tensor:
        """The value, which is waited for if it is still on its way."""
        tensor = self._known[value]
        if isinstance(tensor, Arriving):
            tensor = self._known[value] = tensor.arrived()
        return tensor

    def _own(self, each: RankOp, place: int, given: dict[int, Tensor], left: dict[int, int]) -> Tensor:
        """An input that may be changed where the operation changes it: itself where nobody else needs it."""
        value = each.op.inputs[place]
        tensor = given[value]
        if place >= len(each.op.outputs) or (left[value] == 1 and self._held.alone(tensor)):
            return tensor
        return tensor.clone()

    def _nothing(self, value: int) -> Tensor:
        """Zeros without memory of their own: a plan does not say what it computes."""
        of_type = self._types[value]
        return torch.zeros(1, dtype=TORCH_TYPES[of_type.dtype], device=self._rank.device).expand(of_type.shape)

    def _loss(self) -> float:
        told = (self._ready(value) for value, piece in self._share.told.items() if piece.name == LOSS)
        return sum(float(each.double().sum()) for each in told)


def _words(each: RankOp) -> str:
    """What the rank is at, for the sentence about its end."""
    op, tag = each.op, each.op.tag
    of = "" if tag.micro_batch is None else f", micro-batch {tag.micro_batch}"
    return f"operation {each.place} ({op.kind}{of})"
