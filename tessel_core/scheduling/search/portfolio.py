"""Ways to a shorter schedule, and to a proof, side by side until the bound is met or time is up.

Kinds of work, in slices of a fifth of a second or more: *lists* evolve the rules of list schedules, forwards and from
the end; *orders* reverse critical neighbours of the shortest schedules seen; *neighbourhoods* free a window of time of
the shortest and ask CP-SAT; *horizons* ask CP-SAT for any schedule that ends by a time between bound and best, which
finds one or raises the bound; *devices* bound what a few devices must take.  Whichever pays gets more of the time.
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
from tessel_core.scheduling.search.devices_model import MOST_RUNS, schedule_within
from tessel_core.scheduling.search.incumbent import Incumbent
from tessel_core.scheduling.search.list_search import RULES, ListSearch, lists_by_every_rule
from tessel_core.scheduling.search.neighbourhood import Windows, solve_window
from tessel_core.scheduling.search.order_search import OrderSearch
from tessel_core.scheduling.search.slices import SLICES_PER_SECOND, work_off

_ELITES = 6
"""Schedules whose orders are searched."""
_FEWEST_LISTS, _FIRST_ROUND = 3, 2
"""Lines of list schedules that go on to the end, and slices that each gets before the worse half goes."""
_IDLE_LIST = 12
"""Slices without improvement after which a line makes room for a fresh one."""
_KEPT_LISTS, _RANDOM = 4, 0.3
"""Lines at their end, the best of which begin again, and the share of new lines that begin anywhere."""
_RESTARTS = 200
"""Restarts of the very first list, as many as `list-scheduling` makes by default, so as never to be longer."""
_NEAR = 1.02
"""Times the shortest: longer lists are not worth an order search."""
_IDLE = 6
"""Slices without improvement after which an order search makes room for another."""
_WINDOW_S, _HORIZON_S, _DEVICES_S = 1.5, 1.5, 3.0
_COSTS = {"list": 1, "order": 1, "neighbourhood": 5, "horizon": 6, "devices": 12}
"""Slices' worth of time that one piece of each kind takes."""
_MOST_WINDOW_RUNS = 50_000
"""The rest of a larger schedule takes longer to look at than a window of it to solve."""
_LEAST_SHARE = 0.08
"""The share of slices that each kind of work gets even while it does not pay."""
_LEARNING = 0.15


@dataclass(slots=True)
class _Slice:
    """One piece of work for one worker; `finish` offers its result and says whether that was better."""

    kind: str
    work: Callable[[], Any]
    finish: Callable[[Any], bool]


