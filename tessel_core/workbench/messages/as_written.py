"""Sentences about PyTorch CSVs that list their sends and receives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tessel_core.model.receives import Receives, ReceiveWait
from tessel_core.units import counted

READINGS = {Receives.STREAM: "on separate streams", Receives.IN_ORDER: "in line with computing"}
"""Names of the ways in which receives can wait."""
_MAX_LISTED = 5


def wait_sentences(waits: Sequence[ReceiveWait], unit: str) -> Iterator[str]:
    """Yield one sentence about the total time that ranks wait for receives, then one for each of the longest waits."""
    waits = sorted(waits, key=lambda wait: (wait.start - wait.end, wait.rank, wait.start))
    if not waits:
        yield "No rank waits for a receive."
        return
    lost = sum(wait.end - wait.start for wait in waits)
    yield f"Ranks wait for receives {counted(len(waits), 'time')}, {counted(lost, unit)} in all. The longest:"
    yield from (f"  {wait_sentence(wait, unit)}" for wait in waits[:_MAX_LISTED])


def wait_sentence(wait: ReceiveWait, unit: str) -> str:
    """Return a sentence about one wait."""
    late = f", and {wait.before} after it" if wait.before else ""
    return f"rank {wait.rank} waits {counted(wait.end - wait.start, unit)} at {wait.start} for {wait.receive}{late}"
