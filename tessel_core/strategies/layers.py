"""Stages of deep networks from those of a network of few layers: all but the outer ones do the same.

A stage of five layers says what one of any number does: its middle layer is repeated.  That its neighbour does the same
is checked; a family whose layers differ is taken at its whole length.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.ir.transforms.pipeline import layers_of_stages
from tessel_core.strategies.families import ExampleFamily, Spec
from tessel_core.strategies.runs import COMBINES, FREED, MADE, NEVER, WAITS, Numbers, Run, StageRuns, stage_runs
from tessel_core.strategies.skeleton import Column, Shape, Skeleton, skeleton_of, stages_of

_MOST = 5
"""Layers of a stage that is repeated: two before the middle one and two after it."""
_WORTH = 3
"""More layers than are built by which a network is to be deeper, as it is built whole otherwise."""
_NEIGHBOURS = 2
"""Layers that such a stage has before it and after it, in other stages."""


@dataclass(frozen=True, eq=False)
class Structure:
    """The stages of a network, and where their symbols come from."""

    skeleton: Skeleton
    stages: tuple[StageRuns, ...]


@lru_cache(maxsize=1024)
def structure_of(
    family: ExampleFamily, example: Spec, sharded: bool, recompute: Recompute, count: int, several: bool
) -> Structure:
    """The structure of a family's `example` with all of its layers, in `count` stages; `several` micro-batches."""
    whole = layers_of_stages(example.layers, count)
    few = _MOST if count == 1 else _MOST + _NEIGHBOURS
    if example.layers > few + _WORTH:
        skeleton = skeleton_of(family, family.example(example, few), sharded, recompute)
        ends = pairwise([0, *accumulate(whole)]) if _alike(skeleton) else ()
        stages = [_deep(skeleton, *pair, example.layers, several) for pair in ends]
        found = tuple(each for each in stages if each is not None)
        if len(found) == count:
            return Structure(skeleton, found)
    skeleton = skeleton_of(family, example, sharded, recompute)
    exact = stages_of(skeleton, whole, several)
    return Structure(skeleton, tuple(stage_runs(skeleton, exact, s) for s in range(count)))


@lru_cache(maxsize=64)
def _alike(skeleton: Skeleton) -> bool:
    """Whether all layers but the first and the last do the same.

    Where layers are cut by columns and by rows in turn, they do not.
    """
    (stage,) = stages_of(skeleton, (skeleton.layers,), several=False)
    forward, backward = stage_runs(skeleton, (stage,), 0).runs
    pairs = list(pairwise(range(1, skeleton.layers - 1)))
    ways = [(_cycle(forward, one), _cycle(backward, other)) for one, other in pairs]
    same = [_only_in(skeleton, one) == _only_in(skeleton, other) for one, other in pairs]
    return all(same) and all(None not in pair for pair in ways)


def _deep(skeleton: Skeleton, begin: int, end: int, layers: int, several: bool) -> StageRuns | None:
    """The runs of these layers of so many, from the skeleton of a few; None where they are not alike."""
    count = min(end - begin, _MOST)
    first = 0 if begin == 0 else skeleton.layers - count if end == layers else 1
    return _repeated(skeleton, first, count, end - begin, several)


@lru_cache(maxsize=256)
def _some(skeleton: Skeleton, first: int, count: int, several: bool) -> StageRuns:
    """The stage of `count` layers from `first` on."""
    sizes = first, count, skeleton.layers - first - count
    stages = stages_of(skeleton, tuple(each for each in sizes if each), several)
    return stage_runs(skeleton, stages, int(first > 0))


@lru_cache(maxsize=1024)
def _repeated(skeleton: Skeleton, first: int, count: int, wanted: int, several: bool) -> StageRuns | None:
    """The same as if it had as many layers as are wanted; None where they are not alike."""
    found = _some(skeleton, first, count, several)
    if wanted == count:
        return found
    middle, times = first + count // 2, wanted - count + 1
    forward, backward = (_cycle(run, middle) for run in found.runs)
    if forward is None or backward is None:
        return None
    gradients = _gradients(found.gradients, *backward, times)
    if gradients is None:
        return None
    inputs, weights = _only_in(skeleton, middle)
    return replace(
        found,
        runs=(_run(found.runs[0], *forward, times), _run(found.runs[1], *backward, times)),
        gradients=gradients,
        inputs=found.inputs + Counter({each: (times - 1) * number for each, number in inputs.items()}),
        weights=found.weights + Counter({each: (times - 1) * number for each, number in weights.items()}),
    )


