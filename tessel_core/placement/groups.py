"""From a problem to its pipeline: which operators move together, and groups without cost contracted into neighbours."""

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
    """The problem with operators grouped that share a device or lie on a cycle, and groups without cost contracted.

    `costs` are what moving each operator's output takes, `problem.transfer_costs` unless said otherwise.  Cycles do
    not matter where placements need not be contiguous.

    Raises InputError where a group has no time on any device's kind.
    """
    costs = problem.transfer_costs if costs is None else costs
    whole = whole_pipeline(problem, costs)
    capacity = min(each.capacity for each in whole.classes)
    memory_binds = bool(whole.most_memory.sum() > capacity)
    if problem.replicates:  # beside replicas, a group that has gradients adds loads where it is moved
        held = group_gradients(problem, whole.members) + (whole.most_memory if memory_binds else 0.0)
        whole, memory_binds = replace(whole, memory=held, kept=np.zeros_like(held)), True
    sets = _contracted(whole, memory_binds=memory_binds)
    return _pipeline(problem, _regrouped(whole.members, sets), costs)


def group_gradients(problem: PlacementProblem, groups: Groups, without: frozenset[int] = frozenset()) -> Floats:
    """Per group, the bytes of its weights' gradients, some operators left out."""
    gradients = gradient_bytes(problem.graph)
    return np.array([sum(gradients[i] for i in members if i not in without) for members in groups], dtype=float)


def chain_of(problem: PlacementProblem) -> Pipeline:
    """The problem's groups in an order along the flow, also where placements need not be contiguous."""
    return pipeline_of(replace(problem, contiguous=True))


def coarse_pipeline(problem: PlacementProblem, *, keep_memory: bool) -> Pipeline:
    """As `pipeline_of` with all groups without cost contracted, even where memory binds.

    With `keep_memory` they hold their memory there, which is a restriction of the problem; else they hold none,
    which is a relaxation.
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
    """The operators without cost that `coarse_pipeline` joins with others."""
    whole = whole_pipeline(problem, problem.transfer_costs)
    sets, idle = _contracted(whole, memory_binds=False), _without_cost(whole)
    return frozenset(i for each in sets if len(each) > 1 for part in each if idle[part] for i in whole.members[part])


def whole_pipeline(problem: PlacementProblem, costs: Sequence[float]) -> Pipeline:
    """As `pipeline_of`, with no groups contracted: sets of operators that share a device or lie on a cycle."""
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
    beside = "" if len(operators) == 1 else ", with what it must share a device with,"
    barred = any(named.time_on(kind) is not None for kind in kinds) and problem.allowances
    without_time = f"has no time on a device of kind {' or '.join(kinds)}"
    what = "may go to no device that it has a time for" if barred else without_time
    raise InputError(f"operator {named.name}", f"fits nowhere: it{beside} {what}")


def _regrouped(groups: Groups, parts: Groups) -> Groups:
    return tuple(tuple(sorted(operator for part in each for operator in groups[part])) for each in parts)


def _pipeline(problem: PlacementProblem, groups: Groups, costs: Sequence[float]) -> Pipeline:
    """Numbers the groups along the flow."""
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
    """Per group, the sum of what its operators have."""
    return np.array([sum(float(amounts[i]) for i in group) for group in groups])


def _counts_by_position(problem: PlacementProblem) -> bool:
    """Whether stages hold as many micro-batches as their positions say: only stages of a chain have positions."""
    return problem.contiguous and problem.held.by_position


def held_bytes(problem: PlacementProblem, replicas: int = 1) -> Floats:
    """Per operator, the bytes on one of its replicas: with one micro-batch where positions count, else with all in
    flight."""
    graph, rule = problem.graph, problem.held
    count = 1 if _counts_by_position(problem) else rule.held_at(len(problem.devices))
    kept = np.array(graph.kept_bytes, dtype=np.float64) / replicas
    return np.array(graph.lasting_bytes(rule.included, replicas)) + count * kept


def kept_further(problem: PlacementProblem, replicas: int = 1) -> Floats:
    """Per operator, the bytes that each further micro-batch adds to one of its replicas."""
    kept = np.array(problem.graph.kept_bytes, dtype=np.float64) / replicas
    return kept if _counts_by_position(problem) else np.zeros_like(kept)


def _branches(problem: PlacementProblem, groups: Groups) -> tuple[Groups, ...]:
    """The branches that must be apart, in groups: each is in one branch or in none, since layers are."""
    if not problem.branches_apart:
        return ()
    first = {members[0]: group for group, members in enumerate(groups)}
    stretches = branches_of(problem.graph)
    return tuple(tuple(tuple(first[i] for i in each if i in first) for each in branches) for branches in stretches)


def _classes(problem: PlacementProblem, groups: Groups) -> tuple[DeviceClass, ...]:
    """Devices of one kind and capacity are one class, unless an allowance tells them apart."""
    alike: dict[tuple[str, float | None, tuple[int, ...]], list[int]] = {}
    for i, device in enumerate(problem.devices):
        alike.setdefault((device.kind, device.memory_capacity, _barred(problem, groups, device)), []).append(i)
    found = []
    for (kind, memory, barred), devices in alike.items():
        times = np.array([group_time(problem, group, kind) for group in groups])
        times[list(barred)] = np.inf
        capacity = np.inf if memory is None else with_rounding(memory)
        pays = not problem.devices[devices[0]].is_host
        back = np.array([group_time(problem, group, kind, only_backward=True) for group in groups])
        found.append(DeviceClass(tuple(devices), times, pays, capacity, np.where(np.isfinite(times), back, 0.0)))
    return tuple(found)


def _barred(problem: PlacementProblem, groups: Groups, device: PlacementDevice) -> tuple[int, ...]:
    """The groups that an allowance keeps away from the device."""
    if not problem.allowances:
        return ()
    kept_away = {i for i, on in enumerate(problem.allowed_on) if on is not None and device.name not in on}
    return tuple(i for i, group in enumerate(groups) if not kept_away.isdisjoint(group))


def group_time(problem: PlacementProblem, group: Sequence[int], kind: str, *, only_backward: bool = False) -> float:
    """Time of a group's operators, or of its backward ones, on a kind of device; infinite where one has none there."""
    operators = [problem.graph.operators[i] for i in group]
    times = [each.time_on(kind) for each in operators if each.backward or not only_backward]
    return float("inf") if None in times else float(sum(time or 0.0 for time in times))


