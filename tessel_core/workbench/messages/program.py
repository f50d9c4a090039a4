"""Key numbers and sentences about the time and idle time of a simulated program."""

from __future__ import annotations

from fractions import Fraction

from tessel_core.simulation.idle import ProgramIdle
from tessel_core.units import show_time
from tessel_core.workbench.messages.idle import PROGRAM_MEANINGS, imbalance_and_bubble, percent
from tessel_core.workbench.messages.schedule import KeyNumber


def pace(latency: float, batch: int) -> str:
    """Return the time per step and per sample as text. `batch` is the number of samples per step."""
    return f"{show_time(latency, 's')} per step, {show_time(latency / batch, 's')} per sample"


def idle_sentence(idle: ProgramIdle) -> str:
    """Return a sentence on idle time: its split into imbalance and bubble, and its split by cause."""
    whole = f"Devices are idle {percent(idle.split.idle)} of the time ({imbalance_and_bubble(idle.split)})"
    shares = {cause: percent(share) for cause, share in idle.causes.shares.items()}
    causes = ", ".join(f"{cause} {share}" for cause, share in shares.items() if share != percent(Fraction(0)))
    return f"{whole}: {causes}." if causes else f"{whole}."


def program_numbers(latency: float, idle: ProgramIdle, batch: int | None = None) -> tuple[KeyNumber, ...]:
    """Return the key numbers of a program, with the time per sample if the samples per step are known."""
    found = [KeyNumber("Idle", percent(idle.split.idle), imbalance_and_bubble(idle.split), PROGRAM_MEANINGS)]
    if batch is not None:
        about = f"Time of a step / {batch:,} samples of all replicas."
        found.append(KeyNumber("Time per sample", show_time(latency / batch, "s"), "", about))
    return tuple(found)
