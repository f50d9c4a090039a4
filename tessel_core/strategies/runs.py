"""Runs of a stage as tables over its items: work and memory in numbers that do not depend on the sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessel_core.strategies.skeleton import (
    BACKWARD,
    FORWARD,
    Column,
    Combine,
    Item,
    Kind,
    Shape,
    Skeleton,
    SkeletonOp,
    Stage,
)

WAITS, COMBINES, MADE, FREED = [0, 1], [0], [0], [0, 2, 3]
"""Columns of the tables of a run that are items."""

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

NEVER = -1
"""The number of an item that does not exist."""
ARRIVES = -1
"""The maker of a value that another stage sends."""


@dataclass(frozen=True, slots=True)
class Wait:
    """An item that starts when its stream is free and something of the other stream is there.

    Between two waits of a stream its items follow each other at once, so pieces of it have one lag.
    """

    item: int
    maker: int
    """The item of the other stream, or ARRIVES."""
    before: int
    """The piece that ends here."""
    of_maker: int


@dataclass(frozen=True, eq=False)
class Run:
    """Tables have a row for each entry, the first number of which is an item; shapes are numbers too."""

    kinds: tuple[Kind, ...]
    kind_of: Numbers
    """Per item; NEVER where it combines."""
    communicates: Flags
    """Per item, whether it is communication."""
    layer_of: Numbers
    """Per item, that of the operation or of the one before it."""
    waits: Numbers
    """Item, and the item of the other stream whose end it waits for, or ARRIVES."""
    combines: Numbers
    """Item, shape, and whether it joins."""
    made: Numbers
    """Item, and the shape of a value that it makes."""
    freed: Numbers
    """For values that nothing takes after this direction: the last item that takes them, shape, the last items that
    take them on each stream, NEVER where none does, and whether they are sent to another stage as well."""
    sender: int
    """The item that makes what is sent; NEVER where nothing is."""

    @property
    def tables(self) -> tuple[NDArray[Any], ...]:
        """All of them that say what is done."""
        return self.kind_of, self.communicates, self.waits, self.combines, self.made, self.freed

    @cached_property
    def computes(self) -> Numbers:
        """Items that are no communication."""
        return np.flatnonzero(~self.communicates)

    @cached_property
    def communicating(self) -> Numbers:
        """Items that are."""
        return np.flatnonzero(self.communicates)

    @cached_property
    def combining(self) -> dict[tuple[int, bool], Numbers]:
        """Items that combine, by shape and whether they join."""
        pairs = {(int(shape), bool(joins)) for _, shape, joins in self.combines}
        return {pair: self.combines[(self.combines[:, 1:] == pair).all(axis=1), 0] for pair in sorted(pairs)}

    def turns(self, micro_batches: int) -> int:
        """How many micro-batches take different times and bytes; those that follow are as the last of them."""
        joins = any(joins for _, joins in self.combining)
        return micro_batches if joins else min(micro_batches, 1 + bool(self.combining))

    @cached_property
    def pieces(self) -> tuple[Numbers, tuple[Wait, ...], tuple[int, int]]:
        """Per item its piece, the waits with which pieces 2, 3, ... begin, and the last pieces of both streams."""
        items, makers = self.waits.T
        piece_of, before, last = np.zeros(len(self.kind_of), np.int64), np.zeros(len(items), np.int64), [0, 1]
        for stream, members in enumerate((self.computes, self.communicating)):
            mine = np.flatnonzero(self.communicates[items] == stream)
            pieces = np.concatenate(([stream], mine + 2))
            piece_of[members] = pieces[np.searchsorted(items[mine], members, side="right")]
            before[mine] = pieces[:-1]
            last[stream] = int(pieces[-1])
        of_maker = np.where(makers == ARRIVES, 0, piece_of[makers]) if len(items) else makers
        columns = (each.tolist() for each in (items, makers, before, of_maker))
        return piece_of, tuple(map(Wait, *columns)), (last[0], last[1])

    @cached_property
    def at_once(self) -> tuple[Numbers, Numbers]:
        """Computing items, and those that begin when they end."""
        ones, nexts = self.computes[:-1], self.computes[1:]
        same = self.pieces[0][ones] == self.pieces[0][nexts]
        return ones[same], nexts[same]

    @cached_property
    def made_at(self) -> tuple[Numbers, Numbers, Numbers]:
        """Items that make something, in order; where their rows begin in `made`, sorted; and its shapes, sorted."""
        return grouped(self.made)

    @cached_property
    def freed_alone(self) -> tuple[Numbers, Numbers, Numbers]:
        """As `made_at`, for values that are freed when a computing item ends, whatever else happens."""
        return grouped(self.freed[~self._talked_of][:, [2, 1]])

    @cached_property
    def freed_late(self) -> Numbers:
        """Rows of `freed` that wait for communication too."""
        return self.freed[self._talked_of]

    @property
    def _talked_of(self) -> Flags:
        return np.asarray((self.freed[:, 3] != NEVER) | (self.freed[:, 4] > 0))


@dataclass(frozen=True, eq=False)
class StageRuns:
    """A stage; pairs are forward and backward."""

    runs: tuple[Run, Run]
    shapes: tuple[Shape, ...]
    """The shapes that numbers in its tables stand for."""
    sends: tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]
    """Shapes, and how many stages ahead they go."""
    gradients: Numbers
    """Backward item that completes it, and shape, in the order in which they are complete."""
    inputs: Counter[tuple[Shape, bool]]
    """Inputs of the program that it holds, and whether micro-batches have parts of their own."""
    weights: Counter[Column]
    """Those that it has gradients of."""

    @property
    def structural_key(self) -> Hashable:
        """Stages that do and hold the same but for the optimizer's step are alike in this."""
        runs = tuple((run.kinds, run.sender, *(table.tobytes() for table in run.tables)) for run in self.runs)
        return runs, self.shapes, self.sends, self.gradients.tobytes(), frozenset(self.inputs.items())


