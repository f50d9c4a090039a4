"""Text about a selected place of a timeline: a run, idle time of a device, or a time range."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from tessel_core.errors import InputError
from tessel_core.inspection import (
    Cause,
    FoundHole,
    FoundRun,
    Hole,
    Holes,
    Link,
    Obstacles,
    OrderGraph,
    Reason,
    find,
    span_of,
)
from tessel_core.model import MemoryProfile, Schedule
from tessel_core.model.receives import ReceiveWait
from tessel_core.units import show_memory, show_time
from tessel_core.workbench.messages.as_written import wait_sentence
from tessel_core.workbench.messages.idle import CAUSES_MEAN, percent

Run = tuple[int, int]
"""Index of a block, and a micro-batch."""
Part = str | Run
"""Piece of a text. A run is shown as its name, with a link that selects it."""
Line = tuple[str, tuple[Part, ...]]
"""Line of text: its heading, and the pieces of its text."""

PLACE = (
    r"(?P<block>\d{1,7})\.(?P<micro_batch>\d{1,7})"
    r"|g(?P<device>\d{1,7})\.(?P<moment>\d{1,16})"
    r"|r(?P<begin>\d{1,16})-(?P<end>\d{1,16})"
)
"""Pattern of a place: run 3.17 (block, micro-batch), idle time g2.718 (on device 2, at tick 718), or range r120-480."""
_MAX_NAMED = 5
"""Number of runs of a chain of waits that are named."""
_MAX_DRAWN = 20_000
"""Number of runs of a chain of waits that are drawn."""
_MAX_TIMED_RUNS = 50_000
"""Number of runs of the largest schedule for which slack and savings are computed.

For a larger schedule this is too slow.
"""
_obstacles = lru_cache(maxsize=2)(Obstacles.of)
_order = lru_cache(maxsize=2)(OrderGraph.of)
_holes = lru_cache(maxsize=2)(Holes.of)


@dataclass(frozen=True, slots=True)
class About:
    """Text about a place, the chain of runs that leads to it (nearest first), and the runs that wait for it."""

    lines: tuple[Line, ...] = ()
    chain: tuple[Run, ...] = ()
    after: tuple[Run, ...] = ()
    """Runs that wait for the place.

    Given only for a simulation; for a schedule, the browser finds these runs itself.
    """


@dataclass(frozen=True, slots=True)
class Finding:
    """Place that a user's search has found, or the reason why it found none."""

    place: str = ""
    complaint: str = ""


def about(schedule: Schedule, place: str, waits: Sequence[ReceiveWait] = ()) -> About:
    """Return the text about a place in the format of `PLACE`.

    Empty if the schedule has no such place. `waits` lists the idle times during which a rank is known to wait for a
    receive.
    """
    match = re.fullmatch(PLACE, place)
    if match is None:
        return About()
    given = {name: int(value) for name, value in match.groupdict().items() if value is not None}
    if "block" in given:
        return _about_run(schedule, given["block"], given["micro_batch"])
    if "device" in given:
        return _about_hole(schedule, given["device"], given["moment"], waits)
    return _about_range(schedule, given["begin"], given["end"])


def find_place(schedule: Schedule, text: str) -> Finding:
    """Return the place named by words such as "B3 of 17", "longest idle time on gpu2" or "peak of gpu5"."""
    try:
        found = find(schedule, text, _holes(schedule))
    except InputError as error:
        return Finding(complaint=f"{error.why[0].upper()}{error.why[1:]}.")
    if isinstance(found, FoundRun):
        block, micro_batch = _run(schedule, found.row)
        return Finding(f"{block}.{micro_batch}")
    if isinstance(found, FoundHole):
        return Finding(f"g{found.hole.device}.{found.hole.start}")
    times = MemoryProfile.of(schedule).times[found.device]
    later = times[times > found.moment]
    return Finding(f"r{found.moment}-{int(later[0]) if len(later) else schedule.makespan}")


SAVINGS = (
    "Reduction of the makespan if all runs of one block take 10% less time and every device keeps its order. All "
    "starts are computed again, so a block on the critical path may save little if another path is almost as long."
)


@lru_cache(maxsize=2)
def savings(schedule: Schedule) -> tuple[Fraction, ...]:
    """Return the ticks that the schedule saves if one block alone is 10% faster, for each block.

    Empty if the schedule has more than `_MAX_TIMED_RUNS` runs.
    """
    return _order(schedule).savings() if len(schedule.start) <= _MAX_TIMED_RUNS else ()


def _about_run(schedule: Schedule, block: int, micro_batch: int) -> About:
    if not (block < len(schedule.plan.blocks) and micro_batch < schedule.micro_batches):
        return About()
    row = _row(schedule, block, micro_batch)
    obstacles, unit = _obstacles(schedule), schedule.plan.time_unit
    last = row == int(schedule.end.argmax())
    chain = obstacles.critical_path() if last else obstacles.chain(row)
    lines: list[Line] = [("Critical path" if last else "Why not earlier", _why(schedule, obstacles, chain))]
    if len(schedule.start) <= _MAX_TIMED_RUNS:
        slack = int(_order(schedule).slack[row])
        later = f"It could start {show_time(slack, unit)} later" if slack else "None: a later start delays the end"
        lines.append(("Slack", (f"{later}, in this order.",)))
        saved = float(savings(schedule)[block])
        name, share = schedule.plan.blocks[block].name, saved / max(1, schedule.makespan)
        shorter = f"The schedule would be {show_time(saved, unit)} ({share:.1%}) shorter"
        what = shorter if saved else "Nothing would change"
        lines.append((f"All \u2068{name}\u2069 10% faster", (f"{what}, in this order.",)))
    return About(tuple(lines), tuple(_run(schedule, link.row) for link in chain[:_MAX_DRAWN]))


