"""Describe a placement: verdict, key numbers, table rows, and broken rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tessel_core.errors import InputError
from tessel_core.formats.tables import Row, TableEdits
from tessel_core.model import (
    FORWARD_BACKWARD,
    LATENCY,
    OBJECTIVES,
    THROUGHPUT,
    LayoutShape,
    OperatorGraph,
    Placement,
    PlacementLoads,
    PlacementReport,
    Status,
    crossings,
    measure_placement,
)
from tessel_core.placement import find_placer
from tessel_core.units import show_gap, show_memory, show_time
from tessel_core.workbench.messages.schedule import KeyNumber, fullest, sentence
from tessel_core.workbench.outcome import PlacerAnswer
from tessel_core.workbench.placing import Placing

_MAX_LISTED_RULES = 3
"""Number of broken rules that are explained. Further ones are only counted."""
SAME = 1e-9
"""Relative difference below which two loads count as equal. They may be sums of the same floats in another order."""


class Tone(StrEnum):
    """Kind of a verdict, which sets the colour of its box."""

    PROVED = "proved"
    FOUND = "found"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One or two sentences about a placement."""

    tone: Tone
    text: str


def broken_rules(placing: Placing, placement: Placement) -> tuple[str, ...]:
    """Return one sentence for each violated rule or pin."""
    broken = placing.problem.violations(placement)
    return tuple(f"{each.where[0].upper()}{each.where[1:]}: {each.why}" for each in broken)


def placement_verdict(placing: Placing, placement: Placement, loads: PlacementLoads) -> Verdict:
    """Return the verdict on the current placement."""
    broken = broken_rules(placing, placement)
    if broken:
        more = len(broken) - _MAX_LISTED_RULES
        text = ". ".join(broken[:_MAX_LISTED_RULES]) + (f". {more:,} more rules are broken" if more > 0 else "")
        return Verdict(Tone.BROKEN, f"{text}.")
    unit, bound, reached = placement.graph.time_unit, known_bound(placing), reach(placing, placement, loads)
    if reached is None:
        return Verdict(
            Tone.FOUND,
            "Press Place to get the latency. Only a placer decides which operators run together on each device.",
        )
    lead = f"{TITLES[placing.objective]} {show_time(reached, unit)}"
    if bound is not None and reached <= bound * (1 + SAME):
        return Verdict(Tone.PROVED, f"{lead}, proved optimal: no {_kind(placing)} has a smaller value.")
    limit = "" if bound is None else f": none is below {show_time(bound, unit)} (gap {show_gap(_gap(bound, reached))})"
    how = "by hand" if placing.by_hand else "not proved optimal"
    reason = "" if placing.outcome is None or placing.by_hand else sentence(placing.outcome.reason)
    return Verdict(Tone.FOUND, f"{lead}, {how}{limit}. {reason}".rstrip())


TITLES = {
    THROUGHPUT: "Largest load",
    FORWARD_BACKWARD: "Largest forward and largest backward load together",
    LATENCY: "Latency of one sample",
}
"""Titles of the objectives on screens."""


def reach(placing: Placing, placement: Placement, loads: PlacementLoads) -> float | None:
    """Return the objective's value in the graph's unit.

    None if subgraphs wait for each other in a circle, because then the placement has no latency.
    """
    if placing.objective != LATENCY:
        return OBJECTIVES[placing.objective](loads)
    try:
        return measure_placement(placement, LATENCY)
    except InputError:
        return None


def outcome_verdict(outcome: PlacerAnswer) -> Verdict | None:
    """Return a verdict on a placer's answer that has no placement. None if the answer has a placement."""
    if outcome.objective is not None:
        return None
    title = find_placer(outcome.placer).title
    if outcome.status is Status.INFEASIBLE:
        text = "infeasible"
    else:
        lead = "cancelled" if outcome.status is Status.CANCELLED else "the time limit was reached"
        text = f"{lead} before a placement was found"
    return Verdict(Tone.BROKEN, f"{title}: {text}. {sentence(outcome.reason)}".rstrip())