@lru_cache(maxsize=256)
def _only_in(skeleton: Skeleton, layer: int) -> tuple[Counter[tuple[Shape, bool]], Counter[Column]]:
    """Inputs and weights that no other layer takes."""
    mine = [value for value in skeleton.inputs if skeleton.taking_layers.get(value) == {layer}]
    weights, step = set(skeleton.weight_of.values()), skeleton.step
    inputs = Counter((skeleton.shapes[value], value in skeleton.joined) for value in mine)
    return inputs, Counter() if step is None else Counter(step.column(value) for value in mine if value in weights)


def _cycle(run: Run, layer: int) -> tuple[int, int] | None:
    """The items of a layer, from the first to after the last; None where those that follow do something else."""
    at = np.flatnonzero(run.layer_of == layer)
    if not at.size:
        return (0, 0) if not run.layer_of.size else None
    start, stop = int(at[0]), int(at[-1]) + 1
    after, size = stop + stop - start, stop - start
    tables = (run.waits, WAITS), (run.combines, COMBINES), (run.made, MADE), (run.freed, FREED)
    alike = (
        after < len(run.kind_of)
        and size == at.size
        and len(set(run.layer_of[stop:after].tolist())) == 1
        and (run.kind_of[start:stop] == run.kind_of[stop:after]).all()
        and not 0 <= run.sender < stop
        and all(
            sorted(_moved(_rows(table, start, stop), columns, size).tolist())
            == sorted(_rows(table, stop, after).tolist())
            for table, columns in tables
        )
    )
    return (start, stop) if alike else None


def _rows(table: Numbers, start: int, stop: int) -> Numbers:
    return table[(table[:, 0] >= start) & (table[:, 0] < stop)]


def _moved(table: Numbers, columns: list[int], by: NDArray[np.int64] | int) -> Numbers:
    """Rows moved to later items, by one distance or by several, shaped (times, 1, 1); what is no item stays."""
    items = np.zeros(table.shape[1], bool)
    items[columns] = True
    return np.asarray(table + by * (items & (table >= 0)))


def _again(table: Numbers, columns: list[int], start: int, stop: int, times: int, way: int = 1) -> Numbers:
    """Rows before the cycle, of each time, and after it; or the other way round."""
    size = stop - start
    cycle = _moved(_rows(table, start, stop), columns, size * np.arange(times)[::way, None, None])
    after = _moved(table[table[:, 0] >= stop], columns, (times - 1) * size)
    parts = [table[table[:, 0] < start], cycle.reshape(-1, table.shape[1]), after]
    return np.concatenate(parts[::way])


def _run(run: Run, start: int, stop: int, times: int) -> Run:
    def longer(column: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate((column[:start], np.tile(column[start:stop], times), column[stop:]))

    def again(table: Numbers, columns: list[int]) -> Numbers:
        return _again(table, columns, start, stop, times)

    return replace(
        run,
        kind_of=longer(run.kind_of),
        communicates=longer(run.communicates),
        layer_of=longer(run.layer_of),
        waits=again(run.waits, WAITS),
        combines=again(run.combines, COMBINES),
        made=again(run.made, MADE),
        freed=again(run.freed, FREED),
        sender=run.sender if run.sender == NEVER else run.sender + (times - 1) * (stop - start),
    )


def _gradients(gradients: Numbers, start: int, stop: int, times: int) -> Numbers | None:
    """Gradients repeated in their order, that of the items or its reverse by layers; None where it is neither."""
    for way in (1, -1):
        if (_again(gradients, [0], start, stop, 1, way) == gradients).all():
            return _again(gradients, [0], start, stop, times, way)
    return None
