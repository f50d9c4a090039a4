"""Schedules as one buffer of bytes for the browser's timeline.

Each schedule is a frame: the length of a header (32 bits, little endian), the header (JSON), then the columns that it
names, each aligned to eight bytes. A row is a run, in order of start. Starts are stored as differences to the previous
row, because nanoseconds overflow 32 bits and their differences rarely do. The browser computes ends, lanes and memory
from the plan in the header, so 200,000 runs take one or two megabytes.
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
from tessel_core.model import Block, BlockKind, MemoryProfile, MicroBatchPlan, Phase, Schedule
from tessel_core.units import show_memory, show_time

Titled = tuple[str, Schedule]

_ALIGNMENT = 8
"""Number of bytes to which columns are aligned. A browser reads float64 columns only at aligned addresses."""
_WIDTHS = (np.uint8, np.uint16, np.uint32)

_ALL_LANES, _WORK_LANE, _MEMORY_LANE = 640, 30, 24
"""Largest height in pixels of all lanes together (if names stay readable), of a work lane, and of a memory lane."""
_NAMED_LANE, _MIN_LANE, _TALLEST = 12, 2, 1_600
"""Least height in pixels of a lane with a name, and of any lane; largest height of all named lanes."""
_TOOLS, _LEGEND, _VERDICT, _MAP, _AXIS, _MEMORY_TITLE, _HEADING = 264, 34, 20, 30, 52, 30, 28
"""Heights in pixels of toolbar and details, legend, message after a drop, overview, time axis, and titles."""


@dataclass(frozen=True, slots=True)
class Look:
    """Settings of the timeline. Settings that differ from the defaults go into the header."""

    quiet: bool = False
    """Whether zoom and selection stay in the browser, instead of going to the server and into the page's address."""
    past: frozenset[int] = frozenset()
    """Numbers of the schedules that are drawn pale, because a newer one is being computed."""
    stages: tuple[int, ...] = ()
    """Stage of each block, if the plan can be changed by hand."""
    changing: bool = False
    """Whether runs can be moved by hand."""
    pins: tuple[tuple[int, int], ...] = ()
    """Pinned runs, as block and micro-batch."""
    circle: tuple[tuple[int, int], ...] = ()
    """Runs that wait for each other in a circle."""
    verdict: str = ""
    """Effect of the latest change by hand, or why it was refused."""
    refused: bool = False

    def header(self, which: int) -> dict[str, Any]:
        """Return these settings as fields of the header of one schedule."""
        return {name: value for name, value in {**asdict(self), "past": which in self.past}.items() if value}


def timeline_data(shown: Sequence[Titled], *, memory: bool = True, look: Look | None = None) -> bytes:
    """Return the data of some schedules for the timeline, with or without memory lanes.

    All must have the same time unit. Titles are shown if there are several schedules.
    """
    frames, look = list[bytes](), look or Look()
    for which, (title, schedule) in enumerate(shown):
        lanes = len(schedule.plan.devices)
        sized = {"title": title, **heights(lanes, lanes, len(shown), memory=memory), **look.header(which)}
        frames.append(framed(_header(schedule), _columns(schedule), sized))
    return b"".join(frames)


def timeline_frames(data: bytes) -> list[tuple[dict[str, Any], dict[str, NDArray[Any]]]]:
    """Return the header and the columns of each schedule in a buffer. Starts are absolute ticks."""
    frames, begin = [], 0
    while begin < len(data):
        size = int.from_bytes(data[begin : begin + 4], "little")
        header = json.loads(data[begin + 4 : begin + 4 + size])
        columns, begin = {}, begin + 4 + size
        for name, dtype, length in header["columns"]:
            columns[name] = np.frombuffer(data, dtype, length, begin)
            begin += length * np.dtype(dtype).itemsize
            begin += -begin % _ALIGNMENT
        frames.append((header, {**columns, "start": np.cumsum(columns["start"].astype(np.int64))}))
    return frames


def timeline_height(data: bytes, *, tools: bool = True) -> int:
    """Return the height of the component in pixels, so that the page can reserve it."""
    looks = [header for header, _ in timeline_frames(data)]
    pixels = (_TOOLS if tools else _LEGEND + _VERDICT * ("moves" in looks[0])) + _MAP
    for look in looks:
        devices = len(look["devices"])
        pixels += _AXIS + len(look.get("lanes", look["devices"])) * look["laneHeight"] + devices * look["memoryHeight"]
        pixels += _MEMORY_TITLE * bool(look["memoryHeight"]) + _HEADING * (len(looks) > 1)
    return pixels


