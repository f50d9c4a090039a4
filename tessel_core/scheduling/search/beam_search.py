"""Schedules around runs that are pinned, by beams: see `kernels.beams`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, chain

import numpy as np

from tessel_core.model import MicroBatchPlan, Schedule
from tessel_core.model.schedule import IntColumn
from tessel_core.rules import check_schedule
from tessel_core.scheduling.kernels.beams import Beam, Pins, Steps, Ways, next_steps, take_steps
from tessel_core.scheduling.kernels.tables import UNLIMITED, column, rows, tables_of
from tessel_core.scheduling.order import Run
from tessel_core.scheduling.structure import path_lengths

_WIDTHS = (30, 100, 300, 1_000, 3_000)
_MOST_ROOM = 500_000
"""Widths times runs; wider beams take too long for what they find."""
_NOISE = 1e-3
"""By how much scores are blurred, as a share, in every second pass of a width."""


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
        self.plan, self.micro_batches, self._pinned = plan, micro_batches, pinned or {}
        self._tables = tables_of(plan, plan.topological_order)
        _, tails = path_lengths(plan)
        rest = [tail - block.duration for tail, block in zip(tails, plan.blocks, strict=True)]
        by_rest = (sorted(on, key=lambda b: -rest[b]) for on in plan.blocks_on)
        self._ways = Ways(column(plan.topological_order), column(rest), column(chain.from_iterable(by_rest)))
        self._pins = self._pins_of(orders)

    @property
    def widths(self) -> tuple[int, ...]:
        """How wide beams are worth trying, narrow ones first."""
        runs = self.micro_batches * len(self.plan.blocks)
        return tuple(width for width in _WIDTHS if width == _WIDTHS[0] or width * runs <= _MOST_ROOM)

    def search(self, width: int, limit: int, seed: int, stopped: Callable[[], bool]) -> IntColumn | None:
        """Starts, shaped (micro-batches, blocks), of a schedule that ends by `limit`; None where none was found
        before it was `stopped`.

        A `seed` above 0 blurs the scores.
        """
        blocks, runs = len(self.plan.blocks), self.micro_batches * len(self.plan.blocks)
        beam, after = self._beginning(width), self._beginning(width)
        steps = Steps(*np.zeros((5, width * blocks * (1 + self._pins.special.size)), np.int64))
        chance = np.random.default_rng(seed)
        alive = 1
        for _ in range(runs - len(self._pinned)):
            count = next_steps(self._tables, self._pins, self._ways, beam, alive, limit, steps)
            if not count or stopped():
                return None
            blur = 1 + _NOISE * chance.random(count) if seed else 1
            score = steps.score[:count] * blur
            best = np.argsort(score, kind="stable")
            _, first = np.unique(steps.key[best], return_index=True)
            chosen = best[np.sort(first)[:width]]
            take_steps(self._tables, self._pins, beam, steps, chosen, after)
            beam, after, alive = after, beam, chosen.size
        found = beam.starts[:alive].reshape(alive, self.micro_batches, blocks)
        ends = (found + self._tables.duration).max(axis=(1, 2))
        starts = found[ends.argmin()]
        return None if check_schedule(Schedule.at_starts(self.plan, starts)) else starts

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
        return Beam(starts, np.zeros((width, blocks), np.int64), left, busy, passed, held, np.zeros(width, np.int64))

    def _pins_of(self, orders: Sequence[tuple[Run, Run]]) -> Pins:
        plan, blocks, micro_batches = self.plan, len(self.plan.blocks), range(self.micro_batches)
        special = {m for _, m in [*self._pinned, *chain.from_iterable(orders)]}
        lines = [sorted((start, b) for (b, _), start in self._pinned.items() if b in on) for on in plan.blocks_on]
        durations = [[plan.blocks[b].duration for _, b in line] for line in lines]
        line = list(chain.from_iterable(lines))
        before = chain.from_iterable(list(accumulate(each, initial=0))[:-1] for each in durations)
        waits: list[list[int]] = [[] for _ in range(self.micro_batches * blocks)]
        for (a, m), (b, n) in orders:
            waits[n * blocks + b].append(m * blocks + a)
        return Pins(
            row=rows(lines),
            start=column(start for start, _ in line),
            end=column(start + plan.blocks[b].duration for start, b in line),
            memory=column(plan.blocks[b].memory for _, b in line),
            free=column(start - busy for (start, _), busy in zip(line, before, strict=True)),
            alike=column(m for m in micro_batches if m not in special),
            special=column(sorted(special)),
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
