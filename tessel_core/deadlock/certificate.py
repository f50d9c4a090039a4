"""Hang certificate: the result of a deadlock check, and its explanation in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Channels(StrEnum):
    """Which sends share one queue."""

    RANK = "rank"
    """All sends of one rank."""
    PAIR = "pair"
    """All sends between two ranks, in both directions."""
    DIRECTION = "direction"
    """All sends from one rank to another."""
    EDGE = "edge"
    """All sends from one rank to another along one edge of the plan."""

    @property
    def words(self) -> str:
        """Description that follows the words "one queue for"."""
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
    """Result of the check. All values except PROCEEDS are errors.

    If several apply, the first of this list is reported.
    """

    PROCEEDS = "proceeds"
    CIRCLE = "circle"
    NEVER_SATISFIED = "never satisfied"
    MISMATCHED = "mismatched"


class Place(NamedTuple):
    """An action and its position, from 0, in the list of its rank."""

    rank: int
    position: int
    action: str

    def __str__(self) -> str:
        return f"rank {self.rank} at position {self.position} ({self.action})"


@dataclass(frozen=True, slots=True)
class HangCertificate:
    """Verdict for one kind of channels and one capacity."""

    channels: Channels
    capacity: int
    verdict: Verdict
    places: tuple[Place, ...] = ()
    """Actions that explain the verdict.

    CIRCLE: the actions of a shortest cycle. Each waits for the next. NEVER_SATISFIED: the action that cannot complete.
    MISMATCHED: the receive or collective, and the action that it meets instead of the expected one.
    """
    why: str = ""
    """Further explanation, such as the rank that never joins a collective."""

    @property
    def proceeds(self) -> bool:
        """Whether all ranks complete and every receive gets the tensor that it expects."""
        return self.verdict is Verdict.PROCEEDS

    @property
    def sentence(self) -> str:
        """Sentence with the verdict, its actions and the assumed queues, without a full stop."""
        outstanding = f"{self.capacity or 'no'} send{'' if self.capacity == 1 else 's'} outstanding"
        return f"{self.verdict}: {self._explanation} (one queue for {self.channels.words}, {outstanding}{self._why_so})"

    @property
    def _explanation(self) -> str:
        if self.verdict is Verdict.PROCEEDS:
            return "every rank completes its actions"
        first, *others = map(str, self.places)
        if self.verdict is not Verdict.CIRCLE:
            return f"{first} {self.why}"
        if not others:
            return f"{first} waits for a later action of its own rank"
        return f"{first} waits for {', which waits for '.join(others)}, which waits for the first"

    @property
    def _why_so(self) -> str:
        return f"; {self.why}" if self.verdict is Verdict.CIRCLE and self.why else ""
