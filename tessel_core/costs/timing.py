"""Seconds of operators on devices of a mesh, from their kind, FLOPs and bytes by the fitted kernels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from tessel_core.costs.fit import CostFit, Rates, h200_fit, rates_of
from tessel_core.costs.kernels import Work, kernel_of, launches_of, outputs_of, width_of
from tessel_core.errors import InputError
from tessel_core.model import Device, DeviceTime, Operator, OperatorGraph


def timed(graph: OperatorGraph, devices: Iterable[Device], dtype: str = "bf16") -> OperatorGraph:
    """The graph with a time, in seconds, on the kinds of the devices; a time that it has already is kept.

    An operator with times but without FLOPs and bytes gets none, so it is not supported on other kinds.  Launches of a
    graph with backward operators are those of autograd.

    Raises InputError for an operator without a time, FLOPs and bytes, and for a device whose rates are not known.
    """
    kinds = {device.kind: _Timer(device, dtype, graph.is_training, h200_fit()) for device in devices}
    return replace(graph, operators=tuple(_timed(each, kinds) for each in graph.operators))


@dataclass(frozen=True, slots=True)
class OperatorTerms:
    """Seconds that an operator's launches, arithmetic and traffic with memory take, and all of them together."""

    launch: float
    computing: float
    moving: float
    seconds: float


def operator_terms(
    operator: Operator, device: Device, dtype: str, training: bool = False, fit: CostFit | None = None
) -> OperatorTerms:
    """The cost of an operator in a stream of operators in eager mode, where launch and work overlap (`CostFit`).

    By the shipped parameters, or by `fit`.  0 for an operator without work, which is a view.  Raises InputError for a
    device whose rates are not known.
    """
    return _timer(device, dtype, training, fit).terms(operator)


@dataclass(frozen=True)
class _Timer:
    """Everything about a device and the fitted kernels that does not depend on the operator."""

    device: Device
    dtype: str
    training: bool
    fit: CostFit

    def terms(self, operator: Operator) -> OperatorTerms:
        """Seconds of its launch, of its arithmetic and of its memory traffic, and of all together."""
        flops, moved = operator.flops or 0.0, operator.bytes or 0.0
        if flops == 0 and moved == 0:
            return OperatorTerms(0.0, 0.0, 0.0, 0.0)
        name = kernel_of(operator.kind)
        kernel = self.fit.kernel(name)
        work = Work(name, flops, moved, outputs_of(name, moved, operator.output_bytes, width_of(self.dtype)))
        launches = self.fit.launches
        forward = launches.forward if self.training else launches.inference
        launch = (launches.backward if operator.backward else forward) * launches_of(operator.kind) * kernel.launch
        computing, moving = kernel.computing(work, self._rates), kernel.moving(work, self._rates)
        return OperatorTerms(launch, computing, moving, self.fit.joined(launch, max(computing, moving)))

    @cached_property
    def _rates(self) -> Rates:
        """Asked for only where an operator has work to do."""
        return rates_of(self.device, self.dtype)


@lru_cache(maxsize=64)
def _timer(device: Device, dtype: str, training: bool, fit: CostFit | None) -> _Timer:
    return _Timer(device, dtype, training, fit or h200_fit())


def _timed(operator: Operator, kinds: dict[str, _Timer]) -> Operator:
    if operator.flops is None and operator.bytes is None:
        if not operator.times:
            raise InputError(f"operator {operator.name}", "has neither a time nor flops nor bytes to derive one from")
        return operator
    known = {each.kind for each in operator.times}
    derived = (DeviceTime(kind, timer.terms(operator).seconds) for kind, timer in kinds.items() if kind not in known)
    return replace(operator, times=(*operator.times, *derived))
