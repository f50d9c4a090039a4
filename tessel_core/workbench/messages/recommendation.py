"""A recommendation in plain sentences: what was proved, and why nothing fits."""

from __future__ import annotations

from tessel_core.strategies.recommendation import Recommendation
from tessel_core.units import counted, show_memory, show_time


def proof_sentences(found: Recommendation) -> tuple[str, ...]:
    """What is proved about the fastest strategy, and how the other configurations were judged."""
    if found.best is None:
        return ()
    count = counted(found.configurations, "configuration")
    every = f"of the {count} of these ranges, under this cost model"
    first = f"The fastest {every}." if found.complete else f"The fastest found {every}; the search was stopped."
    judged = [f"{found.simulated:,} were timed", f"{found.ruled_out:,} were ruled out by a bound"]
    judged += [f"{number:,} cannot be: {reason}" for reason, number in list(found.infeasible.items())[:3]]
    more = sum(list(found.infeasible.values())[3:])
    judged += [f"{more:,} cannot be for other reasons"] * bool(more)
    lines = [first, f"{'; '.join(judged)}."]
    if found.bound_s is not None:
        less = 1 - found.bound_s / found.best.outcome.latency
        bound = f"No configuration that fits takes less than {show_time(found.bound_s, 's')} ({less:.1%} less)"
        lines.append(f"{bound}, which is the work of its busiest device, without the exchanges of replicas.")
    return tuple(lines)


def refusal(found: Recommendation) -> tuple[str, ...]:
    """Why there is no strategy, and what comes closest."""
    if found.best is not None:
        return ()
    lines = [f"No configuration of these ranges fits, of {found.configurations:,}."]
    room = max((device.memory_capacity or 0 for device in found.question.mesh.devices), default=0)
    if found.nearest is not None and room:
        strategy, peak = found.nearest
        short = f"It takes {show_memory(peak, 'B')}, {show_memory(peak - room, 'B')} more than a device has"
        lines.append(f"The closest is {strategy.summary}. {short}.")
    lines += [f"{number:,}: {reason}." for reason, number in list(found.infeasible.items())[:4]]
    return tuple(lines)
