"""Search for the fastest strategy with several processes or a Dask cluster."""

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
_FIRST_PART = 32
"""Configurations of the first part, which are likely fast."""
_BACKLOG = 2
"""Parts in the pool, divided by the parts that workers evaluate at once.

Above 1, a worker need not wait for its next part.
"""
_TICK_S = 0.2
"""Longest time in seconds until the search reacts to a cancellation."""
_MAX_CACHED_QUESTIONS = 2
"""Number of questions for which a worker keeps its table of blocks: one for all devices and one for half of them."""


def recommend_shared(question: Question, pool: WorkerPool, control: Control) -> Recommendation[Question]:
    """Return the recommendation that `recommend` would return, computed by the workers of a pool.

    If the search is stopped, return the best recommendation so far. Configurations that divide the layers in the same
    way are given to one worker together, with the Pareto front so far. If several configurations have the same time and
    memory, the result may differ from that of `recommend` in which of them it keeps. If a worker dies, another worker
    evaluates its part again.

    Raises InputError in the cases of `recommend`, and if no worker is left or workers die repeatedly.
    """
    return _Shared(question, pool, control).found()


def judge_part(question: bytes, part: Part, front: Sequence[Candidate]) -> Judged:
    """Evaluate one part of the strategies for a pickled question. Runs in a worker."""
    known, table = _with_blocks(question)
    return judge(known, part, table, Control(), front)


@lru_cache(maxsize=_MAX_CACHED_QUESTIONS)
def _with_blocks(question: bytes) -> tuple[Question, BlockTable]:
    """Return the question, and the table of blocks that this worker extends for it."""
    known: Question = pickle.loads(question)
    return known, BlockTable(known.family, known.spec, known.mesh)


def parts_of(question: Question, asked: Sequence[Strategy]) -> list[Part]:
    """Split the strategies into parts and return them.

    The first part has the strategies that are probably fast. Each other part has the strategies that divide the layers
    in the same way.
    """
    first = promising(question, asked, BlockTable(question.family, question.spec, question.mesh))[:_FIRST_PART]
    begun, groups = set(first), dict[tuple[object, ...], list[Strategy]]()
    for each in asked:
        if each not in begun:
            cut = each.tensor, each.context, each.context_method, each.expert, each.recompute
            groups.setdefault((*cut, each.data * each.micro_batches), []).append(each)
    return [tuple(some) for some in ([first] if first else []) + list(groups.values())]


class _Shared:
    """State of a shared search. Every part is waiting, submitted to the pool, or evaluated."""

    def __init__(self, question: Question, pool: WorkerPool, control: Control) -> None:
        self._question, self._pool, self._control = question, pool, control
        asked = asked_strategies(question)
        self._size, self._data = len(asked), pickle.dumps(question)
        self._waiting = deque(parts_of(question, asked))
        self._under_way: dict[Future[Judged], Part] = {}
        self._judged, self._front = list[Judged](), list[Candidate]()
        self._done = self._breaks = 0

    def found(self) -> Recommendation[Question]:
        """Submit parts and collect their results until all are evaluated or `control` stops the search.

        Return the recommendation.
        """
        while (self._waiting or self._under_way) and not self._control.stopped:
            accepted = self._submit()
            self._settle()
            if not (accepted and self._pool.check()):
                self._renew()
        for future in self._under_way:
            future.cancel()
        return together(self._question, self._size, self._judged)

    def _submit(self) -> bool:
        """Submit parts until the pool has enough. Return False if the pool is closed."""
        while self._waiting and len(self._under_way) < _BACKLOG * self._pool.slots:
            try:
                future = self._pool.executor.submit(judge_part, self._data, self._waiting[0], tuple(self._front))
            except self._pool.closed:
                return False
            self._under_way[future] = self._waiting.popleft()
        return True

    def _settle(self) -> None:
        """Collect the results that arrive within `_TICK_S`. Queue parts of dead workers again."""
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
        self._control.report(f"{self._done:,} of {self._size:,} configurations evaluated", best, None)

    def _renew(self) -> None:
        """Queue the submitted parts again, and start new workers."""
        self._breaks += 1
        if self._breaks > MAX_POOL_BREAKS:
            raise InputError("workers", f"broke {MAX_POOL_BREAKS} times in a row without evaluating a configuration")
        self._waiting.extendleft(reversed(self._under_way.values()))
        self._under_way.clear()
        self._pool.renew()