def nets_of(problem: PlacementProblem, groups: Groups, costs: Sequence[float]) -> tuple[Net, ...]:
    """Tensors that pass between groups; those between the same groups are one."""
    graph = problem.graph
    group_of = {operator: group for group, members in enumerate(groups) for operator in members}
    found: dict[tuple[int, ...], list[float]] = {}
    for source, cost in enumerate(costs):
        meets = tuple(sorted({group_of[each] for each in (source, *graph.consumers[source])}))
        if cost > 0 and len(meets) > 1:
            sums = found.setdefault(meets, [0.0, 0.0])
            sums[0] += cost
            sums[1] += cost if graph.operators[source].backward else 0.0
    return tuple(Net(meets, *sums) for meets, sums in found.items())


def _contracted(pipeline: Pipeline, *, memory_binds: bool) -> tuple[tuple[int, ...], ...]:
    """The groups that may be joined, each set by its least group.

    A group joins its only neighbour along the flow when it takes no time anywhere, every tensor that it touches
    touches that neighbour too, and it may go wherever the neighbour may, in the same branch.  Moving it there then adds
    no load to any device: no tensor is cut that was whole.  Where memory binds it must hold none.
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
    """Per group, whether it takes no time wherever it is supported."""
    times = np.where(pipeline.supported, [each.time for each in pipeline.classes], 0.0)
    return np.asarray(times.max(axis=0) == 0)


class _Neighbours:
    """Which groups are neighbours, while groups are contracted."""

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
        """The neighbour that may take the group in, if it needs no place of its own."""
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
        """Remove a group that has joined another."""
        del self._left[group]
        for each in self._touches[group]:
            self._touches[each].discard(group)
        for net in self._nets_of[group]:
            self._nets[net].discard(group)
            if len(self._nets[net]) == 1:
                (last,) = self._nets[net]
                self._nets_of[last].discard(net)
