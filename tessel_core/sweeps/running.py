"""Run a sweep: send its points to workers, store the results, and recover when workers die."""

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

MAX_WORKER_DEATHS = 2
"""A point fails after its worker has died this many times while no other point was being solved."""
MAX_POOL_BREAKS = 20
"""The sweep fails if the pool breaks more often than this in a row without solving a point."""
_POINTS_PER_SLOT = 2
"""Points in the pool, divided by the points that workers solve at once.

Above 1, a worker need not wait for its next point.
"""
_CANCEL_POLL_SECONDS = 0.2
_BREAK_SECONDS = 1.0
"""Wait this long for all futures of a broken pool to fail."""


@dataclass(frozen=True, slots=True)
class SweepCounts:
    """Progress of a sweep. All numbers count points."""

    size: int
    kept: int
    """Points that already had a result before this run."""
    solved: int
    """Points that this run has finished, including failed ones."""
    failed: int
    """Points that failed in this run."""
    wall_s: float

    @property
    def done(self) -> int:
        """Points with a result."""
        return self.kept + self.solved

    @property
    def rate(self) -> float:
        """Number of points that this run finishes per second."""
        return self.solved / self.wall_s if self.wall_s > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Estimated seconds until the end. None before the first point is finished."""
        return (self.size - self.done) / self.rate if self.rate > 0 else None

    @property
    def summary(self) -> str:
        """Progress in one line."""
        left = "" if self.left_s is None else f", {_clock(self.left_s)} left"
        return f"{self.done:,} of {self.size:,} points, {self.failed:,} failed, {self.rate:.3g}/s{left}"


def run_sweep(sweep: SolverSweep, pool: WorkerPool, store: SweepStore, control: Control) -> SweepCounts:
    """Solve the points that have no result in the store, in the order of the sweep, and store each result at once.

    `control` receives every `SweepRow`, and the progress. When it stops the sweep, unfinished points are dropped. The
    same sweep with the same store then solves them. If a worker dies, its points are solved again one at a time, to
    find the point that kills workers. This point fails after `MAX_WORKER_DEATHS` deaths.

    Raises InputError if the store cannot be written or no worker is left. Stored results remain.
    """
    run = _Run(sweep, pool, store, control)
    while run.unsettled and not control.stopped:
        run.step()
    return run.counts


class _Run:
    """State of a sweep. Unfinished points wait, are suspected of killing a worker, or are being solved by the pool.

    Invariant: every point without a result in the store is in exactly one of these three collections.
    """

    def __init__(self, sweep: SolverSweep, pool: WorkerPool, store: SweepStore, control: Control) -> None:
        self._pool, self._store, self._control = pool, store, control
        done = store.done()
        self._number = {point.key: i for i, point in enumerate(sweep.points)}
        self._waiting = deque(point for point in sweep.points if point.key not in done)
        self._suspects: deque[SweepPoint] = deque()
        self._submitted: dict[Future[PointResult], SweepPoint] = {}
        self._deaths, self._breaks = Counter[str](), 0
        self._size, self._kept = sweep.size, sweep.size - len(self._waiting)
        self._solved = self._failed = 0
        self._began = control.elapsed_s
        self._report_progress()

    @property
    def unsettled(self) -> bool:
        return bool(self._waiting or self._suspects or self._submitted)

    @property
    def counts(self) -> SweepCounts:
        return SweepCounts(self._size, self._kept, self._solved, self._failed, self._control.elapsed_s - self._began)

    def step(self) -> None:
        """Submit points, wait a short time for results, and store them. If the pool broke, renew it."""
        pool_accepts = self._submit()
        self._settle(_CANCEL_POLL_SECONDS, FIRST_COMPLETED)
        if not (pool_accepts and self._pool.check()):
            self._settle(_BREAK_SECONDS, ALL_COMPLETED)
            self._renew()

    def _submit(self) -> bool:
        """Submit waiting points, or a single suspected point. Return False if the pool is closed."""
        while (queue := self._next()) is not None:
            try:
                future = self._pool.executor.submit(solve_point, queue[0])
            except self._pool.closed:
                return False
            except OSError as error:
                why = f"cannot be started ({error.strerror}); finished points are kept"
                raise InputError("workers", why) from None
            self._submitted[future] = queue.popleft()
        return True

    def _next(self) -> deque[SweepPoint] | None:
        """Return the queue from which the next point comes. None if the pool has enough points."""
        if self._suspects:
            return None if self._submitted else self._suspects
        room = len(self._submitted) < _POINTS_PER_SLOT * self._pool.slots
        return self._waiting if room and self._waiting else None

    def _settle(self, seconds: float, until: str) -> None:
        """Wait up to `seconds` and store the results that arrive."""
        alone = len(self._submitted) == 1
        ended, _ = wait(self._submitted, timeout=seconds, return_when=until)
        rows = [row for future in ended for row in self._row_of(self._submitted.pop(future), future, alone)]
        if rows:
            self._store.keep(rows)
            self._solved += len(rows)
            for row in rows:
                self._control.deliver(row)
            self._report_progress()

    def _row_of(self, point: SweepPoint, future: Future[PointResult], alone: bool) -> Iterator[SweepRow]:
        """Yield the row of a finished point. A point without a result is queued again instead."""
        error = CancelledError() if future.cancelled() else future.exception()
        if error is None:
            self._breaks = 0
            yield self._row(point, future.result())
        elif isinstance(error, CancelledError):
            self._waiting.appendleft(point)
        elif not isinstance(error, self._pool.lost):
            yield self._failure(point, f"a bug in Tessel Explorer ({type(error).__name__}: {error})")
        elif alone and self._deaths[point.key] + 1 == MAX_WORKER_DEATHS:
            yield self._failure(
                point, f"its worker died {MAX_WORKER_DEATHS} times while no other point ran, perhaps for lack of memory"
            )
        else:
            self._deaths[point.key] += alone
            self._suspects.append(point)

    def _failure(self, point: SweepPoint, reason: str) -> SweepRow:
        self._failed += 1
        return self._row(point, PointResult(status=PointStatus.FAILED, reason=" ".join(reason.split())))

    def _row(self, point: SweepPoint, result: PointResult) -> SweepRow:
        return SweepRow.joined(self._number[point.key], point, result)

    def _report_progress(self) -> None:
        self._control.report(f"{self.counts.summary}, after", None, None)

    def _renew(self) -> None:
        """Replace the workers. The points that they were solving are queued again."""
        self._breaks += 1
        if self._breaks > MAX_POOL_BREAKS:
            why = f"broke {MAX_POOL_BREAKS} times in a row without solving a point; finished points are kept"
            raise InputError("workers", why)
        self._waiting.extendleft(reversed(self._submitted.values()))
        self._submitted.clear()
        self._pool.renew()


def _clock(seconds: float) -> str:
    """Format a duration for the progress line.

    >>> _clock(42.4), _clock(200), _clock(9000)
    ('42 s', '3 min', '2 h 30 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
