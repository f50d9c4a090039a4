"""The problem as the searches see it: groups of operators that move together, in an order that the flow allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tessel_core.errors import InputError
from tessel_core.model import THROUGHPUT, OperatorGraph, Placement, PlacementDevice
from tessel_core.model.checks import find_cycle, topological_order
from tessel_core.model.operator_graph import joined
from tessel_core.placement.contraction import contracted, groups_without_cost
from tessel_core.placement.problem import PlacementProblem
from tessel_core.rules.placement_referee import with_rounding

Floats = NDArray[np.float64]
Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class DeviceClass:
    """Devices that are alike."""

    devices: tuple[int, ...]
    time: Floats
    """Per group; infinite where it is not supported."""
    pays: bool
    """Whether transfers load the device."""
    capacity: float
    """Bytes, a rounding error added; infinite where memory is not limited."""
    backward: Floats
    """Per group, the part of its time that backward operators take; 0 where it is not supported."""


@dataclass(frozen=True)
class Net:
    """A tensor's producer and its consumers, as groups: it costs every paying device that has some but not all."""

    groups: tuple[int, ...]
    cost: float
    backward: float
    """The part of the cost that outputs of backward operators make."""


@dataclass(frozen=True)
class Pipeline:
    """Groups 0 … n - 1, predecessors before successors, to be cut into one stage a device along the flow.

    Where placements need not be contiguous, there are no predecessors.
    """

    members: Groups
    """Per group, its operators."""
    predecessors: Groups
    memory: Floats
    classes: tuple[DeviceClass, ...]
    nets: tuple[Net, ...]

    def placement(self, problem: PlacementProblem, device_of: Sequence[int]) -> Placement:
        """The placement that puts each group on its device."""
        found: list[tuple[int, ...]] = [()] * len(problem.graph.operators)
        for group, device in zip(self.members, device_of, strict=True):
            for operator in group:
                found[operator] = (device,)
        return problem.placement(found)

    def parts(self, objective: str) -> tuple[Pipeline, ...]:
        """The objective is the sum over these of the largest load: one, or its forward and its backward part."""
        if objective == THROUGHPUT:
            return (self,)
        return self._part(forward=1.0, backward=0.0), self._part(forward=0.0, backward=1.0)

    def _part(self, *, forward: float, backward: float) -> Pipeline:
        def time(each: DeviceClass) -> Floats:
            shares = forward * (np.where(np.isfinite(each.time), each.time, 0.0) - each.backward)
            return np.where(np.isfinite(each.time), shares + backward * each.backward, np.inf)

        classes = [replace(each, time=time(each)) for each in self.classes]
        nets = [replace(net, cost=forward * (net.cost - net.backward) + backward * net.backward) for net in self.nets]
        return replace(self, classes=tuple(classes), nets=tuple(nets))


def pipeline_of(problem: PlacementProblem, costs: Sequence[float] | None = None) -> Pipeline:
    """The problem's groups: what must share a device, what the flow leads around in circles, and groups without cost.

    Circles are no matter where placements need not be contiguous.

    `costs` are what moving each operator's output takes, `problem.transfer_costs` unless said otherwise.

    Raises
    ------
    InputError
        Where a group has no time on any device's kind.
    """
    costs = problem.transfer_costs if costs is None else costs
    whole = _whole(problem, costs)
    capacity = min(each.capacity for each in whole.classes)
    sets = contracted(whole, memory_binds=whole.memory.sum() > capacity)
    return _pipeline(problem, _regrouped(whole.members, sets), costs)


def coarse_pipeline(problem: PlacementProblem, *, bystanders_hold: bool) -> Pipeline:
    """As `pipeline_of` with all groups without cost left with their neighbours, even where memory binds.

    That they hold their memory there is a restriction of the problem; that they hold none is a relaxation.
    """
    whole = _whole(problem, problem.transfer_costs)
    sets = contracted(whole, memory_binds=False)
    coarse = _pipeline(problem, _regrouped(whole.members, sets), problem.transfer_costs)
    if bystanders_hold:
        return coarse
    idle, operators = groups_without_cost(whole), problem.graph.operators
    light = {i for each in sets if len(each) > 1 for part in each if idle[part] for i in whole.members[part]}
    memory = [sum(operators[i].memory for i in group if i not in light) for group in coarse.members]
    return replace(coarse, memory=np.array(memory))


def within_memory(pipeline: Pipeline) -> Pipeline:
    """The same, with groups that alone exceed a device's memory not supported there."""
    classes = [
        replace(each, time=np.where(pipeline.memory <= each.capacity, each.time, np.inf)) for each in pipeline.classes
    ]
    return replace(pipeline, classes=tuple(classes))


def has_unplaceable(pipeline: Pipeline) -> bool:
    """Whether some group is supported nowhere."""
    return not np.isfinite([each.time for each in pipeline.classes]).any(axis=0).all()


def _whole(problem: PlacementProblem, costs: Sequence[float]) -> Pipeline:
    """Groups by what must share a device and what the flow leads around in circles."""
    graph = problem.graph
    circles = _circles(graph) if problem.contiguous else []
    whole = _pipeline(problem, _regrouped(graph.colocated, joined(len(graph.colocated), circles)), costs)
    _check_places(problem, whole)
    return whole


