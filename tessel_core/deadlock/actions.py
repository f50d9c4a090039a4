"""What ranks do in turn, as far as it concerns the others."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple


class ActionKind(StrEnum):
    """How an action concerns other ranks."""

    LOCAL = "local"
    """It waits for nobody, such as computing or an idle cell."""
    SEND = "send"
    RECEIVE = "receive"
    WAIT = "wait"
    """For an earlier send of the rank to be received."""
    COLLECTIVE = "collective"


class Action(NamedTuple):
    """One entry of a rank's list."""

    kind: ActionKind
    text: str
    """What people read: "send of F0 #3 to rank 1"."""
    ranks: tuple[int, ...] = ()
    """Whom a send goes to, whom a receive takes from, or the whole group of a collective."""
    tensor: Hashable = None
    """What is handed over; both ends, or all of a group, name the same."""
    edge: Hashable = None
    """Which edge of the plan between the two ranks the tensor flows along."""


RankActions = Mapping[int, Sequence[Action]]
"""Per rank, its actions in order."""
