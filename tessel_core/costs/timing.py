"""Seconds of operators on devices of a mesh, from their kind, FLOPs and bytes by the fitted kernels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from tessel_core.costs.fit import CostFit, Rates, h200_fit, joined, rates_of
from tessel_core.costs.kernels import Work, kernel_of, launches_of, outputs_of, width_of
from tessel_core.errors import InputError
from tessel_core.model import Device, DeviceTime, Operator, OperatorGraph


def timed(graph: OperatorGraph, devices: Iterable[Device], dtype: str = "bf16") -> OperatorGraph:
    """The graph with a time, in seconds, on the kinds of the devices; a time that it has already is kept.

    An operator with times but without FLOPs and bytes gets none, so it is not supported on other kinds.  Launches of a
    graph with backward operators are those of autograd.

    Raises
    ------
    InputError
        For an operator that has neither a time nor FLOPs nor bytes, or a device whose rates are not known.
    """
    kinds = {device.kind: _Timer(device, dtype, graph.is_training, h200_fit()) for device in devices}
    return replace(graph, operators=tuple(_timed(each, kinds) for each in graph.operators))


def operator_seconds(operator: Operator, device: Device, dtype: str, training: bool = False) -> float:
    """Seconds in a stream of operators in eager mode: launch and work overlap (`CostFit`).

    0 for an operator without work, which is a view.  InputError for a device whose rates are not known.
    """
    return operator_terms(operator, device, dtype, training).seconds


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
    """What `operator_seconds` is made of, by the shipped parameters or others."""
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
        work = Work(name, flops, moved, outputs_of(name, moved, operator.output_bytes, self._width))
        longer = self.fit.launches.backward if operator.backward else self._forward
        launch = longer * launches_of(operator.kind) * kernel.launch
        computing, moving = kernel.computing(work, self._rates), kernel.moving(work, self._rates)
        return OperatorTerms(launch, computing, moving, joined(launch, max(computing, moving), self.fit.overlap))

    @cached_property
    def _rates(self) -> Rates:
        """Asked for only where an operator has work to do."""
        return rates_of(self.device, self.dtype)

    @cached_property
    def _width(self) -> int:
        return width_of(self.dtype)

    @cached_property
    def _forward(self) -> float:
        return self.fit.launches.forward if self.training else self.fit.launches.inference


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