def _why(schedule: Schedule, obstacles: Obstacles, chain: Sequence[Link]) -> tuple[Part, ...]:
    """Return text on the chain of obstacles that delay a run. Only the nearest ones are named."""
    parts: list[Part] = []
    for link in chain[:_MAX_NAMED]:
        text, run = _obstacle(schedule, obstacles, link)
        parts += [f"{', which' if parts else 'It'} {text}", *([] if run is None else [run])]
    rest = len(chain) - _MAX_NAMED
    if rest > 0:
        last = chain[-1].obstacle.reason
        end = "to a run that could start earlier" if last is Reason.COULD else "to time 0"
        parts.append(f", and so on through {rest:,} more, back {end}")
    return (*parts, ".")


def _obstacle(schedule: Schedule, obstacles: Obstacles, link: Link) -> tuple[str, Run | None]:
    """Return why a run waits, as the end of a sentence, and the run that it waits for."""
    obstacle, plan = link.obstacle, schedule.plan
    if obstacle.reason is Reason.COULD:
        earliest = show_time(int(obstacles.earliest[link.row]), plan.time_unit)
        return f"could start earlier, at {earliest}", None
    if obstacle.row is None:
        return "starts at time 0", None
    where = "" if obstacle.device is None else plan.devices[obstacle.device].name
    text = {
        Reason.DATA: "needs the output of ",
        Reason.COMMUNICATION: "waits for the transfer from ",
        Reason.MEMORY: f"does not fit in the memory of {where} before the end of ",
        Reason.DEVICE: f"waits until {where} has run ",
        Reason.PARTNERS: f"waits for {where} of its group, which runs ",
    }[obstacle.reason]
    return text, _run(schedule, obstacle.row)


def _about_hole(schedule: Schedule, device: int, moment: int, waits: Sequence[ReceiveWait]) -> About:
    hole = _holes(schedule).at(device, moment) if device < len(schedule.plan.devices) else None
    if hole is None:
        return About()
    lines: list[Line] = [("Cause", (_causes_of(schedule, hole),))]
    within = [w for w in waits if w.rank == device and w.start < hole.end and hole.start < w.end]
    if within:
        said = "; ".join(wait_sentence(wait, schedule.plan.time_unit) for wait in within)
        lines.append(("Receives", (f"{said[0].upper()}{said[1:]}.",)))
    filler = _holes(schedule).filler(hole)
    if filler is not None:
        cost = "and no other run has to move" if filler.undisturbed else "but later runs would have to move"
        at = show_time(filler.moment, schedule.plan.time_unit)
        lines.append(("What could fill it", (_run(schedule, filler.row), f" could start at {at}, {cost}.")))
    else:
        lines.append(("What could fill it", ("Nothing: no run could start in this idle time.",)))
    return About(tuple(lines))


def _causes_of(schedule: Schedule, hole: Hole) -> str:
    """Return each cause of an idle time with its meaning, the longest first."""
    ticks: dict[Cause, int] = {}
    for piece in hole.pieces:
        ticks[piece.cause] = ticks.get(piece.cause, 0) + piece.end - piece.start
    return _listed(schedule, ticks)


def _listed(schedule: Schedule, ticks: dict[Cause, int]) -> str:
    unit, found = schedule.plan.time_unit, sorted(ticks.items(), key=lambda each: -each[1])
    return "; ".join(f"{c}, {show_time(t, unit)}: {CAUSES_MEAN[c]}" for c, t in found if t).capitalize() + "."


def _about_range(schedule: Schedule, begin: int, end: int) -> About:
    if not 0 <= begin < end <= schedule.makespan:
        return About()
    devices = span_of(schedule, begin, end)
    total, whole = dict.fromkeys(Cause, 0), (end - begin) * len(devices)
    for each in devices:
        for cause, ticks in each.causes.items():
            total[cause] += ticks
    idle = sum(total.values())
    if not idle:
        return About((("Idle by cause", ("No device is idle.",)),))
    shares = "; ".join(f"{c} {percent(Fraction(ticks, whole))}" for c, ticks in total.items() if ticks)
    peaks = ", ".join(
        f"{device.name} {show_memory(each.peak_memory, schedule.plan.memory_unit)}"
        for device, each in list(zip(schedule.plan.devices, devices, strict=True))[:8]
    )
    return About((("Idle by cause", (f"{idle / whole:.1%} of the time: {shares}.",)), ("Peak memory", (f"{peaks}.",))))


def _run(schedule: Schedule, row: int) -> Run:
    return int(schedule.block[row]), int(schedule.micro_batch[row])


def _row(schedule: Schedule, block: int, micro_batch: int) -> int:
    return int(((schedule.block == block) & (schedule.micro_batch == micro_batch)).argmax())
