"""DistIR's clocks for many configurations at once, block by block: `simulate_in_order`, with a clock a stage.

Replicas and the devices that share a layer do the same at the same time, so a stage has one clock.  What is held
depends on the order of the program alone.  Every value has memory of its own, views too: programs that
work in place before the optimizer does go one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tessel_core.strategies.amounts import Amounts, Bytes, Seconds
from tessel_core.strategies.issue import IssueOrder
from tessel_core.strategies.skeleton import Skeleton
from tessel_core.strategies.stages import BACKWARD, FORWARD, Combine, Item, Stage, taken_by


@dataclass(frozen=True)
class Evaluated:
    """Per stage (first axis) and configuration: when it is done, and the most that each of its devices holds."""

    end: Seconds
    peak: Bytes


@dataclass(frozen=True)
class _Block:
    """A stage's runs in one direction, shaped (`Stage.turns`, configurations)."""

    seconds: Seconds
    most: Bytes
    """Above what was held when the run began."""
    more: Bytes
    """Held when it ends, against when it began."""


_Blocks = Sequence[tuple[_Block, _Block]]


def evaluate_in_order(skeleton: Skeleton, stages: Sequence[Stage], order: IssueOrder, amounts: Amounts) -> Evaluated:
    """Clocks and peaks, the optimizer's step included."""
    made: dict[object, tuple[_Block, _Block]] = {}
    blocks = list[tuple[_Block, _Block]]()
    for s, stage in enumerate(stages):
        key = stage.likeness, amounts.patterns(s)
        if key not in made:
            forward, backward = (_block(skeleton, stage, s, phase, amounts) for phase in (FORWARD, BACKWARD))
            made[key] = forward, backward
        blocks.append(made[key])
    return Evaluated(
        _clocks(skeleton, stages, order, amounts, blocks), _peaks(skeleton, stages, order, amounts, blocks)
    )


def _block(skeleton: Skeleton, stage: Stage, s: int, phase: int, amounts: Amounts) -> _Block:
    """Item by item, outputs are acquired before inputs that nothing takes any more are released."""
    nothing, turns = np.zeros((1, len(amounts.sizes)), np.int64), stage.turns(phase, amounts.micro_batches)
    seconds, held, most = np.zeros(nothing.shape), nothing, nothing
    for i, item in enumerate(stage.items[phase]):
        if isinstance(item, Combine):
            seconds = seconds + amounts.combining(skeleton.shapes[item.value], item.joins, turns)
            acquired, released = amounts.combined_bytes(skeleton.shapes[item.value], item.joins, turns)
        else:
            seconds = seconds + amounts.seconds_of(item.kind, s)
            acquired, released = nothing + _bytes(skeleton, amounts, item.outputs), nothing
        held = held + acquired
        most = np.maximum(most, held)
        held = held - released - _bytes(skeleton, amounts, _gone(skeleton, stage, item, (phase, i)))
    return _Block(seconds, most, held)


def _gone(skeleton: Skeleton, stage: Stage, item: Item, place: tuple[int, int]) -> list[int]:
    """What nothing takes after this place; inputs of the program stay."""
    taken = dict.fromkeys(taken_by(item))
    return [value for value in taken if stage.last_use[value] == place and value not in skeleton.inputs]


def _bytes(skeleton: Skeleton, amounts: Amounts, values: Sequence[int]) -> Bytes:
    sizes = [amounts.bytes_of(skeleton.shapes[value]) for value in values]
    return np.sum(sizes, axis=0, dtype=np.int64) if sizes else np.zeros(len(amounts.sizes), np.int64)


def _clocks(
    skeleton: Skeleton, stages: Sequence[Stage], order: IssueOrder, amounts: Amounts, blocks: _Blocks
) -> Seconds:
    clock = [np.zeros(len(amounts.sizes)) for _ in stages]
    for issue in order.issues:
        if not issue.sends:
            seconds = blocks[issue.stage][issue.phase].seconds
            clock[issue.stage] = clock[issue.stage] + seconds[min(issue.turn, len(seconds) - 1)]
            continue
        for send in stages[issue.stage].sends[issue.phase]:
            together = np.maximum(clock[issue.stage], clock[send.to])
            clock[issue.stage] = clock[send.to] = together + amounts.send(
                skeleton.shapes[send.value], issue.stage, send.to
            )
    for s, stage in enumerate(stages):
        if skeleton.step is not None:
            step = amounts.update(skeleton.step, stage.weights)
            shapes = [skeleton.shapes[value] for value in stage.gradients]
            clock[s] = clock[s] + sum((amounts.summing(shape, s) for shape in shapes), step)
    return np.array(clock)


def _peaks(skeleton: Skeleton, stages: Sequence[Stage], order: IssueOrder, amounts: Amounts, blocks: _Blocks) -> Bytes:
    most, more = (list[list[Bytes]]([held_always(skeleton, stage, amounts)] for stage in stages) for _ in range(2))
    nothing = np.zeros(len(amounts.sizes), np.int64)
    for issue in order.issues:
        stage = stages[issue.stage]
        if not issue.sends:
            block = blocks[issue.stage][issue.phase]
            turn = min(issue.turn, len(block.most) - 1)
            most[issue.stage].append(block.most[turn])
            more[issue.stage].append(block.more[turn])
            continue
        for i, send in enumerate(stage.sends[issue.phase], len(stage.items[issue.phase])):
            size = amounts.bytes_of(skeleton.shapes[send.value])
            most[send.to].append(size)
            more[send.to].append(size)
            most[issue.stage].append(nothing)
            more[issue.stage].append(-size if stage.last_use[send.value] == (issue.phase, i) else nothing)
    for s, stage in enumerate(stages):
        sizes = [nothing, *(amounts.bytes_of(skeleton.shapes[value]) for value in stage.gradients)]
        most[s].append(np.max(sizes, axis=0) * amounts.several())
        more[s].append(nothing)
    return np.array([_highest(each, changes) for each, changes in zip(most, more, strict=True)])


def held_always(skeleton: Skeleton, stage: Stage, amounts: Amounts) -> Bytes:
    """Inputs of the program: weights, the optimizer's state, and of samples the parts of all micro-batches."""
    held = np.zeros(len(amounts.sizes), np.int64)
    for value in stage.inputs:
        parts = amounts.micro_batches if value in skeleton.joined else 1
        held += parts * amounts.bytes_of(skeleton.shapes[value])
    if skeleton.step is not None:
        for shape, count in skeleton.step.state(stage.weights).items():
            held += count * amounts.bytes_of(shape)
    return held


def _highest(most: Sequence[Bytes], more: Sequence[Bytes]) -> Bytes:
    """The first entry is what is held from the start."""
    after = np.cumsum(more, axis=0)
    return np.asarray(np.maximum(after[0], np.max(after[:-1] + np.array(most)[1:], axis=0)))
