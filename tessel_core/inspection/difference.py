"""Compare two schedules: changes in the order of runs, shifts of runs, and why one schedule ends earlier.

Each makespan is split into elements along a critical path.  The differences of the elements sum to the difference of
the makespans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from tessel_core.inspection.moments import numbers_of
from tessel_core.inspection.obstacles import REASONS, Obstacles, Reason
from tessel_core.inspection.order import OrderGraph
from tessel_core.model import MicroBatchPlan, Schedule
from tessel_core.model.schedule import IntColumn

_NONE = -1


class Element(StrEnum):
    """Element of a critical path. Work is classified by why the next run of the path waits for it."""

    DATA = "data"
    """Work whose output the next run needs, at once or after a transfer."""
    MEMORY = "memory"
    """Work whose release the next run needs."""
    DEVICE = "device"
    """Work that occupies the device of the next run."""
    PARTNERS = "partners"
    """Work that occupies another device of the next run's group."""
    LAST = "last"
    """Work of the run that ends last."""
    COMMUNICATION = "communication"
    """Lag between the end of a run and the next start."""
    LATE = "late"
    """Idle time before a run that starts later than its order requires."""


_WORK = {
    Reason.DATA: Element.DATA,
    Reason.COMMUNICATION: Element.DATA,
    Reason.MEMORY: Element.MEMORY,
    Reason.DEVICE: Element.DEVICE,
    Reason.PARTNERS: Element.PARTNERS,
}


@dataclass(frozen=True, eq=False)
class Path:
    """Critical path: a chain of runs, lags and waits that covers all time from 0 to the end of a schedule."""

    rows: tuple[int, ...]
    """Row numbers of its runs in the columns of the schedule, such as `start`, the last run first.

    Unlike `Obstacles.critical_path`, it continues past a run that starts late.
    """
    ticks: Mapping[Element, int]
    """Ticks per element; they sum to the makespan."""
    runs: Mapping[Element, int]
    """Number of runs per element of work, and of waits for COMMUNICATION and LATE."""

    @classmethod
    def of(cls, schedule: Schedule) -> Path:
        """Return the critical path of a schedule that keeps all rules except perhaps the memory rule."""
        rows, ticks, runs = list[int](), dict.fromkeys(Element, 0), dict.fromkeys(Element, 0)
        duration, does = schedule.duration, Element.LAST
        for row, why, lag, late in _back(schedule):
            rows.append(row)
            for element, spent in ((does, int(duration[row])), (Element.COMMUNICATION, lag), (Element.LATE, late)):
                ticks[element] += spent
                runs[element] += spent > 0
            does = _WORK.get(why, does)
        return cls(tuple(rows), ticks, runs)


@dataclass(frozen=True, slots=True)
class Turned:
    """Two blocks that follow each other on a device in the later schedule, and had the opposite order in the earlier
    one."""

    device: int
    first: int
    """The block that now runs before `second`. Device and blocks are numbered as in the later plan."""
    second: int
    pairs: int
    """Number of pairs of runs of the two blocks that changed their order."""
    critical: int
    """Number of these pairs on the critical path of the later schedule."""
    example: tuple[int, int]
    """Rows of the first such pair in the later schedule, on its critical path if there is one there."""


@dataclass(frozen=True, eq=False)
class Difference:
    """Difference from the schedule `before` to the schedule `after`."""

    before: Schedule
    after: Schedule
    blocks: tuple[tuple[int, int], ...]
    """Matching blocks, as pairs of positions in the two plans."""
    rows: tuple[IntColumn, IntColumn]
    """Matching runs, as one column of rows per schedule."""
    turned: tuple[Turned, ...]
    """Changed orders, those on the critical path first, then those with the most pairs."""
    paths: tuple[Path, Path]

    @property
    def makespan(self) -> int:
        """Ticks by which the makespan of the later schedule is longer."""
        return self.after.makespan - self.before.makespan

    @property
    def elements(self) -> dict[Element, int]:
        """Difference in ticks of each element, critical path of `after` minus that of `before`.

        They sum to the difference in makespan.
        """
        before, after = self.paths
        return {each: after.ticks[each] - before.ticks[each] for each in Element}

    @property
    def shift(self) -> IntColumn:
        """Ticks by which each matching run starts later."""
        return self.after.start[self.rows[1]] - self.before.start[self.rows[0]]

    @property
    def only_before(self) -> tuple[int, ...]:
        """Blocks of the earlier plan without a match."""
        return _others(self.before.plan, {b for b, _ in self.blocks})

    @property
    def only_after(self) -> tuple[int, ...]:
        """Blocks of the later plan without a match."""
        return _others(self.after.plan, {b for _, b in self.blocks})

    @property
    def moved(self) -> tuple[tuple[int, int], ...]:
        """Matching blocks whose devices have different names in the two plans."""
        return tuple((a, b) for a, b in self.blocks if _on(self.before.plan, a) != _on(self.after.plan, b))