def grouped(table: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Rows (item, shape) by item: items in order, where the rows of each begin, and shapes in that order."""
    ordered = table[np.argsort(table[:, 0], kind="stable")]
    items, begins = np.unique(ordered[:, 0], return_index=True)
    return items, begins, ordered[:, 1]


def table_of(rows: Sequence[Sequence[int]], columns: int) -> Numbers:
    """The rows as an array with so many columns, even where there are none."""
    return np.array(rows, np.int64).reshape(-1, columns)


def stage_runs(skeleton: Skeleton, stages: Sequence[Stage], number: int) -> StageRuns:
    """The runs of one of the stages."""
    stage, (shapes, shape_of) = stages[number], skeleton.distinct_shapes
    runs, sends = list[Run](), list[tuple[tuple[int, int], ...]]()
    for phase in (FORWARD, BACKWARD):
        arriving = {send.value for other in stages for send in other.sends[phase] if send.to == number}
        runs.append(_run(skeleton, stage, phase, arriving))
        sends.append(tuple((int(shape_of[send.value]), send.to - number) for send in stage.sends[phase]))
    last: dict[int, int] = {}
    for i, item in enumerate(stage.items[BACKWARD]):
        last.update(dict.fromkeys(item.outputs, i))
    return StageRuns(
        (runs[FORWARD], runs[BACKWARD]),
        shapes,
        (sends[FORWARD], sends[BACKWARD]),
        table_of(sorted(((last[value], shape_of[value]) for value in stage.gradients), key=itemgetter(0)), 2),
        Counter((skeleton.shapes[value], value in skeleton.joined) for value in stage.inputs),
        Counter() if skeleton.step is None else Counter(map(skeleton.step.column, sorted(stage.weights))),
    )


def _run(skeleton: Skeleton, stage: Stage, phase: int, arriving: set[int]) -> Run:
    items, shape_of = stage.items[phase], skeleton.distinct_shapes[1]
    made_in = {value: op.layer for op in skeleton.ops for value in op.outputs}
    kinds = dict[Kind, int]()
    kind_of, layers = list[int](), list[int]()
    combines, made = list[tuple[int, int, int]](), list[tuple[int, int]]()
    for i, item in enumerate(items):
        if isinstance(item, Combine):
            combines.append((i, int(shape_of[item.value]), item.joins))
            kind_of.append(NEVER)
            layers.append(layers[-1] if layers else made_in[item.value])
        else:
            made += [(i, int(shape_of[value])) for value in item.outputs if value not in skeleton.owner]
            made += [(i, int(shape_of[item.inputs[0]]))] * item.workspace
            kind_of.append(kinds.setdefault(item.kind, len(kinds)))
            layers.append(item.layer)
    waits, maker = _waits(items, arriving)
    return Run(
        tuple(kinds),
        np.array(kind_of, np.int64),
        np.array([item.communicates for item in items], bool),
        np.array(layers, np.int64),
        table_of(waits, 2),
        table_of(combines, 3),
        table_of(made, 2),
        _freed(skeleton, stage, phase),
        maker[stage.sends[phase][0].value] if stage.sends[phase] else NEVER,
    )


def _freed(skeleton: Skeleton, stage: Stage, phase: int) -> Numbers:
    """The table of values, a stage's own or received, that nothing takes after this direction."""
    last = {value: [NEVER, NEVER] for value, taken in _last_taken(skeleton, stage).items() if taken == phase}
    for i, item in enumerate(stage.items[phase]):
        for value in item.inputs:
            owner = skeleton.owner.get(value, value)
            if owner in last:
                last[owner][item.communicates] = i
    sent, shape_of = {send.value for send in stage.sends[phase]}, skeleton.distinct_shapes[1]
    rows = [(max(each), shape_of[value], *each, value in sent) for value, each in last.items()]
    for i, item in enumerate(stage.items[phase]):
        if isinstance(item, SkeletonOp):
            rows += [(i, shape_of[item.inputs[0]], i, NEVER, False)] * item.workspace
    return table_of(rows, 5)


def _last_taken(skeleton: Skeleton, stage: Stage) -> dict[int, int]:
    """Per value, the direction in which it or a view of it is taken last; without inputs of the program, which stay."""
    inputs, found = frozenset(skeleton.inputs), dict[int, int]()
    for phase in (FORWARD, BACKWARD):
        taken = [*(value for item in stage.items[phase] for value in item.inputs)]
        taken += [send.value for send in stage.sends[phase]]
        owners = (skeleton.owner.get(value, value) for value in taken)
        found.update((owner, phase) for owner in owners if owner not in inputs)
    return found


def _waits(items: Sequence[Item], arriving: set[int]) -> tuple[list[tuple[int, int]], dict[int, int]]:
    """Those that no earlier wait of the stream makes needless; and per value that is there, what made it."""
    maker = dict.fromkeys(arriving, ARRIVES)
    found, waited = list[tuple[int, int]](), ({NEVER - 1}, {NEVER - 1})
    for i, item in enumerate(items):
        mine = item.communicates
        by = {maker[value] for value in item.inputs if value in maker}
        if ARRIVES in by and ARRIVES not in waited[mine]:
            found.append((i, ARRIVES))
            waited[mine].add(ARRIVES)
        others = [each for each in by if each != ARRIVES and items[each].communicates != mine]
        if others and max(others) > max(waited[mine]):
            found.append((i, max(others)))
            waited[mine].add(max(others))
        maker.update(dict.fromkeys(item.outputs, i))
    return found, maker
