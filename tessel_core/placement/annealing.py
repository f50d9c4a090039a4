"""Simulated annealing over splits that need not be contiguous: moves and swaps of groups."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction

from tessel_core.control import Control
from tessel_core.placement.best import Split
from tessel_core.placement.moves import Moves
from tessel_core.placement.stages import Pipeline

_POWER = 12
"""Of the norm of the loads that is made small: the largest load alone says nothing of most moves."""
_HOT, _COLD = 5e-4, 1e-5
"""First and last temperature, as shares of the objective."""
_NEWS = 4096
"""Steps between looks at the clock."""


def anneal(parts: Sequence[Pipeline], start: Split, bound: float, steps: int, seed: int, control: Control) -> Split:
    """The best split met in so many steps from `start`, which fits; the same seed gives the same, unless stopped.

    `bound` is for the news.
    """
    choose, moves = random.Random(seed), Moves(parts, start.device_of)
    best, energy = start, _energy(moves)
    for step in range(steps):
        if step % _NEWS == 0:
            if control.stopped:
                break
            control.report("annealing", Fraction(best.load), Fraction(bound))
        heat = best.load * _HOT * (_COLD / _HOT) ** (step / steps)
        undo = _step(moves, choose)
        if not undo:
            continue
        found = _energy(moves)
        if found <= energy or (heat > 0 and choose.random() < math.exp((energy - found) / heat)):
            energy = found
            if moves.objective < best.load * (1 - 1e-12):
                best = moves.split
            continue
        for group, device in undo:
            moves.shift(group, device)
    return best


def _energy(moves: Moves) -> float:
    """Sum over the parts of a norm of the loads near their largest, so that smaller loads count a little."""
    found = 0.0
    for load in moves.load:
        largest = max(load)
        if largest > 0:
            found += largest * sum([(each / largest) ** _POWER for each in load]) ** (1 / _POWER)
    return found


def _step(moves: Moves, choose: random.Random) -> list[tuple[int, int]]:
    """Moves a group, or swaps two; returns the shifts that undo it, none where it did nothing."""
    group = choose.randrange(len(moves.on))
    source, device = moves.on[group], _target(moves, group, choose)
    if device == source:
        return []
    if choose.random() < 0.5 and moves.fits(group, device):
        moves.shift(group, device)
        return [(group, source)]
    other = choose.randrange(len(moves.on))
    if moves.on[other] != device or source not in moves.allowed[other]:
        return []
    moves.shift(group, device)
    if not moves.fits(other, source):
        moves.shift(group, source)
        return []
    moves.shift(other, source)
    if moves.overfull(device):
        moves.shift(other, device)
        moves.shift(group, source)
        return []
    return [(other, device), (group, source)]


def _target(moves: Moves, group: int, choose: random.Random) -> int:
    """A device that supports the group, half the time one that a neighbour is on."""
    nets = moves.nets_of[group]
    if nets and choose.random() < 0.5:
        device = moves.on[choose.choice(moves.groups_of[choose.choice(nets)])]
        if device in moves.allowed[group]:
            return device
    return choose.choice(moves.allowed[group])
