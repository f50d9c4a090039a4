"""Time and idle time of a simulated program: key numbers and sentences."""

from __future__ import annotations

from fractions import Fraction

from tessel_core.simulation.idle import ProgramIdle
from tessel_core.units import show_time
from tessel_core.workbench.messages.idle import PROGRAM_MEANINGS, imbalance_and_bubble, percent
from tessel_core.workbench.messages.schedule import KeyNumber


def pace(latency: float, batch: int) -> str:
    """The time of a step of so many samples, and of one of them."""
    return f"{show_time(latency, 's')} a step, {show_time(latency / batch, 's')} a sample"


def idle_sentence(idle: ProgramIdle) -> str:
    """Idle time with both of its splits."""
    whole = f"Devices idle {percent(idle.split.idle)} of the time ({imbalance_and_bubble(idle.split)})"
    shares = {cause: percent(share) for cause, share in idle.causes.shares.items()}
    causes = ", ".join(f"{cause} {share}" for cause, share in shares.items() if share != percent(Fraction(0)))
    return f"{whole}: {causes}." if causes else f"{whole}."


def program_numbers(latency: float, idle: ProgramIdle, batch: int | None = None) -> tuple[KeyNumber, ...]:
    """The headline of a program, with the time of a sample where a step's number of samples is known."""
    found = [KeyNumber("Idle", percent(idle.split.idle), imbalance_and_bubble(idle.split), PROGRAM_MEANINGS)]
    if batch is not None:
        about = f"Time of a step / its {batch:,} samples, over all replicas."
        found.append(KeyNumber("Time per sample", show_time(latency / batch, "s"), "", about))
    return tuple(found)
