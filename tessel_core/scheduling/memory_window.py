"""The window bound: what one device must wait for because it has room for few micro-batches at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.search.memory_intervals import least_held, memory_intervals_on
from tessel_core.scheduling.search.paths import path_lengths, ways_from


def window_bound(plan: MicroBatchPlan, micro_batches: int) -> int:
    """Ticks that no schedule can beat, from the memory window of each device; 0 where no window is narrow enough.

    A micro-batch that has at least v of a device's capacity from the start of block a to the end of block r shares it
    with at most c = capacity // v - 1 others.  As runs of one block can be swapped freely, let all take micro-batches
    in order: then the acquire of m + c waits for the release of m, and so on round after round, N / c times.
    """
    return max((_round_by_round(window, micro_batches) for window in _windows(plan, micro_batches)), default=0)


@dataclass(frozen=True, slots=True)
class _Window:
    """One device's blocks as a window (a, r) sees them, in ticks."""

    at_once: int
    """Micro-batches that the window admits."""
    head: int
    """Longest path to the start of a."""
    hold: int
    """Longest path from the start of a to the end of r."""
    tail: int
    """Longest path from the end of r."""
    acquire: int
    release: int
    before: int
    """Work of the device's blocks that a waits for."""
    between: int
    """... that wait for a, and r for them."""
    beside: int
    """... that wait for a, and have nothing to do with r."""
    after: int
    """... that wait for r."""
    first: int
    """Ticks before any of the device's blocks up to r can start."""
    last: int
    """Ticks after the last of its blocks from a on."""


def _windows(plan: MicroBatchPlan, micro_batches: int) -> Iterator[_Window]:
    heads, tails = path_lengths(plan)
    for d, device in enumerate(plan.devices):
        capacity = device.activation_capacity
        for hold in memory_intervals_on(plan, d) if capacity is not None and capacity >= 0 else ():
            assert capacity is not None
            at_once = capacity // least_held(plan, d, hold)
            if 0 < at_once < micro_batches:
                yield _window(plan, d, hold.acquire, hold.release, at_once, heads, tails)


def _window(
    plan: MicroBatchPlan, device: int, a: int, r: int, at_once: int, heads: list[int], tails: list[int]
) -> _Window:
    duration, on = [block.duration for block in plan.blocks], plan.blocks_on[device]
    following = [b for b in on if plan.ancestors[b] >> a & 1 and b != r]
    before = [b for b in on if plan.ancestors[a] >> b & 1]
    between = [b for b in following if plan.ancestors[r] >> b & 1]
    after = [b for b in following if plan.ancestors[b] >> r & 1]
    return _Window(
        at_once=at_once,
        head=heads[a],
        hold=duration[a] + ways_from(plan, a)[r] + duration[r],
        tail=tails[r] - duration[r],
        acquire=duration[a],
        release=duration[r],
        before=sum(duration[b] for b in before),
        between=sum(duration[b] for b in between),
        beside=sum(duration[b] for b in following) - sum(duration[b] for b in (*between, *after)),
        after=sum(duration[b] for b in after),
        first=min(heads[b] for b in (*before, a)),
        last=min(tails[b] - duration[b] for b in (a, r, *following)),
    )


def _round_by_round(window: _Window, micro_batches: int) -> int:
    """The makespan after all acquires and releases in order, each as early as these rules allow, with c = `at_once`:

    - a(j) starts after j + 1 runs of what precedes a, j of a, and j - c + 1 of what precedes the releases before it;
    - a(j) starts after the end of r(i), i = j - c, and then after the j - i - c runs of a, and of r, in between;
    - r(j) ends a hold after a(j) starts, and after the j - i runs of r, and j - i - c + 1 of a, since r(i) ended;
    - after r(i) ends, N - 1 - i runs of r, N - i - c of a and N - i of what follows r are still to come.
    """
    w, c, count = window, window.at_once, micro_batches
    pair, whole = w.acquire + w.release, w.acquire + w.between + w.release
    starts, ends = list[int](), list[int]()
    steady_start = steady_acquire = steady_end = makespan = 0
    for j in range(count):
        start = max(w.head, w.first + (j + 1) * w.before + j * w.acquire)
        if j:
            start = max(start, starts[-1] + w.acquire)
        if j >= c:
            start = max(start, w.first + (j + 1) * w.before + j * w.acquire + (j - c + 1) * (w.between + w.release))
            steady_start = max(steady_start + pair, ends[j - c])
            steady_acquire = max(steady_acquire + whole, starts[j - c] + (c - 1) * w.acquire + whole)
            start = max(start, steady_start, steady_acquire)
        end = start + w.hold
        if j:
            end = max(end, ends[-1] + w.release)
        if j >= c:
            steady_end = max(steady_end, ends[j - c] + (c - 1) * w.release) + whole
            end = max(end, steady_end)
        starts.append(start)
        ends.append(end)
        to_come = count - 1 - j
        work = (
            to_come * w.release + max(0, count - j - c) * (w.acquire + w.between + w.beside) + (to_come + 1) * w.after
        )
        makespan = max(makespan, end + to_come * w.release + w.tail, end + work + w.last)
        makespan = max(makespan, start + (to_come + 1) * (whole + w.beside + w.after) + w.last)
    return makespan
