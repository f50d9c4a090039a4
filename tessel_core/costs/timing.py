"""Seconds of operators on devices of a mesh, from their FLOPs and bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tessel_core.errors import InputError
from tessel_core.model import Device, DeviceTime, Operator, OperatorGraph

LAUNCH_S = 8e-6
"""Until an operator starts on its device, in eager mode [measured: the least rows of `data/h200_costs.csv`]."""


def timed(graph: OperatorGraph, devices: Iterable[Device], dtype: str = "bf16") -> OperatorGraph:
    """The graph with a time, in seconds, on the kinds of the devices; a time that it has already is kept.

    An operator with times but without FLOPs and bytes gets none, so it is not supported on other kinds.

    Raises
    ------
    InputError
        For an operator that has neither a time nor FLOPs nor bytes, or a device whose rates are not known.
    """
    kinds = {device.kind: device for device in devices}
    return replace(graph, operators=tuple(_timed(each, kinds, dtype) for each in graph.operators))


def _timed(operator: Operator, kinds: dict[str, Device], dtype: str) -> Operator:
    if operator.flops is None and operator.bytes is None:
        if not operator.times:
            raise InputError(f"operator {operator.name}", "has neither a time nor flops nor bytes to derive one from")
        return operator
    missing = [kind for kind in kinds if operator.time_on(kind) is None]
    derived = (DeviceTime(kind, operator_seconds(operator, kinds[kind], dtype)) for kind in missing)
    return replace(operator, times=(*operator.times, *derived))


def operator_seconds(operator: Operator, device: Device, dtype: str) -> float:
    """Launch + the longer of computing and moving; 0 for an operator without work, which is a view."""
    flops, moved = operator.flops or 0.0, operator.bytes or 0.0
    if flops == 0 and moved == 0:
        return 0.0
    rate = device.peak(dtype) or device.peak("fp32")
    if rate is None or device.memory_bandwidth is None:
        missing = f"flops.{dtype}" if rate is None else "memory_bandwidth"
        raise InputError(f"device {device.name}", f"has no {missing}, and operator {operator.name} no time on it")
    return LAUNCH_S + max(flops / rate, moved / device.memory_bandwidth)
