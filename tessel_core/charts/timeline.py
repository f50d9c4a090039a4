"""Schedules as one buffer of bytes, from which the browser's timeline draws, finds and answers by itself.

A schedule is a frame: the length of a header (32 bits, little endian), the header (JSON), then the columns that it
names, each at a multiple of eight bytes; frames follow one another.  A row is a run, in order of start; starts are
differences to the row before, because nanoseconds overflow 32 bits and their differences rarely do.  Ends, lanes and
memory follow from the plan in the header, so 200,000 runs take one or two megabytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessel_core.charts.palette import HELD, KIND_COLOURS, LIMIT, SLOTS, STATIC, slot_colour
from tessel_core.model import BlockKind, MemoryProfile, MicroBatchPlan, Phase, Schedule
from tessel_core.units import show_memory, show_time

Titled = tuple[str, Schedule]

_ALIGNED = 8
"""Bytes: a browser reads float64 columns at such places only."""
_WIDTHS = (np.uint8, np.uint16, np.uint32)

_MOST_PIXELS, _WORK_LANE, _MEMORY_LANE = 640, 30, 24
"""Lanes are this high at most, and together as high as that as long as their names stay readable."""
_NAMED_LANE, _LEAST_LANE, _TALLEST = 12, 2, 1_600
_TOOLS, _LEGEND, _VERDICT, _MAP, _AXIS, _MEMORY_TITLE, _HEADING = 264, 34, 20, 30, 52, 30, 28
"""Pixels of the toolbar and the details, or of the legend and what a drop did; then of what stands between lanes."""


@dataclass(frozen=True, slots=True)
class Look:
    """How the timeline treats schedules, beside what they are; what is not as usual goes into the header."""

    quiet: bool = False
    """Neither the address nor the server hears what is seen."""
    past: frozenset[int] = frozenset()
    """Which of the schedules are drawn pale: something newer is under way."""
    stages: tuple[int, ...] = ()
    """Per block the number of its stage, where the plan is changed by hand."""
    changing: bool = False
    """Whether runs are moved by hand."""
    pins: tuple[tuple[int, int], ...] = ()
    """Runs, as block and micro-batch, that stay where they are."""
    circle: tuple[tuple[int, int], ...] = ()
    """Runs of which each waits for the next, and the last for the first."""
    verdict: str = ""
    """What the last change by hand did, or why it was not made."""
    refused: bool = False

    def header(self, which: int) -> dict[str, Any]:
        """The part of the header of one schedule that says so."""
        return {name: value for name, value in {**asdict(self), "past": which in self.past}.items() if value}


def timeline_data(shown: Sequence[Titled], *, memory: bool = True, look: Look | None = None) -> bytes:
    """Everything that the timeline shows of some schedules, framed as above, with or without lanes of memory.

    All must be in the same unit of time; a title is shown where there are several.
    """
    frames, look = list[bytes](), look or Look()
    for which, (title, schedule) in enumerate(shown):
        lanes = len(schedule.plan.devices)
        sized = {"title": title, **heights(lanes, lanes, len(shown), memory=memory), **look.header(which)}
        frames.append(framed(_header(schedule), _columns(schedule), sized))
    return b"".join(frames)


def timeline_frames(data: bytes) -> list[tuple[dict[str, Any], dict[str, NDArray[Any]]]]:
    """The header and the columns of each schedule in such a buffer, starts as ticks again."""
    frames, begin = [], 0
    while begin < len(data):
        size = int.from_bytes(data[begin : begin + 4], "little")
        header = json.loads(data[begin + 4 : begin + 4 + size])
        columns, begin = {}, begin + 4 + size
        for name, dtype, length in header["columns"]:
            columns[name] = np.frombuffer(data, dtype, length, begin)
            begin += length * np.dtype(dtype).itemsize
            begin += -begin % _ALIGNED
        frames.append((header, {**columns, "start": np.cumsum(columns["start"].astype(np.int64))}))
    return frames


def timeline_height(data: bytes, *, tools: bool = True) -> int:
    """Pixels of the whole component, so that the page keeps its room before anything is drawn."""
    looks = [header for header, _ in timeline_frames(data)]
    pixels = (_TOOLS if tools else _LEGEND + _VERDICT * ("moves" in looks[0])) + _MAP
    for look in looks:
        devices = len(look["devices"])
        pixels += _AXIS + len(look.get("lanes", look["devices"])) * look["laneHeight"] + devices * look["memoryHeight"]
        pixels += _MEMORY_TITLE * bool(look["memoryHeight"]) + _HEADING * (len(looks) > 1)
    return pixels


def heights(lanes: int, stores: int, count: int = 1, *, memory: bool = True) -> dict[str, int]:
    """Pixels of a lane of work and of one of memory, of which there are so many.

    Some dozens fit a screen, a hundred are named, and more become thin lines.  Several schedules share the screen, so
    that up to three are seen at once.
    """
    room, named = _MOST_PIXELS // min(3, count), _TALLEST // 2
    whole = lanes * _WORK_LANE + stores * _MEMORY_LANE * memory

    def height(most: int, of: int) -> int:
        return max(_LEAST_LANE, min(most, max(most * room // whole, min(_NAMED_LANE, named // of))))

    return {"laneHeight": height(_WORK_LANE, lanes), "memoryHeight": height(_MEMORY_LANE, stores) if memory else 0}


def colours_of(called: Callable[[BlockKind], str] = str) -> dict[str, Any]:
    """The part of a header that says how each kind is called and drawn."""
    return {
        "kinds": [[called(kind), KIND_COLOURS[kind]] for kind in BlockKind],
        "slots": [slot_colour(slot) for slot in range(SLOTS)],
        "memoryColours": {"held": HELD, "static": STATIC, "limit": LIMIT},
    }


def _columns(schedule: Schedule) -> dict[str, NDArray[Any]]:
    columns: dict[str, NDArray[Any]] = {
        "block": narrow(schedule.block),
        "micro_batch": narrow(schedule.micro_batch),
        "start": narrow(np.diff(schedule.start, prepend=0)),
    }
    if schedule.repetend is not None:
        phases = {phase: number for number, phase in enumerate(Phase)}
        columns["phase"] = np.array([phases[phase] for phase in schedule.phase.tolist()], dtype=np.uint8)
    return columns


def narrow(values: NDArray[np.int64]) -> NDArray[Any]:
    """The values in the fewest bytes that hold them all, as float64 beyond 32 bits; exact up to 2^53."""
    most = int(values.max(initial=0))
    for width in _WIDTHS:
        if most <= np.iinfo(width).max and int(values.min(initial=0)) >= 0:
            return values.astype(width)
    return values.astype(np.float64)


def framed(header: dict[str, Any], columns: Mapping[str, NDArray[Any]], look: Mapping[str, Any]) -> bytes:
    """One frame; equal schedules have one digest, however they look."""
    header["columns"] = [[name, column.dtype.str, len(column)] for name, column in columns.items()]
    body = b"".join(_padded(column.tobytes()) for column in columns.values())
    header["digest"] = sha256(json.dumps(header).encode() + body).hexdigest()[:16]
    text = json.dumps({**header, **look}, ensure_ascii=False).encode("utf-8", "replace")
    text += b" " * (-(4 + len(text)) % _ALIGNED)
    return len(text).to_bytes(4, "little") + text + body


def _padded(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % _ALIGNED)


def _header(schedule: Schedule) -> dict[str, Any]:
    plan = schedule.plan
    kinds = list(BlockKind)
    chunks = chunks_of(plan)
    return {
        "devices": [
            {"name": device.name, "capacity": device.memory_capacity, "static": device.static_memory}
            for device in plan.devices
        ],
        "blocks": [
            {
                "name": block.name,
                "kind": kinds.index(block.kind),
                "chunk": chunk,
                "duration": block.duration,
                "memory": block.memory,
                "devices": sorted(block.devices),
                **({"title": block.title} if block.title != block.name else {}),
            }
            for block, chunk in zip(plan.blocks, chunks, strict=True)
        ],
        "dependencies": [list(arc) for arc in plan.arcs],
        "microBatches": schedule.micro_batches,
        "makespan": schedule.makespan,
        "timeUnit": plan.time_unit,
        "memoryUnit": plan.memory_unit,
        "steady": _steady(schedule),
        "misfit": _misfit(schedule),
        **colours_of(),
    }


def chunks_of(plan: MicroBatchPlan) -> list[int]:
    """Per block, how many blocks of its kind come before it on its first device: the model chunks of interleaving."""
    seen: dict[tuple[BlockKind, int], int] = {}
    chunks = [0] * len(plan.blocks)
    for b in plan.topological_order:
        place = plan.blocks[b].kind, min(plan.blocks[b].devices)
        chunks[b] = seen[place] = seen.get(place, -1) + 1
    # Backward blocks meet the chunks of their device in reverse.
    for b, block in enumerate(plan.blocks):
        if block.kind in (BlockKind.BACKWARD, BlockKind.WEIGHT):
            chunks[b] = seen[block.kind, min(block.devices)] - chunks[b]
    return chunks


def _steady(schedule: Schedule) -> dict[str, Any] | None:
    """The stretch that repeats: its ends on every device, over all of them, and what to call it."""
    if schedule.repetend is None:
        return None
    steady, repeats = schedule.repetend, schedule.phase == Phase.REPETEND
    if not repeats.any():
        return None
    per = f" for {steady.unroll} micro-batches" if steady.unroll > 1 else ""
    return {
        "period": steady.period,
        "windows": [list(window) for window in schedule.repetend_windows],
        "opens": int(schedule.start[repeats].min()),
        "closes": int(schedule.end[repeats].max()),
        "title": f"{Phase.REPETEND.words}: every {show_time(steady.period, schedule.plan.time_unit)}{per}",
    }


def _misfit(schedule: Schedule) -> str:
    devices, peaks = schedule.plan.devices, MemoryProfile.of(schedule).peaks
    held = [(each.name, peak, each.memory_capacity) for each, peak in zip(devices, peaks, strict=True)]
    return misfit(held, schedule.plan.memory_unit)


def misfit(held: Iterable[tuple[str, float, float | None]], unit: str = "B") -> str:
    """The device that exceeds its capacity most, in a sentence, of (name, what it holds, capacity); else empty."""
    over = [(amount - limit, name, amount, limit) for name, amount, limit in held if limit is not None]
    exceeds, name, amount, limit = max(over, key=lambda each: each[0], default=(0, "", 0, 0))
    text = f"does not fit: {name} would hold {show_memory(amount, unit)} of {show_memory(limit, unit)}"
    return text if exceeds > 0 else ""
