"""Networks on tensor-parallel groups of devices: the graph of one device, with the times of collectives."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tessel_core.costs.collectives import ALL_GATHER, ALL_REDUCE, Wires, collective, measured_fraction, wires_of
from tessel_core.costs.costed import timed
from tessel_core.errors import InputError
from tessel_core.model import DeviceGroups, DeviceMesh, DeviceTime, Operator, OperatorGraph
from tessel_core.networks.graphs.coarsen import by_layer
from tessel_core.networks.graphs.spec import LAYERS, OPERATORS, GraphSpec
from tessel_core.networks.graphs.table import build_graph, network_of

_PATTERNS = {"all_reduce": (ALL_REDUCE, 2.0), "all_gather": (ALL_GATHER, 1.0)}
"""For each kind of operator: its collective, and how many times (size - 1) / size of the tensor a device sends."""


@lru_cache(maxsize=8)
def on_groups(graph: OperatorGraph, mesh: DeviceMesh, size: int) -> tuple[OperatorGraph, DeviceGroups]:
    """Return the graph that one device of a tensor-parallel group runs, and the groups of `size` devices of the mesh.

    The graph has times for each kind of group. A collective runs over the links between the devices of a group, as in a
    simulation. Groups with different links are of different kinds.

    Raises InputError if the graph is tensor parallel already, if it was not built from a network, if `size` does not
    divide the network's sizes, and in the cases of `DeviceGroups`.
    """
    groups = DeviceGroups(mesh, size)
    family, spec = _network_of(graph)
    if spec.tensor_parallel > 1:
        why = f"is already tensor parallel over {spec.tensor_parallel} devices, and groups would divide it again"
        raise InputError(f"graph {graph.name}", why)
    name = graph.name.removesuffix("-training") if spec.training else graph.name
    fine = build_graph(family, replace(spec, tensor_parallel=size, granularity=OPERATORS), name)
    groups, kinds = _wired(groups)
    plain = timed(fine, mesh.devices, spec.dtype)
    priced = replace(plain, operators=tuple(_on_kinds(each, groups, kinds) for each in plain.operators), network="")
    return by_layer(priced) if spec.granularity == LAYERS else priced, groups


def _network_of(graph: OperatorGraph) -> tuple[str, GraphSpec]:
    try:
        family, spec = network_of(graph)
    except InputError as error:
        raise InputError(error.where, f"{error.why}; tensor parallelism needs the network") from None
    return family.name, spec


def _wired(groups: DeviceGroups) -> tuple[DeviceGroups, dict[str, int]]:
    """Return the groups with their kinds, and a map from each kind to the index of one of its groups."""
    kinds, alike = list[str](), dict[tuple[str, Wires], str]()
    first = dict[str, int]()
    for group, members in enumerate(groups.members):
        kind, wires = groups.mesh.devices[members[0]].kind, wires_of(groups.mesh, members)
        known = sum(each == kind for each, _ in alike)
        kinds.append(alike.setdefault((kind, wires), f"{kind} wired {known + 1}" if known else kind))
        first.setdefault(kinds[-1], group)
    return replace(groups, kinds=tuple(kinds)), first


def _on_kinds(operator: Operator, groups: DeviceGroups, kinds: dict[str, int]) -> Operator:
    """Return the operator with its time on each kind of group.

    `kinds` maps each kind to the index of one of its groups.
    """

    def seconds(group: int) -> float | None:
        members = groups.members[group]
        if operator.kind in _PATTERNS:
            return _collective_seconds(operator, groups, members)
        return operator.time_on(groups.mesh.devices[members[0]].kind)

    known = ((kind, seconds(group)) for kind, group in kinds.items())
    return replace(operator, times=tuple(DeviceTime(kind, time) for kind, time in known if time is not None))


def _collective_seconds(operator: Operator, groups: DeviceGroups, members: tuple[int, ...]) -> float:
    pattern, times = _PATTERNS[operator.kind]
    amount = (operator.bytes or 0.0) * groups.size / (groups.size - 1) / times
    wires = wires_of(groups.mesh, members)
    return collective(pattern, amount, wires, measured_fraction(groups.mesh, members, pattern, wires)).seconds
