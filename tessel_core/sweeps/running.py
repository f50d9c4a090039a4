"""A sweep under way: points go out to workers and results into the store, whichever worker dies."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.sweeps.pools import WorkerPool
from tessel_core.sweeps.solving import PointResult, PointStatus, solve_point
from tessel_core.sweeps.store import SweepRow, SweepStore
from tessel_core.sweeps.sweep import SolverSweep, SweepPoint

MOST_DEATHS = 2
"""Workers that may die over one point while it is the only one under way; then it has failed."""
MOST_BREAKS = 20
"""Breaks of a pool in a row without a point solved in between; more mean that something is wrong with the pool."""
_BACKLOG = 2
"""Points with the pool per slot, so that no worker waits for the next."""
_TICK_S = 0.2
"""How long a cancel may go unheard."""
_BREAKING_S = 1.0
"""Seconds in which all futures of a broken pool hear of it."""


@dataclass(frozen=True, slots=True)
class SweepCounts:
    """The progress of a sweep."""

    size: int
    kept: int
    """Points that had a result before this run."""
    solved: int
    """Points that this run has settled, those that failed included."""
    failed: int
    """Points among those that have failed."""
    wall_s: float

    @property
    def done(self) -> int:
        """Points with a result."""
        return self.kept + self.solved

    @property
    def rate(self) -> float:
        """Points per second of this run."""
        return self.solved / self.wall_s if self.wall_s > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds until the end at this rate; None before there is one."""
        return (self.size - self.done) / self.rate if self.rate > 0 else None

    @property
    def summary(self) -> str:
        """One line of progress."""
        left = "" if self.left_s is None else f", {_clock(self.left_s)} left"
        return f"{self.done:,} of {self.size:,} points, {self.failed:,} failed, {self.rate:.3g}/s{left}"


def run_sweep(sweep: SolverSweep, pool: WorkerPool, store: SweepStore, control: Control) -> SweepCounts:
    """Solve the points that the store does not have, in the order of the sweep; it keeps each result as it comes.

    Every `SweepRow` is delivered, with news of the progress.  When `control` stops, what is under way is dropped: the
    same sweep into the same store goes on there.  A point whose worker died is asked again, alone, so that only the
    guilty one is blamed, and has failed when that kills a worker too, `MOST_DEATHS` times.

    Raises InputError when the store takes no more results, or no worker is left; what was kept stays.
    """
    run = _Run(sweep, pool, store, control)
    while run.unsettled and not control.stopped:
        run.step()
    return run.counts


class _Run:
    """Points by where they are: waiting, suspected of having killed a worker, or with the pool.

    Invariant: every point that is not in the store is in exactly one of the three.
    """

    def __init__(self, sweep: SolverSweep, pool: WorkerPool, store: SweepStore, control: Control) -> None:
        self._pool, self._store, self._control = pool, store, control
        done = store.done()
        self._number = {point.key: i for i, point in enumerate(sweep.points)}
        self._waiting = deque(point for point in sweep.points if point.key not in done)
        self._suspects: deque[SweepPoint] = deque()
        self._under_way: dict[Future[PointResult], SweepPoint] = {}
        self._deaths, self._breaks = Counter[str](), 0
        self._size, self._kept = sweep.size, sweep.size - len(self._waiting)
        self._solved = self._failed = 0
        self._began = control.elapsed_s
        self._tell()

    @property
    def unsettled(self) -> bool:
        return bool(self._waiting or self._suspects or self._under_way)

    @property
    def counts(self) -> SweepCounts:
        return SweepCounts(self._size, self._kept, self._solved, self._failed, self._control.elapsed_s - self._began)

    def step(self) -> None:
        """Hand out points, wait for results a moment, keep them; renew the pool where it broke."""
        taken = self._submit()
        self._settle(_TICK_S, FIRST_COMPLETED)
        if not (taken and self._pool.check()):
            self._settle(_BREAKING_S, ALL_COMPLETED)
            self._renew()

    def _submit(self) -> bool:
        """Fill the backlog, or ask one suspect alone; False where the pool takes nothing."""
        while (queue := self._next()) is not None:
            try:
                future = self._pool.executor.submit(solve_point, queue[0])
            except self._pool.closed:
                return False
            except OSError as error:
                why = f"cannot be started ({error.strerror}); points that are done are kept"
                raise InputError("workers", why) from None
            self._under_way[future] = queue.popleft()
        return True

    def _next(self) -> deque[SweepPoint] | None:
        """The queue of the next point; None where the pool has enough."""
        if self._suspects:
            return None if self._under_way else self._suspects
        room = len(self._under_way) < _BACKLOG * self._pool.slots
        return self._waiting if room and self._waiting else None

    def _settle(self, seconds: float, until: str) -> None:
        """Keep the results that come in this time."""
        alone = len(self._under_way) == 1
        ended, _ = wait(self._under_way, timeout=seconds, return_when=until)
        rows = [row for future in ended for row in self._row_of(self._under_way.pop(future), future, alone)]
        if rows:
            self._store.keep(rows)
            self._solved += len(rows)
            for row in rows:
                self._control.deliver(row)
            self._tell()

    def _row_of(self, point: SweepPoint, future: Future[PointResult], alone: bool) -> Iterator[SweepRow]:
        """The row of a point with a result; one that has none goes back."""
        error = CancelledError() if future.cancelled() else future.exception()
        if error is None:
            self._breaks = 0
            yield self._row(point, future.result())
        elif isinstance(error, CancelledError):
            self._waiting.appendleft(point)
        elif not isinstance(error, self._pool.lost):
            yield self._failure(point, f"a bug of ours ({type(error).__name__}: {error})")
        elif alone and self._deaths[point.key] + 1 == MOST_DEATHS:
            yield self._failure(
                point, f"its worker died {MOST_DEATHS} times with nothing else under way; out of memory?"
            )
        else:
            self._deaths[point.key] += alone
            self._suspects.append(point)

    def _failure(self, point: SweepPoint, reason: str) -> SweepRow:
        self._failed += 1
        return self._row(point, PointResult(status=PointStatus.FAILED, reason=" ".join(reason.split())))

    def _row(self, point: SweepPoint, result: PointResult) -> SweepRow:
        return SweepRow.joined(self._number[point.key], point, result)

    def _tell(self) -> None:
        self._control.report(f"{self.counts.summary}, after", None, None)

    def _renew(self) -> None:
        """New workers; what the old ones had goes back."""
        self._breaks += 1
        if self._breaks > MOST_BREAKS:
            why = f"broke {MOST_BREAKS} times in a row without solving a point; points that are done are kept"
            raise InputError("workers", why)
        self._waiting.extendleft(reversed(self._under_way.values()))
        self._under_way.clear()
        self._pool.renew()


def _clock(seconds: float) -> str:
    """
    >>> _clock(42.4), _clock(200), _clock(9000)
    ('42 s', '3 min', '2 h 30 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
