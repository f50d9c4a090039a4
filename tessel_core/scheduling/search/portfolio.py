"""A portfolio of searches that shorten a schedule and raise its bound in parallel.

A task takes one slice, which is a fifth of a second, or several. Kinds of tasks that succeed often get more time.

- *list*: change the rules of list schedules, forwards and from the end.
- *order*: tabu search on the orders of the shortest schedules.
- *horizon*: ask CP-SAT for any schedule that ends by a time between bound and best. It finds one, or raises the bound.
- *devices*: bound the makespan by the rules of a few devices.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict
from tessel_core.model import Schedule
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.search.devices_bound import devices_bound
from tessel_core.scheduling.search.devices_model import MAX_RUNS, quantum_of, schedule_within
from tessel_core.scheduling.search.horizons import Horizons
from tessel_core.scheduling.search.incumbent import Incumbent
from tessel_core.scheduling.search.list_search import RULES, ListSearch, lists_by_every_rule
from tessel_core.scheduling.search.order_search import OrderSearch
from tessel_core.scheduling.search.slices import SLICES_PER_SECOND, work_off

_MAX_ORDER_SEARCHES = 6
"""Largest number of tabu searches on orders."""
_SURVIVING_LIST_SEARCHES, _SLICES_PER_HALVING_ROUND = 3, 2
"""Successive halving of list searches: how many of them remain, and how many slices each gets in the first round."""
_MAX_STALLED_LIST_SLICES = 12
"""Replace a list search after this many slices without improvement."""
_KEPT_LIST_SEARCHES, _RANDOM_RESTART_SHARE = 4, 0.3
"""Number of replaced list searches that are kept, and the probability of a random start.