@dataclass
class Portfolio:
    """Searches that improve an incumbent.

    `order` is one of the plan's blocks in which one micro-batch alone fits.
    """

    incumbent: Incumbent
    order: Sequence[int]
    effort: Effort
    _ended: list[ListSearch] = field(default_factory=list)
    """The best of the lines that came to their end."""
    _orders: list[OrderSearch] = field(default_factory=list)
    _busy: set[int] = field(default_factory=set)
    """Identities of the searches that a worker is at."""
    _searched: set[int] = field(default_factory=set)
    """Makespans from which an order search has begun."""

    def __post_init__(self) -> None:
        self._chance, self._seed = random.Random(self.effort.seed), self.effort.seed
        self._windows = Windows(self.effort.seed)
        self._pays = dict.fromkeys(_COSTS, 0.5)
        self._left = max(1, int(self.effort.seconds * SLICES_PER_SECOND))
        self._reach = 0.5
        """The distance of the next horizon from the bound, as a share of the gap."""
        self._bounding, self._horizon_open = False, True
        self._round_slices = _FIRST_ROUND
        plan, micro_batches = self.incumbent.plan, self.incumbent.micro_batches
        self.lists = lists_by_every_rule(plan, self.order, micro_batches, self.effort.seed)
        """Lines of list schedules that have survived."""
        first, *others = self.lists
        tries = min(_RESTARTS, 5 * first.tries_per_slice)
        self._queue = [self._look(first, tries), *(self._look(each, max(1, tries // 8)) for each in others)]

    def begin(self, control: Control) -> bool:
        """One quick look by every rule, forwards and from the end; False where the control stopped it."""
        return self._work_off(lambda: self._queue.pop(0) if self._queue else None, control)

    def run(self, control: Control) -> None:
        """Improve until the incumbent is proved, or the control or, where it must be repeatable, the effort ends."""
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
        self._pays[each.kind] += _LEARNING * (better - self._pays[each.kind])

    def _next(self, control: Control) -> _Slice | None:
        """A slice of a kind drawn by how often it has paid lately for its time."""
        if self.effort.repeatable and self._left <= 0:
            return None
        kinds = [kind for kind in self._pays if kind != "devices" or not self._bounding]
        weights = [max(_LEAST_SHARE, self._pays[kind]) / _COSTS[kind] for kind in kinds]
        makers: dict[str, Callable[[], _Slice | None]] = {
            "list": self._some_list,
            "order": self._some_order,
            "neighbourhood": lambda: self._free_window(control),
            "horizon": lambda: self._ask_horizon(control),
            "devices": lambda: self._bound_devices(control),
        }
        while any(weights):
            kind = self._chance.choices(kinds, weights)[0]
            found = makers[kind]()
            if found is not None:
                self._left -= _COSTS[kind]
                return found
            weights[kinds.index(kind)] = 0.0
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

    def _some_list(self) -> _Slice | None:
        """The one with the fewest slices, of those that have survived: ever fewer, which get ever more."""
        if len(self.lists) > _FEWEST_LISTS and min(each.slices for each in self.lists) >= self._round_slices:
            self.lists = sorted(self.lists, key=_by_makespan)[: -(-len(self.lists) // 2)]
            self._round_slices *= 2
        for i, each in enumerate(self.lists):
            if each.idle_slices >= _IDLE_LIST and id(each) not in self._busy:
                self._ended = sorted([*self._ended, each], key=_by_makespan)[:_KEPT_LISTS]
                self.lists[i] = self._fresh_list()
        free = [each for each in self.lists if id(each) not in self._busy]
        return self._evolve(min(free, key=lambda each: each.slices)) if free else None

    def _fresh_list(self) -> ListSearch:
        """In place of a line at its end: one of the best again, a little changed, or random priorities."""
        self._seed += 1
        if self._chance.random() > _RANDOM:
            return self._chance.choice(self._ended).kicked(self._seed)
        rule, from_the_end = self._chance.choice(list(RULES)), self._chance.random() < 0.5
        plan, micro_batches = self.incumbent.plan, self.incumbent.micro_batches
        fresh = ListSearch(plan, self.order, micro_batches, rule, self._seed, from_the_end=from_the_end)
        fresh.scatter()
        return fresh

    # Orders

    def _some_order(self) -> _Slice | None:
        """The most promising of the order searches, beside which new ones begin from the lists and the incumbent."""
        self._orders = [each for each in self._orders if each.idle_slices < _IDLE]
        best = self.incumbent.starts
        for each in sorted([*self.lists, *self._ended], key=_by_makespan):
            if 0 <= each.makespan <= _NEAR * self.incumbent.makespan and id(each) not in self._busy:
                self._search_orders(each.makespan, lambda each=each: each.starts)  # type: ignore[misc]
        if not self._orders:  # all are exhausted: the incumbent again, with other luck
            self._searched.discard(self.incumbent.makespan)
        self._search_orders(self.incumbent.makespan, lambda: best)
        free = [each for each in self._orders if id(each) not in self._busy]
        if not free:
            return None
        search = min(free, key=lambda each: (each.idle_slices, each.makespan))
        self._busy.add(id(search))
        return _Slice("order", lambda: search.improve(self.incumbent.bound), lambda _: self._offer(search, "order"))

    def _search_orders(self, makespan: int, starts: Callable[[], IntColumn]) -> None:
        """Begin to search the orders of a schedule, unless that was done or there is no room for one more."""
        if len(self._orders) >= _ELITES or makespan in self._searched or self.incumbent.runs > OrderSearch.MOST_RUNS:
            return
        self._searched.add(makespan)
        self._seed += 1
        self._orders.append(OrderSearch(self.incumbent.plan, starts(), self._seed))

    # Questions to CP-SAT

    def _free_window(self, control: Control) -> _Slice | None:
        if self.incumbent.runs > _MOST_WINDOW_RUNS:
            return None
        incumbent, window, effort = self.incumbent, self._windows.next(), self.effort.within(_WINDOW_S)
        work = partial(solve_window, incumbent.plan, incumbent.starts, window, incumbent.bound, effort, control)

        def finish(found: tuple[Verdict, IntColumn | None]) -> bool:
            verdict, starts = found
            self._windows.learn(verdict)
            return incumbent.offer(starts, "neighbourhood")

        return _Slice("neighbourhood", work, finish)

    def _ask_horizon(self, control: Control) -> _Slice | None:
        """Whether there is a schedule some way between the bound and the best."""
        incumbent = self.incumbent
        if incumbent.runs > MOST_RUNS or not self._horizon_open:
            return None
        gap = incumbent.makespan - 1 - incumbent.bound
        target = incumbent.bound + int(gap * self._reach)
        self._horizon_open = False
        effort = self.effort.within(_HORIZON_S)
        work = partial(schedule_within, incumbent.plan, incumbent.micro_batches, target, effort, control)

        def finish(found: tuple[Verdict, Schedule | None]) -> bool:
            self._horizon_open = True
            verdict, schedule = found
            if verdict is Verdict.IMPOSSIBLE:
                return incumbent.raise_bound(target + 1, "horizon")
            if verdict is Verdict.UNKNOWN:  # where the answer changes sides is hard to tell: ask nearer to one end
                self._reach = self._chance.choice((0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0))
            return schedule is not None and incumbent.offer(schedule.starts, "horizon")

        return _Slice("horizon", work, finish)

    def _bound_devices(self, control: Control) -> _Slice:
        """Bound the makespan by ever larger sets of devices, once."""
        incumbent, self._bounding = self.incumbent, True
        effort = replace(self.effort.within(_DEVICES_S), workers=1)
        plan, micro_batches, known = incumbent.plan, incumbent.micro_batches, incumbent.makespan
        work = partial(devices_bound, plan, micro_batches, incumbent.bound, effort, control, known=known)
        return _Slice("devices", work, lambda found: incumbent.raise_bound(found, "bound"))


def _by_makespan(search: ListSearch) -> float:
    return search.makespan if search.makespan >= 0 else np.inf
