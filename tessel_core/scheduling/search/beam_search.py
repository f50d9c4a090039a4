"""Beam search for schedules around pinned runs. The kernels are in `kernels.beams`."""

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
from tessel_core.scheduling.search.timing import compacted_around
from tessel_core.scheduling.structure import path_lengths

WIDTHS = (30, 100, 300, 1_000, 3_000, 10_000)
_MAX_WIDTH_TIMES_RUNS = 2_000_000
"""Largest product of the width of a beam and the number of runs. Wider beams rarely find better schedules in time."""
_SCORE_NOISE = 1e-3
"""Largest random change of a score, as a fraction of the score."""
_MAX_SOLE_BLOCKS = 62
"""Largest number of sole blocks (see `_sole`). Each is one bit of an integer of 64 bits."""


@dataclass(frozen=True, slots=True)
class BeamResult:
    """The result of a beam search."""

    starts: IntColumn | None
    """Starts of a schedule, shaped (micro-batches, blocks), or None."""
    excluded: bool = False
    """Whether the search proves that there is no schedule.

    True only if no partial schedule was dropped for the width.
    """


class BeamSearch:
    """Search for schedules of `micro_batches` that keep pins.

    `pinned` maps runs to their fixed starts in ticks. For each pair of runs in `orders`, the second starts after the
    first has ended.
    """

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
        """Useful widths of beams, in ascending order."""
        runs = self.micro_batches * len(self.plan.blocks)
        return tuple(width for width in WIDTHS if width == WIDTHS[0] or width * runs <= _MAX_WIDTH_TIMES_RUNS)

    def search(self, width: int, limit: int, seed: int, stopped: Callable[[], bool]) -> BeamResult:
        """Search for a schedule that ends by `limit` ticks, until `stopped` returns true.

        A `seed` above 0 adds noise to the scores.
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
            noisy = score[kept] * (1 + _SCORE_NOISE * chance.random(kept.size)) if seed else score[kept]
            chosen = kept[np.argsort(noisy, kind="stable")[:width]]
            whole &= kept.size <= width
            take_steps(self._tables, self._pins, beam, steps, chosen, after, scratch)
            beam, after, alive = after, beam, chosen.size
        complete = beam.starts[:alive].reshape(alive, self.micro_batches, len(self.plan.blocks))
        ends = (complete + self._tables.duration).max(axis=(1, 2))
        starts = complete[ends.argmin()]
        return BeamResult(None if check_schedule(Schedule.at_starts(self.plan, starts)) else starts)

    def search_backwards(self, width: int, limit: int, stopped: Callable[[], bool]) -> BeamResult:
        """Search for a schedule that ends by `limit` ticks, on the plan with time reversed.

        The search places runs from `limit` towards 0. If pinned runs are late, fewer partial schedules reach them this
        way.
        """
        pinned = {(b, m): limit - start - self._duration(b) for (b, m), start in self._pinned.items()}
        orders = [(second, first) for first, second in self._orders]
        turned = BeamSearch(backwards(self.plan), self.micro_batches, pinned, orders)
        outcome = turned.search(width, limit, 0, stopped)
        if outcome.starts is None:
            return outcome
        starts, alike = limit - outcome.starts - self._tables.duration, self._pins.alike
        starts[alike] = starts[alike[::-1]]  # reversed time also reverses the order of micro-batches
        return BeamResult(compacted_around(self.plan, starts, self._pinned, self._orders))

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
        """Return the latest start of each block of micro-batch m.

        It is UNLIMITED if no pinned run depends on the block.
        """
        latest = [UNLIMITED] * len(self.plan.blocks)
        for b in reversed(self.plan.topological_order):
            after = (latest[c] - lag - self.plan.blocks[b].duration for c, lag in self.plan.successors[b])
            latest[b] = self._pinned.get((b, m), min(after, default=UNLIMITED))
        return latest

    def _duration(self, b: int) -> int:
        return self.plan.blocks[b].duration

    def _tail(self, b: int) -> int:
        """Return the longest path in ticks from the start of a block to the end of the micro-batch."""
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
    """Return the blocks that share a device with every block and hold no memory.

    There are none if the plan has lags.
    """
    devices = [set(block.devices) for block in plan.blocks]
    sole = [
        b for b, block in enumerate(plan.blocks) if not block.memory and all(devices[b] & other for other in devices)
    ]
    return [] if any(lag for _, _, lag in plan.arcs) else sole[:_MAX_SOLE_BLOCKS]


def _ahead(plan: MicroBatchPlan, b: int, sole: Sequence[int]) -> list[int]:
    """Return the sole blocks whose runs may all come before the runs of block b. This excludes no makespan.

    They have no predecessors, b has no successors, and they are as long as b. So if a run of b comes before one of
    their runs, the two can swap places.
    """
    if b not in sole or plan.successors[b] or not plan.predecessors[b]:
        return []
    return [a for a in sole if not plan.predecessors[a] and plan.blocks[a].duration == plan.blocks[b].duration]


def _room_for(steps: int) -> Steps:
    return Steps(*np.zeros((6, max(64, steps)), np.int64))
