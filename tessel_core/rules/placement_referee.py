"""The rules that a placement must keep: one function per rule, listed in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tessel_core.model import Allowance, Placement, StageLayout
from tessel_core.model.checks import find_cycle, path_text, quotient
from tessel_core.model.latency import circle_of
from tessel_core.rules.referee import Violation

PlacementRule = Callable[[Placement], Iterator[Violation]]


def assigned(placement: Placement) -> Iterator[Violation]:
    """Every operator has a device."""
    for operator, on in zip(placement.graph.operators, placement.assignment, strict=True):
        if not on:
            yield Violation("assigned", f"operator {operator.name}", "has no device")


def supported(placement: Placement) -> Iterator[Violation]:
    """Every operator has a time on the kind of each of its devices."""
    for operator, on in zip(placement.graph.operators, placement.assignment, strict=True):
        for device in on:
            kind = placement.devices[device].kind
            if operator.time_on(kind) is None:
                why = f"is on {placement.devices[device].name}, but has no time on the kind {kind}"
                yield Violation("supported", f"operator {operator.name}", why)


def colours(placement: Placement) -> Iterator[Violation]:
    """Operators of the same colour have the same devices."""
    first: dict[str, int] = {}
    for i, operator in enumerate(placement.graph.operators):
        if operator.colour is None:
            continue
        other = first.setdefault(operator.colour, i)
        if set(placement.assignment[i]) != set(placement.assignment[other]):
            name = placement.graph.operators[other].name
            why = f"is on {_on(placement, i)}, but {name} of the same colour {operator.colour} is on"
            yield Violation("colours", f"operator {operator.name}", f"{why} {_on(placement, other)}")


def backward_follows(placement: Placement) -> Iterator[Violation]:
    """A backward operator has the devices of its forward operator."""
    for i, operator in enumerate(placement.graph.operators):
        if operator.forward_of is None:
            continue
        forward = placement.graph.operator_index(operator.forward_of)
        if set(placement.assignment[i]) != set(placement.assignment[forward]):
            why = f"is on {_on(placement, i)}, but its forward {operator.forward_of} is on {_on(placement, forward)}"
            yield Violation("backward follows", f"operator {operator.name}", why)


def placement_memory(placement: Placement) -> Iterator[Violation]:
    """The bytes that a device holds, with all micro-batches in flight, do not exceed its capacity."""
    for device, held in zip(placement.devices, placement.memory, strict=True):
        if device.memory_capacity is not None and held > with_rounding(device.memory_capacity):
            why = f"its operators hold {held:,.0f} bytes, capacity {device.memory_capacity:,.0f}"
            yield Violation("memory", f"device {device.name}", why)


def contiguous(placement: Placement) -> Iterator[Violation]:
    """Devices can be ordered so that every tensor stays on its device or goes to a later one.

    Let device(v) be the devices of v. The graph of the arcs device(u) -> device(v), for each flow from u to v, has no
    cycle. Placements with several stages per device are checked by the rule `stages` instead.
    """
    if placement.stages is not None:
        return
    groups = [frozenset(placement.assignment[members[0]]) for members in placement.graph.colocated]
    stages = list(dict.fromkeys(groups))
    number = {stage: i for i, stage in enumerate(stages)}
    flow = ((number[groups[one]], number[groups[other]]) for one, other in placement.graph.flow)
    cycle = find_cycle(quotient(len(stages), flow))
    if cycle:
        names = [" and ".join(placement.devices[d].name for d in sorted(stages[stage])) for stage in cycle]
        yield Violation("contiguous", f"device {names[0]}", f"tensors flow in a circle: {' -> '.join(names)}")


def replicas(placement: Placement) -> Iterator[Violation]:
    """Replicas of a stage are accelerators of one kind and have no operators of other stages."""
    for devices in placement.replicated:
        names = " and ".join(placement.devices[d].name for d in devices)
        kinds = sorted({placement.devices[d].kind for d in devices})
        where = f"devices {names}"
        if len(kinds) > 1:
            yield Violation("replicas", where, f"share a stage, but are of the kinds {' and '.join(kinds)}")
        elif placement.devices[devices[0]].is_host:
            yield Violation("replicas", where, "share a stage, but are hosts; only accelerators can share a stage")
        for device in devices:
            others = [i for i in placement.operators_on[device] if set(placement.assignment[i]) != set(devices)]
            if others:
                name, shown = placement.graph.operators[min(others)].name, placement.devices[device].name
                yield Violation("replicas", where, f"share a stage, but {name} is on {shown} and not on all of them")


def stages(placement: Placement) -> Iterator[Violation]:
    """Stages follow the flow: for a flow from u to v, stage(u) <= stage(v).

    Each stage has an operator, and all operators of a stage are on the same device.
    """
    if placement.stages is None:
        return
    operators, stage_of = placement.graph.operators, placement.stages
    groups = placement.graph.colocated
    for members in groups:
        for i in members[1:]:
            if stage_of[i] != stage_of[members[0]]:
                why = f"is in stage {stage_of[i]}, but {operators[members[0]].name} is in stage {stage_of[members[0]]}"
                yield Violation("stages", f"operator {operators[i].name}", why)
    for one, other in placement.graph.flow:
        before, after = groups[one][0], groups[other][0]
        if stage_of[before] > stage_of[after]:
            why = f"is in stage {stage_of[after]}, but follows {operators[before].name} in stage {stage_of[before]}"
            yield Violation("stages", f"operator {operators[after].name}", why)
    first: dict[int, int] = {}
    for i, stage in enumerate(stage_of):
        other = first.setdefault(stage, i)
        if set(placement.assignment[i]) != set(placement.assignment[other]):
            why = f"is on {_on(placement, i)}, but {operators[other].name} of its stage is on {_on(placement, other)}"
            yield Violation("stages", f"operator {operators[i].name}", why)
    missing = sorted(set(range(max(stage_of, default=-1) + 1)) - set(first))
    if missing:
        yield Violation("stages", f"stage {missing[0]}", "has no operators")


# Rules for placements with subgraphs


def alone(placement: Placement) -> Iterator[Violation]:
    """Every operator is on at most one device, because a subgraph runs on one."""
    for operator, on in zip(placement.graph.operators, placement.assignment, strict=True):
        if len(on) > 1:
            yield Violation("alone", f"operator {operator.name}", f"is on {len(on)} devices, but must be on one")


def contiguous_subgraphs(placement: Placement) -> Iterator[Violation]:
    """No subgraph depends on its own output through other subgraphs or hosts."""
    if all(len(on) == 1 for on in placement.assignment):
        circle = circle_of(placement, in_order=False)
        if circle:
            why = f"tensors flow in a circle: {_shown(placement, circle)}"
            yield Violation("contiguous subgraphs", _name(placement, circle[0]), why)


def order(placement: Placement) -> Iterator[Violation]:
    """A device runs its subgraphs in the order of their indices, and no subgraph depends on a later one."""
    if all(len(on) == 1 for on in placement.assignment) and not circle_of(placement, in_order=False):
        circle = circle_of(placement, in_order=True)
        if circle:
            why = f"wait for each other if devices keep their order: {_shown(placement, circle)}"
            yield Violation("order", _name(placement, circle[0]), why)


def _name(placement: Placement, part: tuple[int, ...]) -> str:
    assert placement.subgraphs is not None, "cycles are between subgraphs"
    (device,) = placement.assignment[part[0]]
    if placement.devices[device].is_host:
        return f"operator {placement.graph.operators[part[0]].name}"
    return f"subgraph {placement.subgraphs[part[0]]} of {placement.devices[device].name}"


def _shown(placement: Placement, circle: list[tuple[int, ...]]) -> str:
    return path_text(_name(placement, part) for part in circle)


ROUNDING = 1e-9
"""Largest relative rounding error of sums of bytes. They are floats, so the order of addition changes the sum."""
_MAX_EXCESS_BYTES = 0.5


def with_rounding(capacity: float) -> float:
    """Return the capacity plus an allowance for rounding errors, which is less than one byte."""
    return capacity + min(capacity * ROUNDING, _MAX_EXCESS_BYTES)


PLACEMENT_RULES: dict[str, PlacementRule] = {
    "assigned": assigned,
    "supported": supported,
    "colours": colours,
    "backward follows": backward_follows,
    "memory": placement_memory,
    "replicas": replicas,
    "contiguous": contiguous,
    "stages": stages,
}
"""All rules, by their names in violations. "contiguous" is only for placements that claim to be contiguous."""

LATENCY_RULES: dict[str, PlacementRule] = {
    **{name: rule for name, rule in PLACEMENT_RULES.items() if rule not in (contiguous, stages, replicas)},
    "alone": alone,
    "contiguous subgraphs": contiguous_subgraphs,
    "order": order,
}
"""Rules of placements with subgraphs, which are for the latency of one sample."""


def check_placement(placement: Placement, *, without: Iterable[str] = ()) -> list[Violation]:
    """Return the violations of all rules except those named in `without`. Empty for a valid placement."""
    skipped, rules = set(without), PLACEMENT_RULES if placement.subgraphs is None else LATENCY_RULES
    return [found for name, rule in rules.items() if name not in skipped for found in rule(placement)]


def check_allowances(placement: Placement, allowances: Iterable[Allowance]) -> Iterator[Violation]:
    """Yield the operators that are on a device on which they are not allowed."""
    for each in allowances:
        for device in placement.assignment[placement.graph.operator_index(each.operator)]:
            name = placement.devices[device].name
            if name not in each.devices:
                why = f"is on {name}, but is only allowed on {' and '.join(each.devices) or 'no device'}"
                yield Violation("allowances", f"operator {each.operator}", why)


def check_layout(placement: Placement, layout: StageLayout) -> Iterator[Violation]:
    """Yield a violation if the stages are not on the accelerators, in their order, as the layout requires."""
    if placement.stages is None:
        yield Violation("layout", "the placement", "has no stages")
        return
    devices = [i for i, device in enumerate(placement.devices) if not device.is_host]
    wanted, count = layout.stages_per_device * len(devices), len(set(placement.stages))
    if count != wanted:
        yield Violation("layout", "the placement", f"has {count} stages, but the layout has {wanted}")
        return
    on = dict(zip(placement.stages, placement.assignment, strict=True))
    for stage, there in sorted(on.items()):
        device = devices[layout.device_of(stage, len(devices))]
        if there != (device,):
            where = " and ".join(placement.devices[each].name for each in there) or "no device"
            why = f"is on {where}, but in the layout on {placement.devices[device].name}"
            yield Violation("layout", f"stage {stage}", why)
            return


def _on(placement: Placement, operator: int) -> str:
    return " and ".join(placement.devices[device].name for device in placement.assignment[operator]) or "no device"
