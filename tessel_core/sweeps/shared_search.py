"""The fastest strategy of a question, searched by several processes or a Dask cluster."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from fractions import Fraction
from functools import lru_cache

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.strategies.blocks import BlockTable
from tessel_core.strategies.recommendation import (
    Candidate,
    Judged,
    Question,
    Recommendation,
    asked_strategies,
    front_of,
    judge,
    promising,
    together,
)
from tessel_core.strategies.strategy import Strategy
from tessel_core.sweeps.pools import WorkerPool
from tessel_core.sweeps.running import MAX_POOL_BREAKS

Part = tuple[Strategy, ...]
_BACKLOG = 2
"""Parts with the pool per slot, so that no worker waits for the next."""
_TICK_S = 0.2
"""How long a cancel may go unheard."""
_QUESTIONS_KEPT = 2
"""Questions whose blocks a worker remembers: those of all devices and of half of them."""


def recommend_shared(question: Question, pool: WorkerPool, control: Control) -> Recommendation:
    """The recommendation of `recommend`, from the workers of a pool; a stop keeps the best so far.

    Configurations whose layers are cut alike go to one worker together, with the front that is known by then.  Of
    configurations that are equal in time and memory, another one may be kept.  A part whose worker died is judged
    again.

    Raises InputError as `recommend`, and where no worker is left or workers die again and again.
    """
    return _Shared(question, pool, control).found()


def judge_part(question: bytes, part: Part, front: Sequence[Candidate]) -> Judged:
    """What a worker finds of a part of a pickled question."""
    known, table = _with_blocks(question)
    return judge(known, part, table, Control(), front)


@lru_cache(maxsize=_QUESTIONS_KEPT)
def _with_blocks(question: bytes) -> tuple[Question, BlockTable]:
    """The question, with the blocks that this worker has simulated for it."""
    known: Question = pickle.loads(question)
    return known, BlockTable(known.family, known.spec, known.mesh)


def parts_of(question: Question, asked: Sequence[Strategy]) -> list[Part]:
    """The strategies in parts: first those that are likely good, then those whose layers are cut alike together."""
    first = promising(question, asked, BlockTable(question.family, question.spec, question.mesh))
    begun, groups = set(first), dict[tuple[object, ...], list[Strategy]]()
    for each in asked:
        if each not in begun:
            cut = each.tensor, each.context, each.context_method, each.expert, each.recompute
            groups.setdefault((*cut, each.data * each.micro_batches), []).append(each)
    return [tuple(some) for some in ([first] if first else []) + list(groups.values())]


class _Shared:
    """Parts by where they are: waiting, with the pool, or judged.  Every part is in exactly one of the three."""

    def __init__(self, question: Question, pool: WorkerPool, control: Control) -> None:
        self._question, self._pool, self._control = question, pool, control
        asked = asked_strategies(question)
        self._size, self._data = len(asked), pickle.dumps(question)
        self._waiting = deque(parts_of(question, asked))
        self._under_way: dict[Future[Judged], Part] = {}
        self._judged, self._front = list[Judged](), list[Candidate]()
        self._done = self._breaks = 0

    def found(self) -> Recommendation:
        """Hand out parts and take what comes back, until all are judged or a stop."""
        while (self._waiting or self._under_way) and not self._control.stopped:
            taken = self._submit()
            self._settle()
            if not (taken and self._pool.check()):
                self._renew()
        for future in self._under_way:
            future.cancel()
        return together(self._question, self._size, self._judged)

    def _submit(self) -> bool:
        """Fill the backlog; False where the pool takes nothing."""
        while self._waiting and len(self._under_way) < _BACKLOG * self._pool.slots:
            try:
                future = self._pool.executor.submit(judge_part, self._data, self._waiting[0], tuple(self._front))
            except self._pool.closed:
                return False
            self._under_way[future] = self._waiting.popleft()
        return True

    def _settle(self) -> None:
        """Take the results that come within a moment; a part that was lost waits again."""
        ended, _ = wait(self._under_way, timeout=_TICK_S, return_when=FIRST_COMPLETED)
        for future in ended:
            part = self._under_way.pop(future)
            error = CancelledError() if future.cancelled() else future.exception()
            if error is None:
                self._take(part, future.result())
            elif isinstance(error, (CancelledError, *self._pool.lost)):
                self._waiting.appendleft(part)
            else:
                raise error

    def _take(self, part: Part, judged: Judged) -> None:
        self._breaks = 0
        self._judged.append(judged)
        self._done += len(part)
        self._front = front_of([*self._front, *judged.candidates])
        best = Fraction(self._front[0].outcome.latency) if self._front else None
        self._control.report(f"{self._done:,} of {self._size:,} configurations judged", best, None)

    def _renew(self) -> None:
        """New workers; what the old ones had waits again."""
        self._breaks += 1
        if self._breaks > MAX_POOL_BREAKS:
            raise InputError("workers", f"broke {MAX_POOL_BREAKS} times in a row without judging anything")
        self._waiting.extendleft(reversed(self._under_way.values()))
        self._under_way.clear()
        self._pool.renew()
