"""Holes that receives make, in orders that say their sends and receives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Receives(StrEnum):
    """Who waits for a tensor that has not come yet."""

    STREAM = "stream"
    """The computing that needs it: each receive waits on a stream of its own, as PyTorch intends."""
    IN_ORDER = "in-order"
    """Everything that its rank does next: receives stand in line with computing, as where a kernel of the receive
    occupies the device until the tensor comes."""


@dataclass(frozen=True, slots=True)
class ReceiveWait:
    """A hole in a rank's computing, and the receive that makes it; times are in the plan's unit."""

    rank: int
    receive: str
    """As the file says it, such as 2RECV_F3; or 2WAIT_SEND_F3, where the rank waits until its send can be received."""
    before: str
    """The computing that starts late, such as 2F3; empty where none follows."""
    start: int
    end: int
