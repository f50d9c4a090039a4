"""Build the pipeline of a problem, in which groups replace single operators.

Operators that must share a device form a group. Groups without cost, which take no time on any device, are merged into
neighbours. A net is a tensor, with the groups of its producer and consumers. A class has interchangeable devices.
Branches and stretches are as in `branches.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tessel_core.errors import InputError
from tessel_core.model import PlacementDevice, gradient_bytes
from tessel_core.model.checks import circles, joined, quotient, topological_order
from tessel_core.placement.branches import branches_of
from tessel_core.placement.pipeline import DeviceClass, Floats, Groups, Net, Pipeline
from tessel_core.placement.problem import PlacementProblem
from tessel_core.rules.placement_referee import with_rounding


def pipeline_of(problem: PlacementProblem, costs: Sequence[float] | None = None) -> Pipeline:
    """Return the pipeline of a problem.

    Operators that must share a device form a group. If placements must be contiguous, operators on a cycle form a group
    too. Groups without cost are merged into neighbours. `costs` has the time for which moving each operator's output
    occupies a device. The default is `problem.transfer_costs`.

    Raises InputError if no device supports a group.
    """
    costs = problem.transfer_costs if costs is None else costs
    whole = whole_pipeline(problem, costs)
    capacity = min(each.capacity for each in whole.classes)
    memory_binds = bool(whole.most_memory.sum() > capacity)
    if problem.replicates:  # with replicas, gradients add to the load, so only groups without gradients may be merged
        held = group_gradients(problem, whole.members) + (whole.most_memory if memory_binds else 0.0)
        whole, memory_binds = replace(whole, memory=held, kept=np.zeros_like(held)), True
    sets = _contracted(whole, memory_binds=memory_binds)
    return _pipeline(problem, _regrouped(whole.members, sets), costs)


def group_gradients(problem: PlacementProblem, groups: Groups, without: frozenset[int] = frozenset()) -> Floats:
    """Return the gradient bytes of each group, without the operators in `without`. Shaped (groups,)."""
    gradients = gradient_bytes(problem.graph)
    return np.array([sum(gradients[i] for i in members if i not in without) for members in groups], dtype=float)


def chain_of(problem: PlacementProblem) -> Pipeline:
    """Return the pipeline with groups ordered along the flow, even if placements need not be contiguous."""
    return pipeline_of(replace(problem, contiguous=True))


def coarse_pipeline(problem: PlacementProblem, *, keep_memory: bool) -> Pipeline:
    """Return the pipeline in which all groups without cost are merged into neighbours, even if memory binds.

    With `keep_memory`, merged groups add their memory to the neighbour, so the result is a restriction of the problem.
    Otherwise, merged groups hold no memory, so the result is a relaxation.
    """
    whole = whole_pipeline(problem, problem.transfer_costs)
    sets = _contracted(whole, memory_binds=False)
    coarse = _pipeline(problem, _regrouped(whole.members, sets), problem.transfer_costs)
    if keep_memory:
        return coarse
    light, operators = contracted_operators(problem), problem.graph.operators
    held = np.array([0 if i in light else 1 for i in range(len(operators))])
    return replace(
        coarse,
        memory=sums_of(coarse.members, held_bytes(problem) * held),
        kept=sums_of(coarse.members, kept_further(problem) * held),
    )


def contracted_operators(problem: PlacementProblem) -> frozenset[int]:
    """Return the indices of the operators without cost that `coarse_pipeline` merges into other groups."""
    whole = whole_pipeline(problem, problem.transfer_costs)
    sets, idle = _contracted(whole, memory_binds=False), _without_cost(whole)
    return frozenset(i for each in sets if len(each) > 1 for part in each if idle[part] for i in whole.members[part])


def whole_pipeline(problem: PlacementProblem, costs: Sequence[float]) -> Pipeline:
    """Return the pipeline before groups without cost are merged. `costs` and errors are as in `pipeline_of`."""
    graph = problem.graph
    cycles = circles(quotient(len(graph.colocated), graph.flow)) if problem.contiguous else []
    links = [(min(cycle), each) for cycle in cycles for each in cycle]
    whole = _pipeline(problem, _regrouped(graph.colocated, joined(len(graph.colocated), links)), costs)
    _check_places(problem, whole)
    return whole


def _check_places(problem: PlacementProblem, whole: Pipeline) -> None:
    nowhere = ~whole.supported.any(axis=0)
    if not nowhere.any():
        return
    operators = [problem.graph.operators[i] for i in whole.members[int(np.argmax(nowhere))]]
    kinds = list(dict.fromkeys(device.kind for device in problem.devices))
    named = next((each for each in operators if all(each.time_on(kind) is None for kind in kinds)), operators[0])
    beside = "" if len(operators) == 1 else " and for the operators that must share its device"
    barred = any(named.time_on(kind) is not None for kind in kinds) and problem.allowances
    where = "on which it may be placed" if barred else f"of kind {' or '.join(kinds)}"
    raise InputError(f"operator {named.name}", f"fits nowhere: no device {where} has a time for it{beside}")


def _regrouped(groups: Groups, parts: Groups) -> Groups:
    return tuple(tuple(sorted(operator for part in each for operator in groups[part])) for each in parts)


def _pipeline(problem: PlacementProblem, groups: Groups, costs: Sequence[float]) -> Pipeline:
    """Build the pipeline of the given groups, which it numbers along the flow. `costs` is as in `pipeline_of`."""
    graph = problem.graph
    group_of = {operator: group for group, members in enumerate(groups) for operator in members}
    group_at = [group_of[each[0]] for each in graph.colocated]
    flow = graph.flow if problem.contiguous else ()
    before = quotient(len(groups), ((group_at[one], group_at[other]) for one, other in flow))
    order = topological_order(before)
    number = {group: i for i, group in enumerate(order)}
    members = tuple(groups[group] for group in order)
    return Pipeline(
        members,
        tuple(tuple(sorted(number[each] for each in before[group])) for group in order),
        sums_of(members, held_bytes(problem)),
        sums_of(members, kept_further(problem)),
        problem.held,
        _classes(problem, members),
        nets_of(problem, members, costs),
        _branches(problem, members),
    )


def sums_of(groups: Groups, amounts: Sequence[float] | Floats) -> Floats:
    """Return, for each group, the sum of the amounts of its operators. `amounts` has one amount per operator."""
    return np.array([sum(float(amounts[i]) for i in group) for group in groups])


def _counts_by_position(problem: PlacementProblem) -> bool:
    """Return whether stages hold different numbers of micro-batches. Only stages of contiguous placements may."""
    return problem.contiguous and problem.held.by_position


def held_bytes(problem: PlacementProblem, replicas: int = 1) -> Floats:
    """Return the bytes of each operator on one replica, shaped (operators,).

    If the number of micro-batches in flight depends on the position of the stage, the bytes include the activations of
    one micro-batch. Otherwise, the bytes include the activations of all micro-batches in flight.
    """
    graph, rule = problem.graph, problem.held
    count = 1 if _counts_by_position(problem) else rule.held_at(len(problem.devices))
    kept = np.array(graph.kept_bytes, dtype=np.float64) / replicas
    return np.array(graph.lasting_bytes(rule.included, replicas)) + count * kept


def kept_further(problem: PlacementProblem, replicas: int = 1) -> Floats:
    """Return the bytes that each further micro-batch adds to each operator on one replica, shaped (operators,).

    They are 0 if the number of micro-batches in flight does not depend on the position of the stage.
    """
    kept = np.array(problem.graph.kept_bytes, dtype=np.float64) / replicas
    return kept if _counts_by_position(problem) else np.zeros_like(kept)


def _branches(problem: PlacementProblem, groups: Groups) -> tuple[Groups, ...]:
    """Return the groups of each branch, for each stretch with branches: see `Pipeline.branches`.

    Return an empty tuple if branches need not be kept apart. A group is in at most one branch.
    """
    if not problem.branches_apart:
        return ()
    first = {members[0]: group for group, members in enumerate(groups)}
    stretches = branches_of(problem.graph)
    return tuple(tuple(tuple(first[i] for i in each if i in first) for each in branches) for branches in stretches)


def _classes(problem: PlacementProblem, groups: Groups) -> tuple[DeviceClass, ...]:
    """Return the device classes. Devices of a class have the same kind, capacity and allowed groups."""
    alike: dict[tuple[str, float | None, tuple[int, ...]], list[int]] = {}
    for i, device in enumerate(problem.devices):
        alike.setdefault((device.kind, device.memory_capacity, _barred(problem, groups, device)), []).append(i)
    classes = []
    for (kind, memory, barred), devices in alike.items():
        times = np.array([group_time(problem, group, kind) for group in groups])
        times[list(barred)] = np.inf
        capacity = np.inf if memory is None else with_rounding(memory)
        pays = not problem.devices[devices[0]].is_host
        back = np.array([group_time(problem, group, kind, only_backward=True) for group in groups])
        classes.append(DeviceClass(tuple(devices), times, pays, capacity, np.where(np.isfinite(times), back, 0.0)))
    return tuple(classes)


def _barred(problem: PlacementProblem, groups: Groups, device: PlacementDevice) -> tuple[int, ...]:
    """Return the groups with an operator that is not allowed on the device."""
    if not problem.allowances:
        return ()
    kept_away = {i for i, on in enumerate(problem.allowed_on) if on is not None and device.name not in on}
    return tuple(i for i, group in enumerate(groups) if not kept_away.isdisjoint(group))


def group_time(problem: PlacementProblem, group: Sequence[int], kind: str, *, only_backward: bool = False) -> float:
    """Return the time of a group's operators on a kind of device. Infinite if an operator has no time there.

    With `only_backward`, the result is the time of the backward operators alone.
    """
    operators = [problem.graph.operators[i] for i in group]
    times = [each.time_on(kind) for each in operators if each.backward or not only_backward]
    return float("inf") if None in times else float(sum(time or 0.0 for time in times))


def nets_of(problem: PlacementProblem, groups: Groups, costs: Sequence[float]) -> tuple[Net, ...]:
    """Return the tensors that pass between groups, as nets. Tensors between the same groups are merged into one net."""
    graph = problem.graph
    group_of = {operator: group for group, members in enumerate(groups) for operator in members}
    sums_of_nets: dict[tuple[int, ...], list[float]] = {}
    for source, cost in enumerate(costs):
        meets = tuple(sorted({group_of[each] for each in (source, *graph.consumers[source])}))
        if cost > 0 and len(meets) > 1:
            sums = sums_of_nets.setdefault(meets, [0.0, 0.0])
            sums[0] += cost
            sums[1] += cost if graph.operators[source].backward else 0.0
    return tuple(Net(meets, *sums) for meets, sums in sums_of_nets.items())


def _contracted(pipeline: Pipeline, *, memory_binds: bool) -> tuple[tuple[int, ...], ...]:
    """Return a partition of the groups: the groups of each set can be merged without loss. Sets are sorted.

    A group is merged into its only neighbour along the flow if

    - the group takes no time on any device,
    - every tensor of the group is also a tensor of the neighbour,
    - the group is allowed wherever the neighbour is, and is in the same branch,
    - the group holds no memory, or memory does not bind.

    The merge then adds no load, because it cuts no further tensors.
    """
    graph = _Neighbours(pipeline, memory_binds)
    links, waiting = [], list(range(len(pipeline.members)))
    while waiting:
        group = waiting.pop()
        host = graph.host_of(group)
        if host is not None:
            links.append((group, host))
            graph.remove(group)
            waiting.append(host)
    return joined(len(pipeline.members), links)


def _without_cost(pipeline: Pipeline) -> NDArray[np.bool_]:
    """Return, for each group, whether it takes no time on any device that supports it."""
    times = np.where(pipeline.supported, [each.time for each in pipeline.classes], 0.0)
    return np.asarray(times.max(axis=0) == 0)


class _Neighbours:
    """The neighbours of each group along the flow, while groups are merged."""

    def __init__(self, pipeline: Pipeline, memory_binds: bool) -> None:
        count = len(pipeline.members)
        self._allowed = pipeline.supported
        idle = _without_cost(pipeline)
        self._idle = idle & (pipeline.memory + pipeline.kept == 0) if memory_binds else idle
        self._touches: list[set[int]] = [set() for _ in range(count)]
        for source, group in pipeline.arcs:
            self._touches[group].add(source)
            self._touches[source].add(group)
        self._nets = [set(net.groups) for net in pipeline.nets]
        self._nets_of = [set(nets) for nets in pipeline.nets_of]
        self._left = dict.fromkeys(range(count))
        self._branch_of = {v: branch for stretch in pipeline.branches for branch in stretch for v in branch}

    def host_of(self, group: int) -> int | None:
        """Return the neighbour into which the group can be merged, or None."""
        if group not in self._left or not self._idle[group] or len(self._touches[group]) > 1:
            return None
        hosts: Iterable[int] = self._left
        if self._touches[group] or self._nets_of[group]:
            shared = (self._nets[net] for net in self._nets_of[group])
            hosts = sorted(set.intersection(*filter(None, (self._touches[group], *shared))))
        elsewhere, branch = ~self._allowed[:, group], self._branch_of.get(group)
        alike = (host for host in hosts if host != group and self._branch_of.get(host) == branch)
        return next((host for host in alike if not (self._allowed[:, host] & elsewhere).any()), None)

    def remove(self, group: int) -> None:
        """Remove a group that has been merged into another."""
        del self._left[group]
        for each in self._touches[group]:
            self._touches[each].discard(group)
        for net in self._nets_of[group]:
            self._nets[net].discard(group)
            if len(self._nets[net]) == 1:
                (last,) = self._nets[net]
                self._nets_of[last].discard(net)
