"""A placement as data for the timeline: one lane per device, with its operators one after another.

A run is an operator, or a group of operators on one device, grouped as in the drawing. Forward runs come first, then
backward runs, transfers, and the reduction of gradients. The length of a lane is the load of its device for one sample.
Each replica of a stage has a lane with its share of the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tessel_core.charts.graph.groups import Mark, MarkedGraph, short_name
from tessel_core.charts.timeline import Look, block_entry, colours_of, framed, heights, misfit, narrow
from tessel_core.editing.placement import Movable
from tessel_core.model import BlockKind, Placement, PlacementLoads
from tessel_core.rules.placement_referee import with_rounding
from tessel_core.units import TICKS_PER_SECOND

_TIME_UNIT = "ns"
_TRANSFERS, _REDUCTION = "transfers", "gradient reduction"
_KINDS = {BlockKind.OTHER: _TRANSFERS}
_MAX_REASONS, _MAX_SUBGRAPH_CHECKS = 200_000, 1_000_000
"""Limits up to which pieces can be dragged.

The first limits pieces × devices. With subgraphs, the second limits pieces × devices × operators.
"""
_MAX_NAMED = 3
_ROUNDING = 1e-12
"""Share of all communication below which a difference is a rounding error."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One bar of the picture: the operators of a mark that run on one device."""

    mark: Mark
    operators: tuple[int, ...]
    device: int
    stage: int = 0
    """Number of the stage, if a device has several stages."""


def pieces_of(placement: Placement, marks: MarkedGraph) -> tuple[Piece, ...]:
    """Return all pieces in the order of the marks, forward pieces first.

    If devices have several stages, a lane has the stages in order, and in reverse order for the backward pass.
    """
    found, stage_of = dict[tuple[int, int, int], list[int]](), placement.stages or (0,) * len(placement.assignment)
    for number, mark in enumerate(marks.marks):
        for i in mark.members:
            for device in placement.assignment[i]:
                found.setdefault((number, device, stage_of[i]), []).append(i)
    pieces = [
        Piece(marks.marks[number], tuple(members), device, stage) for (number, device, stage), members in found.items()
    ]
    return tuple(sorted(pieces, key=lambda piece: (piece.mark.backward, _way(piece))))


def _way(piece: Piece) -> int:
    """Return a sort key that gives the order in which a micro-batch passes the stages."""
    return -piece.stage if piece.mark.backward else piece.stage


def placement_data(
    movable: Movable,
    marks: MarkedGraph,
    *,
    bound: float | None = None,
    look: Look | None = None,
    fixed: bool = False,
) -> bytes:
    """Return the data of a placement for the timeline, in the format of `timeline_data`.

    `bound` is the proved lower bound on the largest load, in the graph's unit. A user can drag a piece, unless pieces
    are `fixed` or too many. For this, the data states which other pieces move along, and which devices the piece cannot
    move to.
    """
    placement, pieces = movable.placement, pieces_of(movable.placement, marks)
    loads, unit = PlacementLoads.of(placement), placement.graph.time_unit
    ticks = TICKS_PER_SECOND[_TIME_UNIT] / TICKS_PER_SECOND[unit] if unit in TICKS_PER_SECOND else 1.0
    blocks = [_block(placement, piece, ticks) for piece in pieces]
    for d, (talking, reducing) in enumerate(zip(loads.communication, loads.reduction, strict=True)):
        parts = ((_TRANSFERS, talking - reducing), (_REDUCTION, reducing))
        shown = [(name, ticks * time) for name, time in parts if time > _ROUNDING * talking]
        blocks += [block_entry(name, BlockKind.OTHER, 0, lasts, devices=(d,)) for name, lasts in shown]
    starts, free = np.zeros(len(blocks)), [0.0] * len(placement.devices)
    for row, block in enumerate(blocks):
        (device,) = block["devices"]
        starts[row], free[device] = free[device], free[device] + block["duration"]
    order = np.argsort(starts, kind="stable")
    held = [
        (lane_name(placement, d), loads.memory[d], each.memory_capacity) for d, each in enumerate(placement.devices)
    ]
    header = {
        "devices": [{"name": name, "capacity": capacity, "static": amount} for name, amount, capacity in held],
        "blocks": blocks,
        "dependencies": [],
        "microBatches": 1,
        "makespan": ticks * loads.largest,
        "bound": None if bound is None else ticks * bound,
        "timeUnit": _TIME_UNIT if unit in TICKS_PER_SECOND else unit,
        "memoryUnit": "B",
        "steady": None,
        "misfit": misfit((name, amount, limit and with_rounding(limit)) for name, amount, limit in held),
        **colours_of(lambda kind: _KINDS.get(kind, str(kind))),
    }
    columns = {
        "block": narrow(order.astype(np.int64)),
        "micro_batch": narrow(np.zeros(len(blocks), np.int64)),
        "start": np.diff(starts[order], prepend=0.0),
    }
    usual: dict[str, Any] = {} if look is None else look.header(0)
    lanes, moves = len(placement.devices), {} if fixed else _moves(movable, pieces)
    return framed(header, columns, {"title": "", **heights(lanes, lanes, memory=False), **moves, **usual})


