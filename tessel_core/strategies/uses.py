"""Which items of a stage make and take what it holds, as arrays of their numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tessel_core.strategies.skeleton import Skeleton
from tessel_core.strategies.stages import BACKWARD, FORWARD, Combine, Stage, taken_by, talks

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

NEVER = -1


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
