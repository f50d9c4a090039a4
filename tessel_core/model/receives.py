"""Idle time that receives cause, for orders that list their sends and receives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Receives(StrEnum):
    """Which work of a rank waits until a tensor has been received."""

    STREAM = "stream"
    """Only the computation that needs the tensor waits. Each receive has its own stream, as PyTorch intends."""
    IN_ORDER = "in-order"
    """All later work of the rank waits, as if the receive occupied the device."""


@dataclass(frozen=True, slots=True)
class ReceiveWait:
    """Idle time of a rank, and the receive that causes it. Times are in the plan's unit."""

    rank: int
    receive: str
    """The receive, written as in the file, such as 2RECV_F3, or 2WAIT_SEND_F3 if a send waits for its receiver."""
    before: str
    """The computation that starts late, such as 2F3, or empty if none follows."""
    start: int
    end: int