def lane_name(placement: Placement, device: int) -> str:
    """Return the name of a device, with the number of its replica, such as "gpu2 2/4"."""
    stage, name = placement.stage_at(device), placement.devices[device].name
    return name if len(stage) == 1 else f"{name} {stage.index(device) + 1}/{len(stage)}"


def _block(placement: Placement, piece: Piece, ticks: float) -> dict[str, Any]:
    kind = BlockKind.BACKWARD if piece.mark.backward else BlockKind.FORWARD
    on = placement.devices[piece.device].kind
    times = ((i, placement.graph.operators[i].time_on(on) or 0.0) for i in piece.operators)
    work = sum(time / placement.replicas(i) for i, time in times)
    first = placement.graph.operators[piece.operators[0]]
    shown = {} if piece.mark.key else {"short": short_name(first.forward_of or first.name)}
    drawn = block_entry(piece.mark.name, kind, 0, ticks * work, devices=(piece.device,)) | shown
    if placement.stages is None:
        return drawn
    there = sorted({placement.stages[i] for i in placement.operators_on[piece.device]})
    short = shown.get("short", piece.mark.name)
    named = {"name": f"stage {piece.stage}: {piece.mark.name}", "short": f"{piece.stage}: {short}"}
    return drawn | named | {"chunk": there.index(piece.stage)}


def _moves(movable: Movable, pieces: Sequence[Piece]) -> dict[str, Any]:
    """Return which pieces and operators move along with each piece.

    Return also the reason for each device that a piece cannot move to.
    """
    count = len(pieces) * len(movable.placement.devices)
    late = 0 if movable.placement.subgraphs is None else count * len(movable.placement.assignment)
    if count > _MAX_REASONS or late > _MAX_SUBGRAPH_CHECKS:
        return {"moves": {"reasons": [], "of": [], "along": [], "beside": []}}
    reasons, of, along, beside = {"": 0}, list[list[int]](), list[list[int]](), list[str]()
    operators = movable.placement.graph.operators
    piece_of = {(i, piece.device): number for number, piece in enumerate(pieces) for i in piece.operators}
    for piece in pieces:
        going = movable.placement.graph.together(piece.operators)
        of.append([reasons.setdefault(why, len(reasons)) for why in movable.why_not(piece.operators)])
        touched = {piece_of[i, d] for i in going for d in movable.placement.assignment[i]}
        whole = [number for number in sorted(touched) if set(pieces[number].operators) <= set(going)]
        along.append(whole)
        shown = {i for number in whole for i in pieces[number].operators}
        beside.append(_named([operators[i].name for i in going if i not in shown]))
    pinned = {pin.operator for pin in movable.pins}
    held = [n for n, piece in enumerate(pieces) if any(operators[i].name in pinned for i in piece.operators)]
    moves = {"reasons": list(reasons), "of": of, "along": along, "beside": beside}
    return {"moves": moves, "pins": [[number, 0] for number in held]}


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more