def _circles(graph: OperatorGraph) -> list[tuple[int, int]]:
    """Links between sets that the flow leads around in circles."""
    before: list[list[int]] = [[] for _ in graph.colocated]
    for one, other in graph.flow:
        before[other].append(one)
    if not find_cycle(before):
        return []
    import networkx  # late: most graphs have no circles, and it takes a tenth of a second to load

    circles = networkx.strongly_connected_components(networkx.DiGraph(graph.flow))
    return [(next(iter(circle)), each) for circle in circles for each in circle]


def _check_places(problem: PlacementProblem, whole: Pipeline) -> None:
    nowhere = ~np.isfinite([each.time for each in whole.classes]).any(axis=0)
    if not nowhere.any():
        return
    operators = [problem.graph.operators[i] for i in whole.members[int(np.argmax(nowhere))]]
    kinds = list(dict.fromkeys(device.kind for device in problem.devices))
    named = next((each for each in operators if all(each.time_on(kind) is None for kind in kinds)), operators[0])
    beside = "" if len(operators) == 1 else ", with what it must share a device with,"
    barred = any(named.time_on(kind) is not None for kind in kinds) and problem.allowances
    what = (
        "may go to no device that it has a time for"
        if barred
        else f"has no time on a device of kind {' or '.join(kinds)}"
    )
    why = f"fits nowhere: it{beside} {what}"
    raise InputError(f"operator {named.name}", why)


def _regrouped(groups: Groups, parts: Groups) -> Groups:
    return tuple(tuple(sorted(operator for part in each for operator in groups[part])) for each in parts)


def _pipeline(problem: PlacementProblem, groups: Groups, costs: Sequence[float]) -> Pipeline:
    """Numbers the groups along the flow."""
    graph = problem.graph
    group_of = _group_of(groups, len(graph.operators))
    before: list[set[int]] = [set() for _ in groups]
    for one, other in graph.flow if problem.contiguous else ():
        source, target = (group_of[graph.colocated[each][0]] for each in (one, other))
        if source != target:
            before[target].add(source)
    order = topological_order([sorted(each) for each in before])
    number = {group: i for i, group in enumerate(order)}
    members = tuple(groups[group] for group in order)
    return Pipeline(
        members,
        tuple(tuple(sorted(number[each] for each in before[group])) for group in order),
        np.array([sum(graph.operators[i].memory for i in group) for group in members]),
        _classes(problem, members),
        _nets(problem, members, costs),
    )


def _group_of(groups: Groups, operators: int) -> list[int]:
    found = [0] * operators
    for group, members in enumerate(groups):
        for operator in members:
            found[operator] = group
    return found


def _classes(problem: PlacementProblem, groups: Groups) -> tuple[DeviceClass, ...]:
    """Devices of one kind and capacity are alike, unless an allowance tells them apart."""
    alike: dict[tuple[str, float | None, tuple[int, ...]], list[int]] = {}
    for i, device in enumerate(problem.devices):
        alike.setdefault((device.kind, device.memory_capacity, _barred(problem, groups, device)), []).append(i)
    found = []
    for (kind, memory, barred), devices in alike.items():
        times = np.array([_time(problem, group, kind) for group in groups])
        times[list(barred)] = np.inf
        capacity = np.inf if memory is None else with_rounding(memory)
        pays = not problem.devices[devices[0]].is_host
        back = np.array([_time(problem, group, kind, only_backward=True) for group in groups])
        found.append(DeviceClass(tuple(devices), times, pays, capacity, np.where(np.isfinite(times), back, 0.0)))
    return tuple(found)


def _barred(problem: PlacementProblem, groups: Groups, device: PlacementDevice) -> tuple[int, ...]:
    """The groups that an allowance keeps away from the device."""
    if not problem.allowances:
        return ()
    kept_away = {i for i, on in enumerate(problem.allowed_on) if on is not None and device.name not in on}
    return tuple(i for i, group in enumerate(groups) if not kept_away.isdisjoint(group))


def _time(problem: PlacementProblem, group: tuple[int, ...], kind: str, *, only_backward: bool = False) -> float:
    operators = [problem.graph.operators[i] for i in group]
    times = [each.time_on(kind) for each in operators if each.backward or not only_backward]
    return float("inf") if None in times else float(sum(time or 0.0 for time in times))


def _nets(problem: PlacementProblem, groups: Groups, costs: Sequence[float]) -> tuple[Net, ...]:
    """Tensors that pass between groups; those between the same groups are one."""
    graph = problem.graph
    group_of = _group_of(groups, len(graph.operators))
    found: dict[tuple[int, ...], list[float]] = {}
    for source, cost in enumerate(costs):
        meets = tuple(sorted({group_of[each] for each in (source, *graph.consumers[source])}))
        if cost > 0 and len(meets) > 1:
            sums = found.setdefault(meets, [0.0, 0.0])
            sums[0] += cost
            sums[1] += cost if graph.operators[source].backward else 0.0
    return tuple(Net(meets, *sums) for meets, sums in found.items())
