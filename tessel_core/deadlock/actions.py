"""Actions of ranks: local work, sends, receives, waits and collectives."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple


class ActionKind(StrEnum):
    """Kind of an action. It decides for which other ranks the action waits."""

    LOCAL = "local"
    """Action that waits for no other rank, such as computing or an idle cell."""
    SEND = "send"
    RECEIVE = "receive"
    WAIT = "wait"
    """Wait until an earlier send of the same rank is received."""
    COLLECTIVE = "collective"


class Action(NamedTuple):
    """One entry in the action list of a rank."""

    kind: ActionKind
    text: str
    """Text for messages, such as "send of F0 #3 to rank 1"."""
    ranks: tuple[int, ...] = ()
    """Destination of a send, source of a receive, or all ranks of a collective."""
    tensor: Hashable = None
    """Identifier of the tensor. It is equal for a send and its receive, and for all ranks of a collective."""
    edge: Hashable = None
    """Edge of the plan along which the tensor flows between the two ranks."""


RankActions = Mapping[int, Sequence[Action]]
"""Actions of each rank in order."""