def _kind(placing: Placing) -> str:
    pinned = " with these pins" if placing.pins else ""
    apart = " with branches apart" if placing.branches_apart else ""
    if placing.layout is not None:
        shape = "a V" if placing.layout.shape is LayoutShape.V else "a loop"
        return f"layout of {placing.layout.stages_per_device} stages per device in {shape}{pinned}"
    replicated = " with or without replicated stages" if placing.replicas is not None else ""
    return f"contiguous placement{replicated}{apart}{pinned}" if placing.contiguous else f"placement{pinned}"


def known_bound(placing: Placing) -> float | None:
    """Return the bound that a placer has proved for the current problem, in the graph's unit.

    None if no placer has proved a bound.
    """
    return None if placing.outcome is None else placing.outcome.bound


def placement_numbers(placing: Placing, placement: Placement, loads: PlacementLoads) -> tuple[KeyNumber, ...]:
    """Return the key numbers of a placement."""
    unit, bound, reached = placement.graph.time_unit, known_bound(placing), reach(placing, placement, loads)
    busiest = max(range(len(loads.load)), key=loads.load.__getitem__)
    limits = [device.memory_capacity for device in placement.devices]
    tightest = fullest(loads.memory, limits)
    limit = limits[tightest]
    capacity = "unlimited" if limit is None else f"of {show_memory(limit, 'B')}"
    used = sum(bool(on) for on in placement.operators_on)
    blocking = placement.transfers.load_devices
    return (
        KeyNumber(
            "Largest load",
            show_time(loads.largest, unit),
            f"on {placement.devices[busiest].name}, "
            + (f"transfers {show_time(loads.transfers[busiest], unit)}" if blocking else "transfers overlap"),
            "Time per sample on the busiest device. No schedule of this placement has a shorter period.",
        ),
        *_objective_number(placing, reached, unit),
        *_replicas_number(placement, loads),
        KeyNumber(
            "Bound",
            "none yet" if bound is None else show_time(bound, unit),
            "not searched yet" if bound is None or reached is None else f"gap {show_gap(_gap(bound, reached))}",
            f"{TITLES[placing.objective]}: proved by a placer, no placement of this problem is below this.",
        ),
        KeyNumber(
            "Fullest device",
            show_memory(loads.memory[tightest], "B"),
            f"on {placement.devices[tightest].name}, {capacity}",
            "Memory of the device closest to its capacity: weights, gradients, optimizer state and activations.",
        ),
        KeyNumber(
            "Devices used",
            f"{used} of {len(placement.devices)}",
            f"{show_time(sum(loads.transfers) if blocking else _overlapped(placement), unit)} of "
            f"{'transfers in all' if blocking else 'overlapped transfers'}",
            "Devices with at least one operator. A blocking transfer loads its sender once and each receiver once. An "
            "overlapped transfer loads no device and becomes a lag in the schedule.",
        ),
    )


def _replicas_number(placement: Placement, loads: PlacementLoads) -> tuple[KeyNumber, ...]:
    """Return the number of devices per replicated stage. Empty if no stage is replicated."""
    if not placement.replicated:
        return ()
    stages = " + ".join(str(len(devices)) for devices in sorted(placement.replicated))
    return (
        KeyNumber(
            "Replicas",
            stages,
            f"reductions up to {show_time(max(loads.reduction), placement.graph.time_unit)}",
            "Devices of each replicated stage. Each processes an equal part of every micro-batch. Below: the largest "
            "time per micro-batch that reducing gradients adds to a device.",
        ),
    )


def _overlapped(placement: Placement) -> float:
    """Return the total time of all transfers on their links.

    A transfer to several receivers counts once per receiver.
    """
    return sum(each.seconds_at(device) for each in crossings(placement) for device in each.receivers)


def _objective_number(placing: Placing, reached: float | None, unit: str) -> tuple[KeyNumber, ...]:
    """Return the key number of the objective.

    Empty if the objective is the largest load, which has its own key number.
    """
    if placing.objective == THROUGHPUT:
        return ()
    label = "Latency" if placing.objective == LATENCY else "Forward + backward"
    return (KeyNumber(label, "none" if reached is None else show_time(reached, unit), "", TITLES[placing.objective]),)


