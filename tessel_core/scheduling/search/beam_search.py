"""Schedules around runs that are pinned, by beams: see `kernels.beams`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np

from tessel_core.model import MicroBatchPlan, Schedule
from tessel_core.model.schedule import IntColumn
from tessel_core.rules import check_schedule
from tessel_core.scheduling.kernels.beams import Beam, Pins, Scratch, Steps, Ways, next_steps, take_steps, undominated
from tessel_core.scheduling.kernels.tables import UNLIMITED, backwards, column, rows, tables_of
from tessel_core.scheduling.order import Run
from tessel_core.scheduling.structure import path_lengths

WIDTHS = (30, 100, 300, 1_000, 3_000, 10_000)
_MOST_ROOM = 2_000_000
"""Widths times runs; wider beams take too long for what they find."""
_NOISE = 1e-3
"""By how much scores are blurred, as a share."""
_MOST_SOLE = 62
"""As many bits as a number has."""


@dataclass(frozen=True, slots=True)
class BeamResult:
    """What a beam came to."""

    starts: IntColumn | None
    """Of a schedule, shaped (micro-batches, blocks)."""
    excluded: bool = False
    """Whether there is none: the beam had room for all that could have become one."""


class BeamSearch:
    """Schedules of a number of micro-batches whose `pinned` runs have their starts, and of two runs in `orders` the
    second waits for the first to end."""

    def __init__(
        self,
        plan: MicroBatchPlan,
        micro_batches: int,
        pinned: Mapping[Run, int] | None = None,
        orders: Sequence[tuple[Run, Run]] = (),
    ) -> None:
        self.plan, self.micro_batches, self._pinned, self._orders = plan, micro_batches, pinned or {}, orders
        self._tables, self._ways = tables_of(plan, plan.topological_order), _ways(plan)
        self._pins = self._pins_of(orders)

    @property
    def widths(self) -> tuple[int, ...]:
        """How wide beams are worth trying, narrow ones first."""
        runs = self.micro_batches * len(self.plan.blocks)
        return tuple(width for width in WIDTHS if width == WIDTHS[0] or width * runs <= _MOST_ROOM)

    def search(self, width: int, limit: int, seed: int, stopped: Callable[[], bool]) -> BeamResult:
        """A schedule that ends by `limit`, where one is found before it is `stopped`.

        A `seed` above 0 blurs the scores.
        """
        if any(start < 0 or start + self._tail(b) > limit for (b, _), start in self._pinned.items()):
            return BeamResult(None, excluded=True)
        beam, after, steps = self._beginning(width), self._beginning(width), _room_for(width)
        scratch = self._scratch()
        chance = np.random.default_rng(seed)
        alive, whole = 1, True
        for _ in range(self.micro_batches * len(self.plan.blocks) - len(self._pinned)):
            while (count := next_steps(self._tables, self._pins, self._ways, beam, alive, limit, steps, scratch)) < 0:
                steps = _room_for(2 * steps.run.size)
            if not count or stopped():
                return BeamResult(None, excluded=whole and not count)
            score = steps.score[:count]
            order = np.lexsort((score, steps.start[:count], steps.key[:count]))
            kept = np.empty_like(order)
            kept = kept[: undominated(self._tables, self._pins, self._ways, beam, steps, order, kept)]
            blurred = score[kept] * (1 + _NOISE * chance.random(kept.size)) if seed else score[kept]
            chosen = kept[np.argsort(blurred, kind="stable")[:width]]
            whole &= kept.size <= width
            take_steps(self._tables, self._pins, beam, steps, chosen, after, scratch)
            beam, after, alive = after, beam, chosen.size
        found = beam.starts[:alive].reshape(alive, self.micro_batches, len(self.plan.blocks))
        ends = (found + self._tables.duration).max(axis=(1, 2))
        starts = found[ends.argmin()]
        return BeamResult(None if check_schedule(Schedule.at_starts(self.plan, starts)) else starts)

    def search_backwards(self, width: int, limit: int, stopped: Callable[[], bool]) -> BeamResult:
        """As `search`, from the limit down: where pinned runs are late, fewer beginnings come to them."""
        pinned = {(b, m): limit - start - self._duration(b) for (b, m), start in self._pinned.items()}
        orders = [(second, first) for first, second in self._orders]
        turned = BeamSearch(backwards(self.plan), self.micro_batches, pinned, orders)
        outcome = turned.search(width, limit, 0, stopped)
        if outcome.starts is None:
            return outcome
        starts, alike = limit - outcome.starts - self._tables.duration, self._pins.alike
        starts[alike] = starts[alike[::-1]]  # the last one came first
        return BeamResult(self._earliest(starts))

    def _earliest(self, starts: IntColumn) -> IntColumn:
        """The same orders on all devices, each run as early as they and the pins allow."""
        earliest, busy = np.zeros_like(starts), [0] * len(self.plan.devices)
        for m, b in (divmod(int(run), len(self.plan.blocks)) for run in np.argsort(starts, axis=None, kind="stable")):
            on = self.plan.blocks[b].devices
            ready = [earliest[m, a] + self._duration(a) + lag for a, lag in self.plan.predecessors[b]]
            ready += [earliest[n, a] + self._duration(a) for (a, n), second in self._orders if second == (b, m)]
            earliest[m, b] = max([self._pinned.get((b, m), 0), *ready, *(busy[d] for d in on)])
            for d in on:
                busy[d] = earliest[m, b] + self._duration(b)
        return earliest

    def _beginning(self, width: int) -> Beam:
        blocks, devices, runs = (
            len(self.plan.blocks),
            len(self.plan.devices),
            self.micro_batches * len(self.plan.blocks),
        )
        starts, left = np.full((width, runs), -1, np.int64), np.full((width, blocks), self.micro_batches, np.int64)
        for (b, m), start in self._pinned.items():
            starts[:, m * blocks + b] = start
            left[:, b] -= 1
        busy, passed, held = np.zeros((3, width, devices), np.int64)
        clock, waived = np.zeros((2, width), np.int64)
        return Beam(starts, np.zeros((width, blocks), np.int64), left, busy, passed, held, clock, waived)

    def _scratch(self) -> Scratch:
        blocks, devices = len(self.plan.blocks), len(self.plan.devices)
        passed, held, busy = np.zeros((3, devices), np.int64)
        taken, left, soonest, early = np.zeros((4, blocks), np.int64)
        candidates = np.zeros(blocks * (1 + self._pins.special.size), np.int64)
        return Scratch(passed, held, busy, taken, left, soonest, early, candidates)

    def _pins_of(self, orders: Sequence[tuple[Run, Run]]) -> Pins:
        plan, blocks, micro_batches = self.plan, len(self.plan.blocks), range(self.micro_batches)
        special = {m for _, m in [*self._pinned, *chain.from_iterable(orders)]}
        lines = [sorted((start, b) for (b, _), start in self._pinned.items() if b in on) for on in plan.blocks_on]
        durations = [[plan.blocks[b].duration for _, b in line] for line in lines]
        line = list(chain.from_iterable(lines))
        before = chain.from_iterable(list(accumulate(each, initial=0))[:-1] for each in durations)
        by_start = sorted((start, b) for (b, _), start in self._pinned.items())
        waits: list[list[int]] = [[] for _ in range(self.micro_batches * blocks)]
        for (a, m), (b, n) in orders:
            waits[n * blocks + b].append(m * blocks + a)
        return Pins(
            row=rows(lines),
            start=column(start for start, _ in line),
            end=column(start + plan.blocks[b].duration for start, b in line),
            memory=column(plan.blocks[b].memory for _, b in line),
            free=column(start - busy for (start, _), busy in zip(line, before, strict=True)),
            moment=column(sorted(self._pinned.values())),
            over=column(accumulate((start + self._duration(b) for start, b in by_start), max)),
            alike=column(m for m in micro_batches if m not in special),
            special=column(m for m in sorted(special) if any((b, m) not in self._pinned for b in range(blocks))),
            is_special=np.array([m in special for m in micro_batches], dtype=np.bool_),
            latest=column(chain.from_iterable(self._latest(m) for m in micro_batches)),
            wait_row=rows(waits),
            wait=column(chain.from_iterable(waits)),
        )

    def _latest(self, m: int) -> list[int]:
        """Per block, the latest start of its run in this micro-batch that the pinned ones after it allow."""
        latest = [UNLIMITED] * len(self.plan.blocks)
        for b in reversed(self.plan.topological_order):
            after = (latest[c] - lag - self.plan.blocks[b].duration for c, lag in self.plan.successors[b])
            latest[b] = self._pinned.get((b, m), min(after, default=UNLIMITED))
        return latest

    def _duration(self, b: int) -> int:
        return self.plan.blocks[b].duration

    def _tail(self, b: int) -> int:
        """The longest way from the start of a block to the end of everything."""
        return self._duration(b) + int(self._ways.rest[b])


def _ways(plan: MicroBatchPlan) -> Ways:
    _, tails = path_lengths(plan)
    rest = [tail - block.duration for tail, block in zip(tails, plan.blocks, strict=True)]
    by_rest = (sorted(on, key=lambda b: -rest[b]) for on in plan.blocks_on)
    sole = _sole(plan)
    ahead = [_ahead(plan, b, sole) for b in range(len(plan.blocks))]
    return Ways(
        order=column(plan.topological_order),
        rest=column(rest),
        on=column(chain.from_iterable(by_rest)),
        lag=column(max((lag for _, lag in arcs), default=0) for arcs in plan.successors),
        sole=column(sole),
        ahead_row=rows(ahead),
        ahead=column(chain.from_iterable(ahead)),
    )


def _sole(plan: MicroBatchPlan) -> list[int]:
    """Blocks that exclude all others in time and hold nothing."""
    devices = [set(block.devices) for block in plan.blocks]
    sole = [
        b for b, block in enumerate(plan.blocks) if not block.memory and all(devices[b] & other for other in devices)
    ]
    return [] if any(lag for _, _, lag in plan.arcs) else sole[:_MOST_SOLE]


def _ahead(plan: MicroBatchPlan, b: int, sole: Sequence[int]) -> list[int]:
    """Blocks of `sole`, as long as b, all whose runs may come before those of b: a run of b that came before one of
    theirs may swap places with it, since they wait for nothing and nothing waits for b."""
    if b not in sole or plan.successors[b] or not plan.predecessors[b]:
        return []
    return [a for a in sole if not plan.predecessors[a] and plan.blocks[a].duration == plan.blocks[b].duration]


def _room_for(steps: int) -> Steps:
    return Steps(*np.zeros((6, max(64, steps)), np.int64))