def heights(lanes: int, stores: int, count: int = 1, *, memory: bool = True) -> dict[str, int]:
    """Return the heights of a work lane and of a memory lane in pixels.

    A few dozen lanes fit on a screen, about a hundred have names, and more become thin lines. Up to three of `count`
    schedules share the screen.
    """
    room, named = _ALL_LANES // min(3, count), _TALLEST // 2
    whole = lanes * _WORK_LANE + stores * _MEMORY_LANE * memory

    def height(most: int, of: int) -> int:
        return max(_MIN_LANE, min(most, max(most * room // whole, min(_NAMED_LANE, named // of))))

    return {"laneHeight": height(_WORK_LANE, lanes), "memoryHeight": height(_MEMORY_LANE, stores) if memory else 0}


def colours_of(called: Callable[[BlockKind], str] = str) -> dict[str, Any]:
    """Return names and colours of the kinds of blocks, as a field of the header."""
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
    """Return the values in the smallest unsigned type that holds them.

    Values beyond 32 bits become float64, which is exact up to 2^53.
    """
    most = int(values.max(initial=0))
    for width in _WIDTHS:
        if most <= np.iinfo(width).max and int(values.min(initial=0)) >= 0:
            return values.astype(width)
    return values.astype(np.float64)


def framed(header: dict[str, Any], columns: Mapping[str, NDArray[Any]], look: Mapping[str, Any]) -> bytes:
    """Return the bytes of one schedule.

    The digest in them does not depend on `look`, so equal schedules have equal digests.
    """
    header["columns"] = [[name, column.dtype.str, len(column)] for name, column in columns.items()]
    body = b"".join(_padded(column.tobytes()) for column in columns.values())
    header["digest"] = sha256(json.dumps(header).encode() + body).hexdigest()[:16]
    text = json.dumps({**header, **look}, ensure_ascii=False).encode("utf-8", "replace")
    text += b" " * (-(4 + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(4, "little") + text + body


def _padded(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % _ALIGNMENT)


def _header(schedule: Schedule) -> dict[str, Any]:
    return {
        **plan_header(schedule.plan, schedule.micro_batches),
        "makespan": schedule.makespan,
        "steady": _steady(schedule),
        "misfit": _misfit(schedule),
        **colours_of(),
    }


def plan_header(plan: MicroBatchPlan, micro_batches: int) -> dict[str, Any]:
    """Return the fields of a header that describe a plan. The browser needs them to check its rules."""
    return {
        "devices": [
            {"name": device.name, "capacity": device.memory_capacity, "static": device.static_memory}
            for device in plan.devices
        ],
        "blocks": [
            block_entry(block.name, block.kind, chunk, block.duration, block.memory, sorted(block.devices))
            | title_of(block)
            for block, chunk in zip(plan.blocks, chunks_of(plan), strict=True)
        ],
        "dependencies": [list(arc) for arc in plan.arcs],
        "microBatches": micro_batches,
        "timeUnit": plan.time_unit,
        "memoryUnit": plan.memory_unit,
    }


def block_entry(
    name: str, kind: BlockKind, chunk: int, duration: float = 0, memory: float = 0, devices: Sequence[int] = ()
) -> dict[str, Any]:
    """Return a block in the header of a timeline."""
    numbers = {"kind": list(BlockKind).index(kind), "chunk": chunk, "duration": duration, "memory": memory}
    return {"name": name, **numbers, "devices": list(devices)}


def title_of(block: Block) -> dict[str, str]:
    """Return the field with the title of a block. Empty if the title is the name."""
    return {"title": block.title} if block.title != block.name else {}


def chunks_of(plan: MicroBatchPlan) -> list[int]:
    """Return the model chunk of each block: the number of earlier blocks of its kind on its first device."""
    seen: dict[tuple[BlockKind, int], int] = {}
    chunks = [0] * len(plan.blocks)
    for b in plan.topological_order:
        place = plan.blocks[b].kind, min(plan.blocks[b].devices)
        chunks[b] = seen[place] = seen.get(place, -1) + 1
    # Backward blocks pass the chunks of a device in reverse order.
    for b, block in enumerate(plan.blocks):
        if block.kind in (BlockKind.BACKWARD, BlockKind.WEIGHT):
            chunks[b] = seen[block.kind, min(block.devices)] - chunks[b]
    return chunks


def _steady(schedule: Schedule) -> dict[str, Any] | None:
    """Return the repetend, the part of the schedule that repeats.

    The result has its period, its ends on each device and over all devices, and its title.
    """
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
        "title": f"{Phase.REPETEND}: every {show_time(steady.period, schedule.plan.time_unit)}{per}",
    }


def _misfit(schedule: Schedule) -> str:
    devices, peaks = schedule.plan.devices, MemoryProfile.of(schedule).peaks
    held = [(each.name, peak, each.memory_capacity) for each, peak in zip(devices, peaks, strict=True)]
    return misfit(held, schedule.plan.memory_unit)


def misfit(held: Iterable[tuple[str, float, float | None]], unit: str = "B") -> str:
    """Return a sentence on the device that exceeds its capacity most.

    Empty if no device does. The arguments give name, memory held and capacity of each device.
    """
    over = [(amount - limit, name, amount, limit) for name, amount, limit in held if limit is not None]
    exceeds, name, amount, limit = max(over, key=lambda each: each[0], default=(0, "", 0, 0))
    text = f"does not fit: {name} would hold {show_memory(amount, unit)} of {show_memory(limit, unit)}"
    return text if exceeds > 0 else ""