def move_effect(before: Placing, after: Placing) -> str:
    """Return one line on the effect of a move on the objective, and on the gap to the bound.

    Both placements must be complete.
    """
    one, other = (each.placement for each in (before, after))
    assert one is not None
    assert other is not None
    if one.assignment == other.assignment:
        return "Nothing changed."
    unit, title = other.graph.time_unit, TITLES[after.objective]
    was, reached = (reach(each, of, PlacementLoads.of(of)) for each, of in ((before, one), (after, other)))
    if reached is None:
        return placement_verdict(after, other, PlacementLoads.of(other)).text
    parts = [f"{title} {show_time(reached, unit)}"]
    if was is not None:
        more = reached - was
        same = abs(more) <= SAME * was
        parts.append("as before" if same else f"{'+' if more > 0 else '−'}{show_time(abs(more), unit)}")
    bound = known_bound(after)
    if bound is not None:
        parts.append("at the bound" if reached <= bound * (1 + SAME) else f"gap {show_gap(_gap(bound, reached))}")
    return " · ".join(parts)


def _gap(bound: float, reached: float) -> float:
    return max(0.0, 1 - bound / reached) if reached else 0.0


OPERATOR_COLUMNS = ("operator", "kind", "time", "memory", "device", "pinned")


def placed_rows(placing: Placing, placement: Placement, shown: Sequence[int]) -> tuple[Row, ...]:
    """Return one row per operator: name, kind, time and memory on its device, and whether it is pinned."""
    pinned = {pin.operator for pin in placing.pins}
    return tuple(_placed_row(placement, i, placement.graph.operators[i].name in pinned) for i in shown)


def _placed_row(placement: Placement, i: int, pinned: bool) -> Row:
    operator = placement.graph.operators[i]
    names = [placement.devices[device].name for device in placement.assignment[i]]
    times = [operator.time_on(placement.devices[device].kind) for device in placement.assignment[i]]
    known = [time / placement.replicas(i) for time in times if time is not None]
    unit = placement.graph.time_unit
    return {
        "operator": operator.name,
        "kind": operator.kind,
        "time": show_time(max(known), unit) if known else None,
        "memory": show_memory(placement.bytes_on_each(i), "B"),
        "device": " and ".join(names) or None,
        "pinned": pinned,
    }


def with_rows(placing: Placing, graph: OperatorGraph, shown: Sequence[int], edits: TableEdits) -> Placing:
    """Return the placement after a user has edited the columns `device` and `pinned`.

    Raises InputError if an operator cannot move.
    """
    placement = placing.placement
    assert placement is not None
    for row, cells in edits.changed.items():
        name = graph.operators[shown[row]].name
        on = placement.assignment[shown[row]]
        device = cells.get("device") or (placement.devices[on[0]].name if on else None)
        if cells.get("pinned") is False:
            placing = placing.unpinned([name])
        if not isinstance(device, str):
            continue
        held = name in {pin.operator for pin in placing.pins}
        if cells.get("pinned") or (held and "device" in cells):
            placing = placing.pinned([name], device)
        elif "device" in cells:
            placing = placing.moved([name], device)
    return placing


PLACER_COLUMNS = ("placer", "objective", "against the best", "bound", "gap", "status", "took", "why")


def placer_rows(reports: Sequence[tuple[str, PlacementReport | None, str]], unit: str) -> tuple[Row, ...]:
    """Return one row per placer.

    `reports` has for each placer its name, its report or None, and the reason if it has no report.
    """
    known = [float(report.objective) for _, report, _ in reports if report and report.objective is not None]
    best = min(known, default=None)
    return tuple(_placer_row(name, report, why, best, unit) for name, report, why in reports)


def _placer_row(name: str, report: PlacementReport | None, why: str, best: float | None, unit: str) -> Row:
    title = find_placer(name).title
    if report is None:
        return dict(zip(PLACER_COLUMNS, (title, *[None] * 6, why or "waiting"), strict=True))
    load = None if report.objective is None else float(report.objective)
    cells = (
        title,
        None if load is None else show_time(load, unit),
        None if load is None or not best else f"{load / best:.3f} ×",
        None if report.bound is None else show_time(float(report.bound), unit),
        None if report.gap is None else show_gap(report.gap),
        report.status.label,
        f"{report.wall_s:.2f} s",
        report.reason,
    )
    return dict(zip(PLACER_COLUMNS, cells, strict=True))
