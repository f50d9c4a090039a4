"""The hang certificate: what was found, and how it is said."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Channels(StrEnum):
    """What shares one queue of sent tensors."""

    RANK = "rank"
    """All that one rank sends."""
    PAIR = "pair"
    """All between two ranks, both ways."""
    DIRECTION = "direction"
    """All from one rank to another."""
    EDGE = "edge"
    """What flows along one edge of the plan from one rank to another."""

    @property
    def words(self) -> str:
        """After "one queue for"."""
        match self:
            case Channels.RANK:
                return "each rank's sends"
            case Channels.PAIR:
                return "each pair of ranks"
            case Channels.DIRECTION:
                return "each direction of a pair"
            case Channels.EDGE:
                return "each edge of the plan"


class Verdict(StrEnum):
    """Everything but the first is bad; where several apply, the earlier one is said."""

    PROCEEDS = "proceeds"
    CIRCLE = "circle"
    NEVER_SATISFIED = "never satisfied"
    MISMATCHED = "mismatched"


class Place(NamedTuple):
    """An action in a rank's list; positions count from 0."""

    rank: int
    position: int
    action: str

    def __str__(self) -> str:
        return f"rank {self.rank} at position {self.position} ({self.action})"


@dataclass(frozen=True, slots=True)
class HangCertificate:
    """What was found for one kind of channels and one capacity."""

    channels: Channels
    capacity: int
    verdict: Verdict
    places: tuple[Place, ...] = ()
    """Of a circle, the fewest actions of which each waits for the next and the last for the first; of what is never
    satisfied, that action; of a mismatch, what asks and what it gets."""
    why: str = ""
    """What else is to be said, such as who does not come."""

    @property
    def proceeds(self) -> bool:
        """Whether nothing hangs, and every tensor is the one that was asked for."""
        return self.verdict is Verdict.PROCEEDS

    @property
    def sentence(self) -> str:
        """The verdict with its actions, and the queues that it is of; without a full stop."""
        outstanding = f"{self.capacity or 'no'} send{'' if self.capacity == 1 else 's'} outstanding"
        return f"{self.verdict}: {self._found} (one queue for {self.channels.words}, {outstanding}{self._why_so})"

    @property
    def _found(self) -> str:
        if self.verdict is Verdict.PROCEEDS:
            return "every rank comes to the end of its actions"
        first, *others = map(str, self.places)
        if self.verdict is not Verdict.CIRCLE:
            return f"{first} {self.why}"
        if not others:
            return f"{first} waits for a later action of its own rank"
        return f"{first} waits for {', which waits for '.join(others)}, which waits for the first"

    @property
    def _why_so(self) -> str:
        return f"; {self.why}" if self.verdict is Verdict.CIRCLE and self.why else ""
