"""Sentences about the bottlenecks of a strategy, with numbers from its simulated trace."""

from __future__ import annotations

from tessel_core.model import DeviceMesh
from tessel_core.simulation import Trace, device_times, memory_parts, why_waiting
from tessel_core.simulation.idle import idle_of
from tessel_core.simulation.waiting import DeviceTime
from tessel_core.strategies.ranks import Ranks
from tessel_core.units import show_memory, show_time
from tessel_core.workbench.messages.program import idle_sentence

_MAX_MEMORY_PARTS = 3
_MIN_REPORTED_SHARE = 0.005
"""Smallest share of the step time that sentences mention."""


def explain(trace: Trace, ranks: Ranks, mesh: DeviceMesh) -> tuple[str, ...]:
    """Return sentences on idle time, the busiest stage, the stage that waits most, and the fullest memory."""
    stages = _stages(trace, ranks)
    busiest = max(range(len(stages)), key=lambda stage: stages[stage].computing)
    step = show_time(trace.latency * 1e9, "ns")
    busy = stages[busiest]
    alone = busy.communicating - busy.both
    clauses = [f"computes for {_share(busy.computing, trace)} of the {step}"]
    if alone > _MIN_REPORTED_SHARE * trace.latency:
        clauses.append(f"only communicates for {_share(alone, trace)}")
    if busy.neither > _MIN_REPORTED_SHARE * trace.latency:
        clauses.append(f"does neither for {_share(busy.neither, trace)}")
    name = f"Stage {busiest} has the most work" if len(stages) > 1 else "Every device"
    found = [f"{name}{': it' if len(stages) > 1 else ''} {_listed(clauses)}."]
    waits = _waits(trace, min(stages, key=lambda each: each.computing).device, ranks)
    idle = idle_of(trace)
    headline = "" if idle is None else idle_sentence(idle)
    return tuple(filter(None, (headline, *found, waits, _memory(trace, mesh))))


def bottleneck(trace: Trace, ranks: Ranks, mesh: DeviceMesh) -> str:
    """Return two sentences for a card: why devices wait, and what takes most memory."""
    idlest = min(_stages(trace, ranks), key=lambda each: each.computing)
    waits = _waits(trace, idlest.device, ranks) or "No device waits: all compute all the time."
    i = max(range(len(trace.devices)), key=trace.peak_memory.__getitem__)
    shares = list(memory_parts(trace, trace.devices[i]).items())
    if not shares:
        return waits
    what, amount = shares[0]
    capacity = mesh.devices[trace.devices[i] - 1].memory_capacity
    peak = trace.peak_memory[i]
    full = "Most of its memory" if capacity is None else f"Memory is {_percent(peak / capacity)} full, most"
    return f"{waits} {full} is {what} ({_percent(amount / peak)})."


def _stages(trace: Trace, ranks: Ranks) -> list[DeviceTime]:
    """Return the times of the first device of each stage."""
    times = {each.device: each for each in device_times(trace)}
    return [times[ranks.worker(0, 0, place)] for place in range(ranks.pipeline)]


def _waits(trace: Trace, worker: int, ranks: Ranks) -> str:
    """Return a sentence on why a stage's device waits.

    Empty if it waits for less than the smallest share that is mentioned.
    """
    reasons = why_waiting(trace, worker, by_micro_batch=False)
    total = sum(each.seconds for each in reasons)
    if total <= _MIN_REPORTED_SHARE * trace.latency:
        return ""
    who = f"Stage {ranks.coordinate(worker, 'pipeline')}" if ranks.pipeline > 1 else "Every device"
    worst = reasons[0]
    rest = "" if len(reasons) == 1 else f": {_share(worst.seconds, trace)}"
    cause = worst.title if ranks.pipeline > 1 else worst.title.removeprefix("stage 0's ")
    return f"{who} waits {_share(total, trace)} of the time{rest} for {cause}."


def _memory(trace: Trace, mesh: DeviceMesh) -> str:
    """Return a sentence on the device that holds most memory."""
    i = max(range(len(trace.devices)), key=trace.peak_memory.__getitem__)
    worker, peak = trace.devices[i], trace.peak_memory[i]
    if not peak:
        return ""
    device = mesh.devices[worker - 1]
    capacity = device.memory_capacity
    of_all = "" if capacity is None else f" of {show_memory(capacity, 'B')}"
    shares = _listed(
        [
            f"{what} {_percent(amount / peak)}"
            for what, amount in list(memory_parts(trace, worker).items())[:_MAX_MEMORY_PARTS]
        ]
    )
    full = "Memory is too small" if capacity is not None and peak > capacity else "Memory"
    return f"{full}: {device.name} holds {show_memory(peak, 'B')}{of_all} at its peak: {shares}."


def _share(seconds: float, trace: Trace) -> str:
    return _percent(seconds / trace.latency)


def _percent(share: float) -> str:
    """Return a share in percent. A positive share is never shown as 0%."""
    return "less than 1%" if 0 < share < _MIN_REPORTED_SHARE else f"{share:.0%}"


def _listed(clauses: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(clauses[:-1]), clauses[-1])))
