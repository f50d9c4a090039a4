"""What one run of a stage does and holds, as tables over its items: numbers that are the same whatever the sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
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
    Stage,
    taken_by,
    talks,
)

WAITS, COMBINES, MADE, FREED = [0, 1], [0], [0], [0, 2, 3]
"""Columns of the tables of a run that are items."""

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

NEVER = -1
"""In place of an item that does not exist."""
ARRIVES = -1
"""In place of the item that makes a value: another stage."""


@dataclass(frozen=True)
class Held:
    """Values of one micro-batch that a stage holds, in one direction; arrays are of equal length."""

    made: tuple[int, ...]
    """Values that its items make."""
    maker: Numbers
    freed: tuple[int, ...]
    """Values, its own or received, that nothing takes after this direction."""
    last_compute: Numbers
    last_talk: Numbers
    """The last items that take them on each stream; NEVER where none does."""
    sent: Flags
    """Whether the transfer to another stage takes it too."""


def last_uses(skeleton: Skeleton, stage: Stage) -> dict[int, tuple[int, int]]:
    """As `Stage.last_use`, where a use of a view is one of its owner; without inputs of the program, which stay."""
    inputs, found = frozenset(skeleton.inputs), dict[int, tuple[int, int]]()
    for value, place in stage.last_use.items():
        owner = skeleton.owner.get(value, value)
        if owner not in inputs:
            found[owner] = max(place, found.get(owner, place))
    return found


def held_by(skeleton: Skeleton, stage: Stage) -> tuple[Held, Held]:
    """Forward and backward; values without a last use are not freed."""
    last_phase = {value: phase for value, (phase, _) in last_uses(skeleton, stage).items()}
    return _held(skeleton, stage, FORWARD, last_phase), _held(skeleton, stage, BACKWARD, last_phase)


def _held(skeleton: Skeleton, stage: Stage, phase: int, last_phase: dict[int, int]) -> Held:
    made = [
        (value, i)
        for i, item in enumerate(stage.items[phase])
        if not isinstance(item, Combine)
        for value in item.outputs
        if value not in skeleton.owner
    ]
    freed = [value for value, its in last_phase.items() if its == phase]
    last = {False: dict.fromkeys(freed, NEVER), True: dict.fromkeys(freed, NEVER)}
    for i, item in enumerate(stage.items[phase]):
        for value in taken_by(item):
            owner = skeleton.owner.get(value, value)
            if last_phase.get(owner) == phase:
                last[talks(item)][owner] = i
    sends = {send.value for send in stage.sends[phase]}
    return Held(
        tuple(value for value, _ in made),
        np.array([i for _, i in made], np.int64),
        tuple(freed),
        np.array(list(last[False].values()), np.int64),
        np.array(list(last[True].values()), np.int64),
        np.array([value in sends for value in freed], bool),
    )


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
    talks: Flags
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
        return self.kind_of, self.talks, self.waits, self.combines, self.made, self.freed

    @cached_property
    def computes(self) -> Numbers:
        """Items that are no communication."""
        return np.flatnonzero(~self.talks)

    @cached_property
    def talking(self) -> Numbers:
        """Items that are."""
        return np.flatnonzero(self.talks)

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
        for stream, members in enumerate((self.computes, self.talking)):
            mine = np.flatnonzero(self.talks[items] == stream)
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
        """As `made_at`, what is freed when a computing item ends, whatever else happens."""
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
    """What the numbers of shapes in its tables stand for."""
    sends: tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]
    """Shapes, and how many stages ahead they go."""
    gradients: Numbers
    """Backward item that completes it, and shape, in the order in which replicas sum them."""
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
    """Of rows (item, shape): items in order, where the rows of each begin, and shapes in that order."""
    ordered = table[np.argsort(table[:, 0], kind="stable")]
    items, begins = np.unique(ordered[:, 0], return_index=True)
    return items, begins, ordered[:, 1]


def table_of(rows: Sequence[Sequence[int]], columns: int) -> Numbers:
    """Also where there are no rows."""
    return np.array(rows, np.int64).reshape(-1, columns)


def stage_runs(skeleton: Skeleton, stages: Sequence[Stage], number: int) -> StageRuns:
    """Of one of the stages."""
    stage, (shapes, shape_of) = stages[number], skeleton.distinct_shapes
    made_in = {value: op.layer for op in skeleton.ops for value in op.outputs}
    runs = list[Run]()
    for phase, held in zip((FORWARD, BACKWARD), held_by(skeleton, stage), strict=True):
        arriving = {send.value for other in stages for send in other.sends[phase] if send.to == number}
        sent = stage.sends[phase][0].value if stage.sends[phase] else None
        runs.append(_run(stage.items[phase], held, shape_of, made_in, arriving, sent))
    last: dict[int, int] = {}
    for i, item in enumerate(stage.items[BACKWARD]):
        last.update(dict.fromkeys((item.value,) if isinstance(item, Combine) else item.outputs, i))
    forward, backward = (
        tuple((int(shape_of[send.value]), send.to - number) for send in stage.sends[phase])
        for phase in (FORWARD, BACKWARD)
    )
    return StageRuns(
        (runs[FORWARD], runs[BACKWARD]),
        shapes,
        (forward, backward),
        table_of([(last[value], shape_of[value]) for value in stage.gradients], 2),
        Counter((skeleton.shapes[value], value in skeleton.joined) for value in stage.inputs),
        Counter() if skeleton.step is None else Counter(map(skeleton.step.column, sorted(stage.weights))),
    )


def _run(
    items: Sequence[Item], held: Held, shape_of: Numbers, made_in: dict[int, int], arriving: set[int], sent: int | None
) -> Run:
    kinds = dict[Kind, int]()
    kind_of, layers, combines = list[int](), list[int](), list[tuple[int, int, int]]()
    for i, item in enumerate(items):
        if isinstance(item, Combine):
            combines.append((i, int(shape_of[item.value]), item.joins))
            kind_of.append(NEVER)
            layers.append(layers[-1] if layers else made_in[item.value])
        else:
            kind_of.append(kinds.setdefault(item.kind, len(kinds)))
            layers.append(made_in[item.outputs[0]])
    waits, maker = _waits(items, arriving)
    freed = np.stack(
        (np.maximum(held.last_compute, held.last_talk), shape_of[list(held.freed)], held.last_compute, held.last_talk),
        axis=1,
    )
    return Run(
        tuple(kinds),
        np.array(kind_of, np.int64),
        np.array([talks(item) for item in items], bool),
        np.array(layers, np.int64),
        table_of(waits, 2),
        table_of(combines, 3),
        np.stack((held.maker, shape_of[list(held.made)]), axis=1),
        np.column_stack((freed, held.sent)),
        NEVER if sent is None else maker[sent],
    )


def _waits(items: Sequence[Item], arriving: set[int]) -> tuple[list[tuple[int, int]], dict[int, int]]:
    """Those that no earlier wait of the stream makes needless; and per value that is there, what made it."""
    maker = dict.fromkeys(arriving, ARRIVES)
    found, waited = list[tuple[int, int]](), ({NEVER - 1}, {NEVER - 1})
    for i, item in enumerate(items):
        mine = talks(item)
        by = {maker[value] for value in taken_by(item) if value in maker}
        if ARRIVES in by and ARRIVES not in waited[mine]:
            found.append((i, ARRIVES))
            waited[mine].add(ARRIVES)
        others = [each for each in by if each != ARRIVES and talks(items[each]) != mine]
        if others and max(others) > max(waited[mine]):
            found.append((i, max(others)))
            waited[mine].add(max(others))
        made = (item.value,) if isinstance(item, Combine) else item.outputs
        maker.update(dict.fromkeys(made, i))
    return found, maker