def difference(before: Schedule, after: Schedule) -> Difference:
    """Compare two schedules. Runs match by block and micro-batch, for the micro-batches that both have.

    Both schedules must keep all rules except perhaps the memory rule.  Raises ValueError if runs are missing or
    repeated.  A comparison of 200,000 runs takes about a second.
    """
    blocks = _matching(before.plan, after.plan)
    common = min(before.micro_batches, after.micro_batches)
    pairs = np.array(blocks, dtype=np.int64).reshape(-1, 2)
    rows = numbers_of(before)[:common, pairs[:, 0]].ravel(), numbers_of(after)[:common, pairs[:, 1]].ravel()
    paths = Path.of(before), Path.of(after)
    turned = sorted(_turned(before, after, rows, paths[1]), key=lambda each: (-each.critical, -each.pairs))
    return Difference(before, after, blocks, rows, tuple(turned), paths)


def _matching(before: MicroBatchPlan, after: MicroBatchPlan) -> tuple[tuple[int, int], ...]:
    """Match blocks by name and kind. Match the remaining blocks of a kind by their number of ancestors, if possible.

    This is possible if both plans have equally many blocks left of that kind, and no two blocks of a plan have equally
    many ancestors.
    """
    named = {(block.name, block.kind): b for b, block in enumerate(after.blocks)}
    found = {b: named[key] for b, block in enumerate(before.blocks) if (key := (block.name, block.kind)) in named}
    rest = _others(before, set(found)), _others(after, set(found.values()))
    for kind in {before.blocks[b].kind for b in rest[0]}:
        one, other = (
            sorted((plan.ancestors[b].bit_count(), b) for b in left if plan.blocks[b].kind is kind)
            for plan, left in zip((before, after), rest, strict=True)
        )
        if len(one) == len(other) == len({n for n, _ in one}) == len({n for n, _ in other}):
            found |= {a: b for (_, a), (_, b) in zip(one, other, strict=True)}
    return tuple(sorted(found.items()))


def _others(plan: MicroBatchPlan, known: set[int]) -> tuple[int, ...]:
    return tuple(b for b in range(len(plan.blocks)) if b not in known)


def _on(plan: MicroBatchPlan, block: int) -> set[str]:
    return {plan.devices[d].name for d in plan.blocks[block].devices}


def _turned(before: Schedule, after: Schedule, rows: tuple[IntColumn, IntColumn], path: Path) -> Iterator[Turned]:
    """Yield the changed orders per device and pair of blocks, among runs that both schedules have on that device."""
    was, blocks = np.full(len(after.start), _NONE), len(after.plan.blocks)
    was[rows[1]] = rows[0]
    on_path = np.zeros(len(after.start), dtype=bool)
    on_path[list(path.rows)] = True
    known = {device.name: d for d, device in enumerate(before.plan.devices)}
    for d, device in enumerate(after.plan.devices):
        if device.name not in known:
            continue
        here = after.runs_on(d)
        here = here[np.isin(was[here], before.runs_on(known[device.name]))]
        turned = np.flatnonzero(was[here[1:]] < was[here[:-1]])  # rows are in order of start
        first, second = here[turned], here[turned + 1]
        critical = on_path[first] & on_path[second]
        pair = after.block[first] * blocks + after.block[second]
        order = np.lexsort((~critical, pair))
        which, begins, counts = np.unique(pair[order], return_index=True, return_counts=True)
        for key, at, count in zip(which.tolist(), begins.tolist(), counts.tolist(), strict=True):
            group = order[at : at + count]
            example = int(first[group[0]]), int(second[group[0]])
            one, other = divmod(key, blocks)
            yield Turned(d, one, other, count, int(critical[group].sum()), example)


def _back(schedule: Schedule) -> Iterator[tuple[int, Reason, int, int]]:
    """Walk from the run that ends last back to time 0. Yield run, why it waits for the run before, lag and idle ticks.

    If a run could start earlier, the walk continues with the last run that must end before it in the given order. The
    ticks since that end are idle.
    """
    obstacles = Obstacles.of(schedule)
    if obstacles.last is None:
        return
    row = obstacles.last
    start, end = schedule.start.tolist(), schedule.end.tolist()
    reason, by = obstacles.reason.tolist(), obstacles.row.tolist()
    behind = {} if obstacles.grounded[row] else _behind(schedule, (obstacles.row == _NONE) & (schedule.start > 0))
    while start[row]:
        if by[row] != _NONE:
            before, why = by[row], REASONS[reason[row]]
            lag = start[row] - end[before]
        elif row in behind:
            before, lag, why = behind[row]
        else:
            break
        yield row, why, lag, start[row] - lag - end[before]
        row = before
    yield row, Reason.BEGINNING, 0, start[row]


def _behind(schedule: Schedule, late: NDArray[np.bool_]) -> dict[int, tuple[int, int, Reason]]:
    """For each run that starts late, return the last run that must end before it in the given order, with lag and
    reason.
    """
    order = OrderGraph.of(schedule)
    arcs = np.flatnonzero(late[order.late])
    arcs = arcs[np.argsort(schedule.end[order.early[arcs]] + order.ticks[arcs], kind="stable")]
    of_plan = arcs < len(schedule.plan.arcs) * schedule.micro_batches  # arcs of dependencies come first
    whys = [Reason.DATA if each else Reason.DEVICE for each in of_plan.tolist()]
    columns = (order.late[arcs].tolist(), order.early[arcs].tolist(), order.ticks[arcs].tolist(), whys)
    return {row: (before, lag, why) for row, before, lag, why in zip(*columns, strict=True)}
