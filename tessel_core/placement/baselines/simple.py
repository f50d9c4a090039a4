"""Simple baselines: cuts of one order, greedy filling, equal numbers of operators, one device, and given placements.

A group is a set of operators that must share a device. Groups are numbered along the flow. Hosts are CPUs.
"""

from __future__ import annotations

from operator import itemgetter

import numpy as np

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.model import THROUGHPUT, PlacementReport
from tessel_core.placement.answer import answer, evaluate, evaluate_split, infeasible
from tessel_core.placement.bounds import lower_bound
from tessel_core.placement.chain import best_in_orders
from tessel_core.placement.groups import chain_of, pipeline_of
from tessel_core.placement.pipeline import DeviceClass, Floats, Pipeline
from tessel_core.placement.placers import Placer
from tessel_core.placement.problem import PlacementProblem
from tessel_core.placement.replicas import all_on_all
from tessel_core.registry import NoOptions


def cut_by_order(problem: PlacementProblem, config: NoOptions, control: Control) -> PlacementReport:
    """Return the report on the best contiguous placement along the graph's own order of operators.

    The order changes only where the flow requires it.
    """
    pipeline = chain_of(problem)
    best = best_in_orders(pipeline, (range(len(pipeline.members)),), control)
    why = "no cut of this order fits the devices"
    if best.split is None and not control.stopped:
        return infeasible(problem, why)
    if best.split is None:
        return answer(problem, None, lower_bound(pipeline_of(problem), problem.objective), why, control)
    return evaluate_split(problem, pipeline, best.split.device_of)


BY_ORDER = Placer(
    "by-order",
    "Cut by order",
    "One linear order, cut where the largest load is least",
    cut_by_order,
    objectives=(THROUGHPUT,),
)


def pipedream(problem: PlacementProblem, config: NoOptions, control: Control) -> PlacementReport:
    """Return the report on the best division of the order of groups into one stage per accelerator.

        best[m][j] = min over i <= j of max(best[m - 1][i], transfers at i, time of groups i ... j - 1 on device m)

    best[m][j] is the least largest load if groups 0 ... j - 1 are on devices 0 ... m, in the order of devices.
    Transfers at i are those that a cut before group i causes. They overlap with work, as in PipeDream. The report
    counts transfers as the problem does.
    """
    pipeline = chain_of(problem)
    devices = sorted(((device, each) for each in pipeline.classes for device in each.devices), key=itemgetter(0))
    stages = [(device, each) for device, each in devices if each.pays] or devices
    boundary = _transfers(pipeline)
    best, came_from = np.where(np.arange(len(boundary)) == 0, 0.0, np.inf), []
    for i, (_, each) in enumerate(stages):
        entered = np.maximum(best, boundary)
        largest = np.maximum(entered[:, None], _stage_times(pipeline, each, len(stages) - i))
        came_from.append(largest.argmin(axis=0))
        best = largest.min(axis=0)
    if best[-1] == np.inf:
        return infeasible(problem, "no cut of the linear order into stages fits the accelerators")
    device_of, end = [0] * len(pipeline.members), len(pipeline.members)
    for (device, _), source in zip(reversed(stages), reversed(came_from), strict=True):
        first = int(source[end])
        device_of[first:end] = [device] * (end - first)
        end = first
    return evaluate_split(problem, pipeline, device_of)


def _transfers(pipeline: Pipeline) -> Floats:
    """Return the cost of the tensors that a cut before each group cuts. The last entry, for a cut at the end, is 0."""
    changes = np.zeros(len(pipeline.members) + 1)
    for net in pipeline.nets:
        changes[min(net.groups) + 1] += net.cost
        changes[max(net.groups) + 1] -= net.cost
    return np.asarray(np.maximum(changes.cumsum(), 0.0))


def _stage_times(pipeline: Pipeline, each: DeviceClass, position: int) -> Floats:
    """Return the time of groups i ... j - 1 on a device of the class `each`, shaped (i, j).

    It is infinite if j < i, if a group is not supported, or if the groups exceed the memory in the stage at `position`
    from the end.
    """

    def between(values: Floats) -> Floats:
        sums = np.concatenate([[0.0], values.cumsum()])
        return np.asarray(sums[None, :] - sums[:, None])

    supported = np.isfinite(each.time)
    time = between(np.where(supported, each.time, 0.0))
    fits = (between(pipeline.memory_at(position)) <= each.capacity) & (between((~supported).astype(float)) == 0)
    order = np.arange(len(time))
    return np.where(fits & (order[:, None] <= order), np.maximum(time, 0.0), np.inf)


