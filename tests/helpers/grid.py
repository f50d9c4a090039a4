"""Schedules as text grids: one line per device, one cell per tick."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

from tessel_core.errors import InputError
from tessel_core.model import BlockKind, MicroBatchPlan, Schedule
from tessel_core.model.schedule import runs_in_order

IDLE = ".."
_LETTERS = {BlockKind.FORWARD: "F", BlockKind.BACKWARD: "B", BlockKind.WEIGHT: "W", BlockKind.OTHER: "O"}
_WIDEST = 5_000


def grid_text(schedule: Schedule) -> str:
    """Return the schedule as text: `gpu0 | F0 F1 .. B0 B0 B0`, one cell per tick, repeated while a run lasts.

    A cell is the letter of the kind and the micro-batch if a device has one block of that kind.  Otherwise it is
    `block:micro_batch`, with "_" for blanks in the name of the block.

    Raises InputError if the makespan is too long for a grid.
    """
    if schedule.makespan > _WIDEST:
        raise InputError("grid", f"a makespan of {schedule.makespan} ticks is more than the {_WIDEST} a grid can show")
    cells = [[IDLE] * schedule.makespan for _ in schedule.plan.devices]
    labels = [_labels(schedule.plan, d) for d in range(len(schedule.plan.devices))]
    for block, micro_batch, start in runs_in_order(schedule):
        for device in schedule.plan.blocks[block].devices:
            for tick in range(start, start + schedule.plan.blocks[block].duration):
                cells[device][tick] = f"{labels[device][block]}{micro_batch}"
    width = max((len(cell) for row in cells for cell in row), default=2)
    margin = max(len(device.name) for device in schedule.plan.devices)
    lines = [
        f"{device.name:<{margin}} | " + " ".join(f"{cell:<{width}}" for cell in row).rstrip()
        for device, row in zip(schedule.plan.devices, cells, strict=True)
    ]
    return "\n".join(lines) + "\n"


def read_grid(text: str, plan: MicroBatchPlan) -> Schedule:
    """Read a schedule of `plan` that `grid_text` wrote.

    Raises InputError with line and cell if the plan has no such cell, or another line contradicts it.
    """
    starts: dict[tuple[int, int], int] = {}
    filled: Counter[tuple[tuple[int, int], int]] = Counter()
    names = {device.name: d for d, device in enumerate(plan.devices)}
    for number, line in enumerate(filter(str.strip, text.splitlines()), 1):
        where, (name, bar, cells) = f"grid line {number}", line.partition("|")
        device = names.get(name.strip())
        if not bar or device is None:
            raise InputError(where, f"must begin with a device of the plan and '|', got {name.strip()!r}")
        named = {label: b for b, label in _labels(plan, device).items()}
        for tick, cell in enumerate(cells.split()):
            if cell == IDLE:
                continue
            match = re.fullmatch(r"(.*?\D)(\d+)", cell)
            if match is None or match[1] not in named:
                raise InputError(where, f"cell {tick} {cell!r} names no block of {name.strip()}")
            run = named[match[1]], int(match[2])
            start = starts.setdefault(run, tick)
            filled[run, device] += 1
            if not start <= tick < start + plan.blocks[run[0]].duration:
                raise InputError(where, f"cell {tick} {cell!r} lies outside its run, which starts at {start}")
    if not starts:
        raise InputError("grid", "it holds no run")
    _check_filled(plan, starts, filled)
    block, micro_batch = np.array(list(starts), dtype=np.int64).T
    start_column = np.array(list(starts.values()), dtype=np.int64)
    return Schedule(plan, int(micro_batch.max()) + 1, block, micro_batch, start_column)


def _check_filled(
    plan: MicroBatchPlan, runs: Iterable[tuple[int, int]], filled: Counter[tuple[tuple[int, int], int]]
) -> None:
    for b, m in runs:
        block = plan.blocks[b]
        for device in block.devices:
            cells = filled[(b, m), device]
            if cells != block.duration:
                where = f"block {block.name} of micro-batch {m} fills {cells} cells on {plan.devices[device].name}"
                raise InputError("grid", f"{where}, it lasts {block.duration}")


def _labels(plan: MicroBatchPlan, device: int) -> dict[int, str]:
    here = {b: plan.blocks[b] for b in plan.blocks_on[device]}
    count = Counter(block.kind for block in here.values())
    return {
        b: _LETTERS[each.kind] if count[each.kind] == 1 else f"{'_'.join(each.name.split())}:"
        for b, each in here.items()
    }