Otherwise, a new list search starts from one of the kept searches.
"""
_FIRST_RESTARTS = 200
"""Largest number of restarts of the first list search. It is also the default of the scheduler `list-scheduling`."""
_MAX_MAKESPAN_RATIO = 1.02
"""Schedules of list searches get no tabu search if they are longer than this times the best makespan."""
_MAX_STALLED_ORDER_SLICES = 6
"""Drop a tabu search after this many slices without improvement."""
_HORIZON_S, _DEVICES_S = 1.5, 3.0
"""Time limits in seconds of the first horizons and of the devices bound."""
_MIN_SUCCESS_RATE = 0.08
"""Least success rate that is assumed when the next kind of task is chosen."""
_LEARNING_RATE = 0.15
"""Weight of the last task in the success rate of its kind."""


@dataclass(slots=True)
class _Slice:
    """A task for one worker. `finish` offers its result and returns whether it was an improvement."""

    kind: str
    work: Callable[[], Any]
    finish: Callable[[Any], bool]
    length: float = 1.0
    """Time that it takes, as a multiple of the usual time of its kind."""


@dataclass
class Portfolio:
    """Searches that improve an incumbent. `order` lists the blocks so that one micro-batch alone fits in memory."""

    incumbent: Incumbent
    order: Sequence[int]
    effort: Effort
    _ended: list[ListSearch] = field(default_factory=list)
    """The best of the list searches that were replaced."""
    _orders: list[OrderSearch] = field(default_factory=list)
    _busy: set[int] = field(default_factory=set)
    """Identities of the searches on which a worker is working."""
    _searched: set[int] = field(default_factory=set)
    """Makespans of the schedules from which a tabu search has started."""

    def __post_init__(self) -> None:
        self._chance, self._seed = random.Random(self.effort.seed), self.effort.seed
        self._pays = dict.fromkeys(METHODS, 0.5)
        self._left = max(1, int(self.effort.seconds * SLICES_PER_SECOND))
        self._horizons = Horizons(_HORIZON_S)
        self._bounded, self._horizon_open = False, True
        self._round_slices = _SLICES_PER_HALVING_ROUND
        plan, micro_batches = self.incumbent.plan, self.incumbent.micro_batches
        self.lists = lists_by_every_rule(plan, self.order, micro_batches, self.effort.seed)
        """List searches that remain after successive halving."""
        first, *others = self.lists
        tries = min(_FIRST_RESTARTS, 5 * first.tries_per_slice)
        self._queue = [self._look(first, tries), *(self._look(each, max(1, tries // 8)) for each in others)]

    def begin(self, control: Control) -> bool:
        """Run the queued tasks. They build a few list schedules per rule. Return False if the control stopped."""
        return self._work_off(lambda: self._queue.pop(0) if self._queue else None, control)

    def run(self, control: Control) -> None:
        """Improve the incumbent until it is proved or the control stops.

        A repeatable search ends after a fixed number of slices.
        """
        if self._queue and not self.begin(control):
            return
        self._queue = [self._evolve(each) for each in self.lists]
        if not self.begin(control):
            return
        self._work_off(lambda: self._next(control), control)

    def _work_off(self, take: Callable[[], _Slice | None], control: Control) -> bool:
        return work_off(
            self.effort.workers,
            lambda: None if self.incumbent.proved else take(),
            lambda each: each.work(),
            self._finish,
            control,
        )

    def _finish(self, each: _Slice, result: object) -> None:
        better = each.finish(result)
        self._pays[each.kind] += _LEARNING_RATE * (better - self._pays[each.kind])

    def _next(self, control: Control) -> _Slice | None:
        """Return the next task, or None if there is none. Its kind is drawn by the recent rate of success per time."""
        if self.effort.repeatable and self._left <= 0:
            return None
        weights = {kind: max(_MIN_SUCCESS_RATE, self._pays[kind]) / METHODS[kind].slices for kind in METHODS}
        while weights:
            kind = self._chance.choices(list(weights), list(weights.values()))[0]
            task = METHODS[kind].task(self, control)
            if task is not None:
                self._left -= int(METHODS[kind].slices * task.length)
                return task
            del weights[kind]
        return None

    def _offer(self, search: ListSearch | OrderSearch, kind: str) -> bool:
        self._busy.discard(id(search))
        shorter = 0 <= search.makespan < self.incumbent.makespan
        return shorter and self.incumbent.offer(search.starts, kind)

    # Lists

    def _look(self, search: ListSearch, tries: int) -> _Slice:
        return _Slice("list", lambda: search.restart(tries), lambda _: self._offer(search, "list"))

    def _evolve(self, search: ListSearch) -> _Slice:
        self._busy.add(id(search))
        return _Slice("list", search.evolve, lambda _: self._offer(search, "list"))

    def _some_list(self, _control: Control) -> _Slice | None:
        """Return a slice of the list search with the fewest slices.

        After each round, drop the worse half of the searches.
        """
        if len(self.lists) > _SURVIVING_LIST_SEARCHES and min(each.slices for each in self.lists) >= self._round_slices:
            self.lists = sorted(self.lists, key=_by_makespan)[: -(-len(self.lists) // 2)]
            self._round_slices *= 2
        for i, each in enumerate(self.lists):
            if each.idle_slices >= _MAX_STALLED_LIST_SLICES and id(each) not in self._busy:
                self._ended = sorted([*self._ended, each], key=_by_makespan)[:_KEPT_LIST_SEARCHES]
                self.lists[i] = self._fresh_list()
        free = [each for each in self.lists if id(each) not in self._busy]
        return self._evolve(min(free, key=lambda each: each.slices)) if free else None

    def _fresh_list(self) -> ListSearch:
        """Return a replacement for a stalled list search.

        It starts from a random change of one of the best, or from random priorities.
        """
        self._seed += 1
        if self._chance.random() > _RANDOM_RESTART_SHARE:
            return self._chance.choice(self._ended).kicked(self._seed)
        rule, from_the_end = self._chance.choice(list(RULES)), self._chance.random() < 0.5
        plan, micro_batches = self.incumbent.plan, self.incumbent.micro_batches
        fresh = ListSearch(plan, self.order, micro_batches, rule, self._seed, from_the_end=from_the_end)
        fresh.scatter()
        return fresh

    # Orders

    def _some_order(self, _control: Control) -> _Slice | None:
        """Return a slice of the most promising tabu search.

        Start new ones from the lists and the incumbent if there is room.
        """
        self._orders = [each for each in self._orders if each.idle_slices < _MAX_STALLED_ORDER_SLICES]
        best = self.incumbent.starts
        for each in sorted([*self.lists, *self._ended], key=_by_makespan):
            if 0 <= each.makespan <= _MAX_MAKESPAN_RATIO * self.incumbent.makespan and id(each) not in self._busy:
                self._search_orders(each.makespan, lambda each=each: each.starts)  # type: ignore[misc]
        if not self._orders:  # all have stalled: start from the incumbent again with another seed
            self._searched.discard(self.incumbent.makespan)
        self._search_orders(self.incumbent.makespan, lambda: best)
        free = [each for each in self._orders if id(each) not in self._busy]
        if not free:
            return None
        search = min(free, key=lambda each: (each.idle_slices, each.makespan))
        self._busy.add(id(search))
        return _Slice("order", lambda: search.improve(self.incumbent.bound), lambda _: self._offer(search, "order"))

    def _search_orders(self, makespan: int, starts: Callable[[], IntColumn]) -> None:
        """Start a tabu search from a schedule, unless one has started from this makespan or too many are running."""
        full = len(self._orders) >= _MAX_ORDER_SEARCHES or self.incumbent.runs > OrderSearch.MAX_RUNS
        if full or makespan in self._searched:
            return
        self._searched.add(makespan)
        self._seed += 1
        self._orders.append(OrderSearch(self.incumbent.plan, starts(), self._seed))

    # Questions to CP-SAT

    def _ask_horizon(self, control: Control) -> _Slice | None:
        """Return a task that searches for a schedule by a horizon, a time between the bound and the best makespan."""
        incumbent = self.incumbent
        if incumbent.runs > MAX_RUNS or not self._horizon_open:
            return None
        target = self._horizons.next_horizon(incumbent.bound, incumbent.makespan)
        self._horizon_open = False
        seconds, quantum = self._horizons.seconds, quantum_of(incumbent.plan)
        effort = self.effort.within(seconds)
        work = partial(schedule_within, incumbent.plan, incumbent.micro_batches, target, effort, control)

        def finish(found: tuple[Verdict, Schedule | None]) -> bool:
            self._horizon_open = True
            verdict, schedule = found
            if verdict is Verdict.IMPOSSIBLE:
                better = incumbent.raise_bound((target // quantum + 1) * quantum, "horizon")
            else:
                better = schedule is not None and incumbent.offer(schedule.starts, "horizon")
            self._horizons.learn(better)
            return better

        return _Slice("horizon", work, finish, seconds / _HORIZON_S)

    def _bound_devices(self, control: Control) -> _Slice | None:
        """Return a task that computes the devices bound. There is only one such task."""
        if self._bounded:
            return None
        incumbent, self._bounded = self.incumbent, True
        effort = replace(self.effort.within(_DEVICES_S), workers=1)
        plan, micro_batches, known = incumbent.plan, incumbent.micro_batches, incumbent.makespan
        work = partial(devices_bound, plan, micro_batches, incumbent.bound, effort, control, known=known)
        return _Slice("devices", work, lambda found: incumbent.raise_bound(found, "bound"))


@dataclass(frozen=True, slots=True)
class Method:
    """A method of the portfolio."""

    slices: int
    """Time that one task takes, in slices."""
    task: Callable[[Portfolio, Control], _Slice | None]
    """Returns the next task, or None if there is none now."""


METHODS = {
    "list": Method(1, Portfolio._some_list),
    "order": Method(1, Portfolio._some_order),
    "horizon": Method(6, Portfolio._ask_horizon),
    "devices": Method(12, Portfolio._bound_devices),
}
"""The methods among which a portfolio divides its time."""


def _by_makespan(search: ListSearch) -> float:
    return search.makespan if search.makespan >= 0 else np.inf