PIPEDREAM = Placer(
    "pipedream",
    "PipeDream",
    "Planner of PipeDream, Narayanan et al., SOSP 2019, without replication",
    pipedream,
    objectives=(THROUGHPUT,),
)


def greedy(problem: PlacementProblem, config: NoOptions, control: Control) -> PlacementReport:
    """Return the report on the placement that fills devices along the flow, hosts last.

    Each device gets all groups that fit in its memory and whose predecessors have a device. Unlike the published
    program, this function continues after an operator that exceeds the remaining memory, never exceeds the memory, and
    does not depend on the order of a hash table. Memory is counted as in a pipeline that uses all devices.
    """
    pipeline = chain_of(problem)
    classes = sorted(pipeline.classes, key=lambda each: not each.pays)
    takers = [(device, each.time, each.capacity) for each in classes for device in each.devices]
    last, time, _ = takers[-1]
    takers.append((last, time, np.inf))  # the last device takes the rest, so the report shows its excess memory
    place: dict[int, int] = {}
    for i, (device, time, capacity) in enumerate(takers):
        held, sizes = 0.0, pipeline.memory_at(max(1, pipeline.stages - i))
        for group, before in enumerate(pipeline.predecessors):  # numbered along the flow, so predecessors come first
            size = float(sizes[group])
            ready = group not in place and all(other in place for other in before)
            if ready and np.isfinite(time[group]) and held + size <= capacity:
                place[group] = device
                held += size
    if len(place) < len(pipeline.members):
        return infeasible(problem, "filling one device after another leaves operators that the last does not support")
    return evaluate_split(problem, pipeline, [place[group] for group in range(len(pipeline.members))])


GREEDY = Placer(
    "greedy",
    "Greedy",
    "Baseline of Tarnawski et al., NeurIPS 2020: accelerators filled to their memory, one after the other",
    greedy,
)


def balanced_layers(problem: PlacementProblem, config: NoOptions, control: Control) -> PlacementReport:
    """Return the report on the placement with equal shares of operators per device, along the flow.

    Hosts are used only if there are no accelerators.
    """
    pipeline = chain_of(problem)
    devices = [i for i, device in enumerate(problem.devices) if not device.is_host] or range(len(problem.devices))
    total, before, device_of = len(problem.graph.operators), 0, list[int]()
    for members in pipeline.members:
        middle = before + len(members) / 2
        device_of.append(devices[int(middle * len(devices) / total)])
        before += len(members)
    return evaluate_split(problem, pipeline, device_of)


BALANCED_LAYERS = Placer(
    "balanced-layers", "Balanced layers", "Equal numbers of operators per device, along the flow", balanced_layers
)


def one_device(problem: PlacementProblem, config: NoOptions, control: Control) -> PlacementReport:
    """Return the report on placing the whole graph on the fastest device. Devices with enough memory are preferred."""
    pipeline = chain_of(problem)
    held = float(pipeline.memory.sum())
    supporting = [each for each in pipeline.classes if float(each.time.sum()) < float("inf")]
    if not supporting:
        return infeasible(problem, "no device supports all operators")
    best = min(supporting, key=lambda each: (held > each.capacity, float(each.time.sum())))
    return evaluate_split(problem, pipeline, [best.devices[0]] * len(pipeline.members))


ONE_DEVICE = Placer("one-device", "One device", "Everything on the fastest device that takes it", one_device)


def data_parallel(problem: PlacementProblem, config: NoOptions, control: Control) -> PlacementReport:
    """Return the report on replicating the whole graph on all accelerators of the kind for which that is fastest."""
    placement = all_on_all(problem)
    if placement is None:
        return infeasible(problem, "no kind of accelerators supports all operators")
    return evaluate(problem, placement)


DATA_PARALLEL = Placer(
    "data-parallel",
    "Data parallel",
    "One stage, replicated on all accelerators of a kind",
    data_parallel,
    objectives=(THROUGHPUT,),
    contiguous=(True,),
    replicates=(True,),
)


def evaluate_by_hand(problem: PlacementProblem, config: NoOptions, control: Control) -> PlacementReport:
    """Return the report on the given placement `problem.by_hand`.

    Raises InputError if the problem has none.
    """
    if problem.by_hand is None:
        raise InputError("placer expert", "evaluates a placement by hand, but the problem has none")
    return evaluate(problem, problem.placement(problem.by_hand, problem.stages_by_hand))


BY_HAND = Placer(
    "expert",
    "By hand",
    "A split made by a person, such as the human experts' of Tarnawski et al., NeurIPS 2020",
    evaluate_by_hand,
    keeps_branches_apart=True,
    replicates=(False, True),
    judges=True,
)
