"""Sentences about PyTorch's CSVs with their sends and receives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tessel_core.model.receives import Receives, ReceiveWait
from tessel_core.units import counted

READINGS = {Receives.STREAM: "on streams of their own", Receives.IN_ORDER: "in line with computing"}
"""Where receives wait, in words."""
_MOST = 5


def wait_sentences(waits: Sequence[ReceiveWait], unit: str) -> Iterator[str]:
    """The longest holes, each with the receive that makes it."""
    waits = sorted(waits, key=lambda wait: (wait.start - wait.end, wait.rank, wait.start))
    if not waits:
        yield "No rank waits for a receive."
        return
    lost = sum(wait.end - wait.start for wait in waits)
    yield f"Ranks wait for receives {counted(len(waits), 'time')}, {counted(lost, unit)} in all. The longest:"
    yield from (f"  {wait_sentence(wait, unit)}" for wait in waits[:_MOST])


def wait_sentence(wait: ReceiveWait, unit: str) -> str:
    """One hole."""
    late = f", and {wait.before} after it" if wait.before else ""
    return f"rank {wait.rank} waits {counted(wait.end - wait.start, unit)} at {wait.start} for {wait.receive}{late}"
