"""The difference of two schedules: which orders turned around, what moved by how much, and why one ends earlier.

Both makespans are told along a critical path, tick by tick, so that what differs on the paths sums to their difference.
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
    """What a critical path spends its ticks on; work is told by why the next run of the path waits for it."""

    DATA = "data"
    """Work whose output the next run needs, at once or after a transfer."""
    MEMORY = "memory"
    """Work whose release the next run needs."""
    DEVICE = "device"
    """Work after which the next run has its device."""
    PARTNERS = "partners"
    """Work after which the next run has another device of its group."""
    LAST = "last"
    """The run that ends last."""
    COMMUNICATION = "communication"
    """Lags between an end and the next start."""
    LATE = "late"
    """Idle time before a run for which it has no reason: it starts later than its order needs."""


_WORK = {
    Reason.DATA: Element.DATA,
    Reason.COMMUNICATION: Element.DATA,
    Reason.MEMORY: Element.MEMORY,
    Reason.DEVICE: Element.DEVICE,
    Reason.PARTNERS: Element.PARTNERS,
}


@dataclass(frozen=True, eq=False)
class Path:
    """What leads from time 0 to the end of a schedule without a gap."""

    rows: tuple[int, ...]
    """Its runs, the last first: `Obstacles.critical_path`, which here goes on where a run is later than need be."""
    ticks: Mapping[Element, int]
    """They sum to the makespan."""
    runs: Mapping[Element, int]
    """How many runs do this work; how many waits there are, for a lag or for nothing."""

    @classmethod
    def of(cls, schedule: Schedule) -> Path:
        """The critical path of a schedule that keeps the rules, or breaks only the memory rule."""
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
    """Neighbours on a device of the later schedule which the earlier one ran the other way round."""

    device: int
    first: int
    """The block that now runs before `second`; both of the later plan, as is `device`."""
    second: int
    pairs: int
    """How many runs of the two are such neighbours."""
    critical: int
    """How many of these pairs lie on the later schedule's critical path."""
    example: tuple[int, int]
    """Rows of the later schedule: the first such pair, on the critical path if any is there."""


@dataclass(frozen=True, eq=False)
class Difference:
    """What differs from one schedule, `before`, to another, `after`."""

    before: Schedule
    after: Schedule
    blocks: tuple[tuple[int, int], ...]
    """The blocks that match, as places in the two plans."""
    rows: tuple[IntColumn, IntColumn]
    """The runs that match, as rows of the two schedules."""
    turned: tuple[Turned, ...]
    """Those on the critical path first, then the most pairs."""
    paths: tuple[Path, Path]

    @property
    def makespan(self) -> int:
        """Ticks by which the later schedule's is longer."""
        return self.after.makespan - self.before.makespan

    @property
    def elements(self) -> dict[Element, int]:
        """Ticks by which the later critical path spends more on each; they sum to the difference in makespan."""
        before, after = self.paths
        return {each: after.ticks[each] - before.ticks[each] for each in Element}

    @property
    def shift(self) -> IntColumn:
        """Per run that matches, the ticks by which it starts later."""
        return self.after.start[self.rows[1]] - self.before.start[self.rows[0]]

    @property
    def only_before(self) -> tuple[int, ...]:
        """Blocks of the earlier plan that match none."""
        return _others(self.before.plan, {b for b, _ in self.blocks})

    @property
    def only_after(self) -> tuple[int, ...]:
        """Blocks of the later plan that match none."""
        return _others(self.after.plan, {b for _, b in self.blocks})

    @property
    def moved(self) -> tuple[tuple[int, int], ...]:
        """Blocks that match and run on devices of other names."""
        return tuple((a, b) for a, b in self.blocks if _on(self.before.plan, a) != _on(self.after.plan, b))


def difference(before: Schedule, after: Schedule) -> Difference:
    """Runs match by block and micro-batch, of those micro-batches that both have.

    For schedules that keep the rules, or break only the memory rule; raises ValueError where runs are missing or
    repeated.  200,000 runs take about a second.
    """
    blocks = _matching(before.plan, after.plan)
    common = min(before.micro_batches, after.micro_batches)
    pairs = np.array(blocks, dtype=np.int64).reshape(-1, 2)
    rows = numbers_of(before)[:common, pairs[:, 0]].ravel(), numbers_of(after)[:common, pairs[:, 1]].ravel()
    paths = Path.of(before), Path.of(after)
    turned = sorted(_turned(before, after, rows, paths[1]), key=lambda each: (-each.critical, -each.pairs))
    return Difference(before, after, blocks, rows, tuple(turned), paths)


def _matching(before: MicroBatchPlan, after: MicroBatchPlan) -> tuple[tuple[int, int], ...]:
    """Blocks of equal name and kind; of the rest, those of a kind by their places, where that is unambiguous.

    It is where both plans have equally many left, and no two of a plan have equally many blocks before them.
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
    """Per device and pair of blocks, neighbours among the runs that both schedules have on the device of that name."""
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
        turned = np.flatnonzero(was[here[1:]] < was[here[:-1]])  # rows lie in order of start
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
    """From the run that ends last back to time 0: run, why it waits for the next one, its lag, and idle ticks.

    Where nothing binds a run it goes on to what its order has it wait for, and the ticks since then are idle.
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
    """Of runs that start later than need be: the run that ends last of what their order has them wait for, lag, why."""
    order = OrderGraph.of(schedule)
    arcs = np.flatnonzero(late[order.late])
    arcs = arcs[np.argsort(schedule.end[order.early[arcs]] + order.ticks[arcs], kind="stable")]
    of_plan = arcs < len(schedule.plan.arcs) * schedule.micro_batches  # those of dependencies come first
    whys = [Reason.DATA if each else Reason.DEVICE for each in of_plan.tolist()]
    columns = (order.late[arcs].tolist(), order.early[arcs].tolist(), order.ticks[arcs].tolist(), whys)
    return {row: (before, lag, why) for row, before, lag, why in zip(*columns, strict=True)}
