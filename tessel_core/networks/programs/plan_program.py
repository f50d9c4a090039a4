"""Any schedule of any micro-batch plan as a distributed program, which simulates to that schedule."""

from __future__ import annotations

import re
from collections import defaultdict, deque

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.program import AttributeValue, Program, Tag
from tessel_core.ir.types import TensorType
from tessel_core.model import Block, MicroBatchPlan, Schedule
from tessel_core.model.schedule import runs_in_order
from tessel_core.rules import check_schedule
from tessel_core.units import TICKS_PER_SECOND

WAIT = "wait"
"""Phase of a delay that only keeps a run from starting before the schedule has it start."""

_SPEAKABLE = re.compile(r"[A-Za-z0-9_.'/-]+")
"""Names that the text form of programs can write."""

Run = tuple[int, int]
"""Block and micro-batch."""


def schedule_program(schedule: Schedule, *, idle: bool = True) -> Program:
    """A `block` for every run, in order of start, and a `delay` for every lag and for every start later than needed.

    Lags come right after the run that makes what is late.  Without `idle` a run starts as early as the order of its
    devices and its dependencies let it, whatever its start in the schedule.

    Device d of the plan is device d + 1.  Its static memory is an input there.  What a block acquires is a tensor for
    each block that releases it, first acquired, first released; it is held from the start of the one to the end of the
    other.  A unit of memory is a byte, and an abstract unit of time a second.

    Raises InputError where the schedule breaks a rule other than that of memory.
    """
    broken = check_schedule(schedule, without=("memory",))
    if broken:
        raise InputError(broken[0].where, broken[0].why)
    return _Lowering(schedule, idle=idle).program()


class _Lowering:
    def __init__(self, schedule: Schedule, *, idle: bool) -> None:
        self._schedule, self._plan, self._idle = schedule, schedule.plan, idle
        self._per_second = TICKS_PER_SECOND.get(schedule.plan.time_unit, 1.0)
        self._names = _block_names(schedule.plan)
        self._build = ProgramBuilder(schedule.plan.name)
        self._static = [
            self._build.input(f"static{d}", TensorType("int8", (device.static_memory,), d + 1))
            for d, device in enumerate(schedule.plan.devices)
        ]
        self._arrived: dict[Run, list[tuple[int, int]]] = defaultdict(list)
        """Per run, when what it depends on has ended and its lag is over, and a value that is ready then."""
        self._last: dict[int, tuple[int, int]] = {d: (0, value) for d, value in enumerate(self._static)}
        """Per device, when its last run so far ends, and a value that is ready then."""
        self._held: dict[Run, list[int]] = defaultdict(list)
        """Per run, the tensors that it releases."""

    def program(self) -> Program:
        pieces = _pieces(self._schedule)
        for b, m, start in runs_in_order(self._schedule):
            self._run(b, m, start, pieces[b, m])
        return self._build.finish(sorted({value for _, value in self._last.values()} - set(self._static)))

    def _run(self, b: int, m: int, start: int, pieces: list[tuple[int, int, int]]) -> None:
        block = self._plan.blocks[b]
        taken = [self._static[d] for d in block.devices] + self._awaited(b, m, start) + self._held.pop((b, m), [])
        attributes: dict[str, AttributeValue] = {
            "bytes": tuple(size for _, size, _ in pieces),
            "devices": tuple(d + 1 for d in block.devices),
            "on": tuple(d + 1 for d, _, _ in pieces),
            "seconds": block.duration / self._per_second,
        }
        tag, name = self._tag(b, m), f"{self._names[b]}.m{m}"
        named = [name, *(f"{name}.held{i}" for i in range(len(pieces)))]
        done, *held = self._build.append("block", taken, tuple(attributes.items()), tag, named)
        self._hand_on(b, m, start + block.duration, done)
        for (_, _, releasing), value in zip(pieces, held, strict=True):
            self._held[releasing, m].append(value)
        for d in block.devices:
            self._last[d] = start + block.duration, done

    def _hand_on(self, b: int, m: int, end: int, done: int) -> None:
        """Tell the runs that depend on this one, after a lag or on another device by a delay."""
        for after, lag in self._plan.successors[b]:
            block = self._plan.blocks[after]
            near = self._build.type_of(done).device - 1 in block.devices
            self._arrived[after, m].append(
                (end + lag, done if near and not lag else self._delay(done, lag, block, after, m))
            )

    def _awaited(self, b: int, m: int, start: int) -> list[int]:
        """What the run depends on, where it has to be; one more where it waits for nothing."""
        block, arrived = self._plan.blocks[b], self._arrived.pop((b, m), [])
        found = [value for _, value in arrived]
        latest, value = max([*(self._last[d] for d in block.devices), *arrived], key=lambda each: each[0])
        if start > latest and self._idle:
            found.append(self._delay(value, start - latest, block, b, m, WAIT))
        return found

    def _delay(self, value: int, ticks: int, block: Block, b: int, m: int, phase: str = "") -> int:
        """A value so many ticks later, on the block's first device, with the tag of run (b, m)."""
        tag, seconds = self._tag(b, m, phase), ticks / self._per_second
        return self._build.one("delay", [value], tag, seconds=seconds, to=block.devices[0] + 1)

    def _tag(self, b: int, m: int, phase: str = "") -> Tag:
        block = self._plan.blocks[b]
        return Tag(block.devices[0], m, phase or str(block.kind))


def _pieces(schedule: Schedule) -> dict[Run, list[tuple[int, int, int]]]:
    """Per run, what it acquires as (device, amount, block that releases it).

    A well-formed plan never releases what the micro-batch does not hold there, in any order of its dependencies.
    """
    found: dict[Run, list[tuple[int, int, int]]] = defaultdict(list)
    blocks = schedule.plan.blocks
    held: dict[Run, deque[tuple[int, int]]] = defaultdict(deque)
    """Per device and micro-batch, (block, amount) that is still to be released."""
    for b, m, _ in runs_in_order(schedule):
        for d in blocks[b].devices:
            if blocks[b].memory > 0:
                held[d, m].append((b, blocks[b].memory))
            left = -blocks[b].memory
            while left > 0:
                acquired, amount = held[d, m].popleft()
                size = min(amount, left)
                found[acquired, m].append((d, size, b))
                left -= size
                if size < amount:
                    held[d, m].appendleft((acquired, amount - size))
    return found


def _block_names(plan: MicroBatchPlan) -> list[str]:
    """The blocks' names, or where a program could not say one of them, their numbers."""
    names = [block.name for block in plan.blocks]
    return names if all(map(_SPEAKABLE.fullmatch, names)) else [f"block{b}" for b in range(len(names))]
