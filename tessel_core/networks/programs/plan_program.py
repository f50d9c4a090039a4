"""Convert a schedule of any micro-batch plan to a program. A simulation of the program gives that schedule."""

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
"""Phase of a delay that keeps a run from starting earlier than in the schedule."""

_VALID_NAME = re.compile(r"[A-Za-z0-9_.'/-]+")
"""Names that are allowed in the text of programs."""

Run = tuple[int, int]
"""Block and micro-batch."""


def schedule_program(schedule: Schedule, *, idle: bool = True) -> Program:
    """Convert a schedule to a program: a `block` for every run in order of start, and a `delay` for every lag.

    With `idle`, a further `delay` keeps a run from starting earlier than in the schedule. Without `idle`, runs start as
    early as their dependencies and the order of runs on their devices allow.

    Device d of the plan becomes device d + 1, and its static memory becomes an input there. The memory that a block
    acquires becomes one tensor for each block that releases some of it, first in, first out. The tensor lives from the
    start of the acquiring block to the end of the releasing block. One unit of memory is a byte, and one abstract unit
    of time is a second.

    Raises InputError if the schedule breaks a rule other than the memory limit.
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
        """For each run and each of its dependencies: when it is met (including lag), and a value available then."""
        self._last: dict[int, tuple[int, int]] = {d: (0, value) for d, value in enumerate(self._static)}
        """For each device: the end of its latest run, and a value that becomes available then."""
        self._held: dict[Run, list[int]] = defaultdict(list)
        """For each run, the tensors that it releases."""

    def program(self) -> Program:
        """Return the program of the schedule."""
        pieces = _acquired(self._schedule)
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
        self._pass_token(b, m, start + block.duration, done)
        for (_, _, releasing), value in zip(pieces, held, strict=True):
            self._held[releasing, m].append(value)
        for d in block.devices:
            self._last[d] = start + block.duration, done

    def _pass_token(self, b: int, m: int, end: int, done: int) -> None:
        """Pass the token of a run to its successors. It passes through a delay if there is a lag or another device."""
        for after, lag in self._plan.successors[b]:
            block = self._plan.blocks[after]
            near = self._build.type_of(done).device - 1 in block.devices
            self._arrived[after, m].append(
                (end + lag, done if near and not lag else self._delay(done, lag, block, after, m))
            )

    def _awaited(self, b: int, m: int, start: int) -> list[int]:
        """Return the tokens for which a run waits.

        A further token delays a run that starts later than its dependencies allow.
        """
        block, arrived = self._plan.blocks[b], self._arrived.pop((b, m), [])
        tokens = [value for _, value in arrived]
        latest, value = max([*(self._last[d] for d in block.devices), *arrived], key=lambda each: each[0])
        if start > latest and self._idle:
            tokens.append(self._delay(value, start - latest, block, b, m, WAIT))
        return tokens

    def _delay(self, value: int, ticks: int, block: Block, b: int, m: int, phase: str = "") -> int:
        """Add a delay of `ticks` to a value, on the block's first device, with the tag of run (b, m)."""
        tag, seconds = self._tag(b, m, phase), ticks / self._per_second
        return self._build.one("delay", [value], tag, seconds=seconds, to=block.devices[0] + 1)

    def _tag(self, b: int, m: int, phase: str = "") -> Tag:
        block = self._plan.blocks[b]
        return Tag(block.devices[0], m, phase or str(block.kind))


def _acquired(schedule: Schedule) -> dict[Run, list[tuple[int, int, int]]]:
    """Return, for each run, the memory that it acquires, as (device, amount, block that releases it).

    In a well-formed plan, a block releases only memory that the micro-batch holds on the device, whatever the order of
    blocks.
    """
    acquires: dict[Run, list[tuple[int, int, int]]] = defaultdict(list)
    blocks = schedule.plan.blocks
    held: dict[Run, deque[tuple[int, int]]] = defaultdict(deque)
    """For each micro-batch and device, amounts that are still to be released, as (block, amount)."""
    for b, m, _ in runs_in_order(schedule):
        for d in blocks[b].devices:
            if blocks[b].memory > 0:
                held[d, m].append((b, blocks[b].memory))
            left = -blocks[b].memory
            while left > 0:
                acquired, amount = held[d, m].popleft()
                size = min(amount, left)
                acquires[acquired, m].append((d, size, b))
                left -= size
                if size < amount:
                    held[d, m].appendleft((acquired, amount - size))
    return acquires


def _block_names(plan: MicroBatchPlan) -> list[str]:
    """Return the names of the blocks. If one is not allowed in the text of programs, return numbered names."""
    names = [block.name for block in plan.blocks]
    return names if all(map(_VALID_NAME.fullmatch, names)) else [f"block{b}" for b in range(len(names))]
