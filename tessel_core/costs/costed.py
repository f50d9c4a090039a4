"""Costs of a graph's operators on the devices of a mesh, in seconds and bytes, and with another batch size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from tessel_core.costs.fit import CostFit, kind_fit, rates_of, times_as_long
from tessel_core.costs.kernels import (
    BYTES_OF,
    PRODUCTS,
    Work,
    is_gradient,
    kernel_of,
    launches_of,
    outputs_of,
    width_of,
)
from tessel_core.errors import InputError, find
from tessel_core.model import Device, DeviceMesh, DeviceTime, Edge, InFlight, Operator, OperatorGraph
from tessel_core.model.checks import check_integer
from tessel_core.model.in_flight import GPIPE, MAX_IN_FLIGHT, ONE_F_ONE_B
from tessel_core.options import Option, option

_INFERENCE = "none"
OPTIMIZERS = {
    "adam-mixed": 12,  # float32 master weight and two moments [Rajbhandari 2020, section 3.1]
    "adam": 8,  # two float32 moments [Kingma 2015]
    "momentum": 4,
    "sgd": 0,
    _INFERENCE: 0,
}
"""Bytes of state per parameter.  Gradients take as many bytes as weights, and inference has none."""


@dataclass(frozen=True, slots=True)
class CostOptions:
    """Options of the costs of a graph on a mesh."""

    dtype: str = option("bf16", Option("Number format", "Of weights and activations", choices=tuple(BYTES_OF)))
    optimizer: str = option(
        "adam-mixed", Option("Optimizer", "What training keeps per parameter", choices=tuple(OPTIMIZERS))
    )
    in_flight: int | str = option(
        ONE_F_ONE_B,
        Option(
            "Micro-batches in flight",
            "Activations that a stage holds in training. 1f1b: the k-th stage from the end holds those of k "
            "micro-batches; gpipe: every stage holds all; a number: every stage holds so many",
            1,
            MAX_IN_FLIGHT,
            choices=(ONE_F_ONE_B, GPIPE),
            numbers=True,
        ),
    )
    micro_batches: int = option(
        32, Option("Micro-batches of a step", "No stage holds the activations of more", 1, 1_000_000)
    )

    tensor: int = option(
        1, Option("Tensor-parallel degree", "Neighbouring devices that share each operator, as one group", 1, 64)
    )

    @property
    def held(self) -> InFlight:
        """The micro-batches that the stages of a pipeline hold."""
        return InFlight(self.in_flight, self.micro_batches)


@lru_cache(maxsize=8)
def costed(graph: OperatorGraph, mesh: DeviceMesh, options: CostOptions) -> OperatorGraph:
    """The graph with times on the mesh's kinds, and `size` as held with one micro-batch, or the number in flight.

    Equal arguments get the same graph, so that two placements on it are quickly compared.

    A training graph, one with backward operators, holds gradients and optimizer state for every weight; another one
    weights alone.  A `size` that the graph has already is kept.

    Raises InputError where a time is neither given nor can be derived, or the graph's times are not in seconds.
    """
    if graph.time_unit != "s":
        raise InputError(f"graph {graph.name}", f"its times are in {graph.time_unit}, those of a mesh in s")
    known = timed(graph, mesh.devices, options.dtype)
    return replace(known, operators=tuple(_with_size(each, graph, options) for each in known.operators))


def _static_bytes(operator: Operator, graph: OperatorGraph, options: CostOptions) -> int:
    """Weights, and in training their gradients and optimizer state, of one operator."""
    if not operator.weight_bytes:
        return 0
    optimizer, width = options.optimizer if graph.is_training else _INFERENCE, width_of(options.dtype)
    state, gradient = find(OPTIMIZERS, optimizer, "optimizer"), 0 if optimizer == _INFERENCE else width
    return operator.weight_bytes * (width + gradient + state) // width


def _with_size(operator: Operator, graph: OperatorGraph, options: CostOptions) -> Operator:
    if operator.size is not None:
        return operator
    held = _static_bytes(operator, graph, options) + options.held.included * (operator.activation_bytes or 0)
    return replace(operator, size=float(held))


def timed(graph: OperatorGraph, devices: Iterable[Device], dtype: str = "bf16") -> OperatorGraph:
    """The graph with a time, in seconds, on the kinds of the devices; a time that it has already is kept.

    An operator with times but without FLOPs and bytes gets none, so it is not supported on other kinds.  Launches of a
    graph with backward operators are those of autograd.

    Raises InputError for an operator without a time, FLOPs and bytes, and for a device whose rates are not known.
    """
    kinds, training = {device.kind: device for device in devices}, graph.is_training
    weights = {each.name: each.weight_bytes or 0 for each in graph.operators}
    made = (_made_bytes(each, weights) for each in graph.operators)
    pairs = zip(graph.operators, made, strict=True)
    return replace(graph, operators=tuple(_timed(each, kinds, dtype, training, bytes_) for each, bytes_ in pairs))


def _made_bytes(operator: Operator, weights: Mapping[str, int]) -> int | None:
    """The bytes that an operator makes: a whole backward of a product makes the gradient of its weights too."""
    if operator.output_bytes is None or not _is_whole_backward(operator.kind):
        return operator.output_bytes
    return operator.output_bytes + weights.get(operator.forward_of or "", 0)


def _is_whole_backward(kind: str) -> bool:
    return kernel_of(kind) in PRODUCTS and launches_of(kind) > 1


def _timed(
    operator: Operator, kinds: Mapping[str, Device], dtype: str, training: bool, made_bytes: int | None
) -> Operator:
    if operator.flops is None and operator.bytes is None:
        if not operator.times:
            raise InputError(f"operator {operator.name}", "has neither a time nor flops nor bytes to derive one from")
        return operator
    missing = ((kind, device) for kind, device in kinds.items() if operator.time_on(kind) is None)
    asked = replace(operator, output_bytes=made_bytes)
    derived = (DeviceTime(kind, operator_terms(asked, device, dtype, training).seconds) for kind, device in missing)
    return replace(operator, times=(*operator.times, *derived))


@dataclass(frozen=True, slots=True)
class OperatorTerms:
    """Seconds that an operator's launches, arithmetic and traffic with memory take, and all of them together."""

    launch: float
    computing: float
    moving: float
    seconds: float
    casting: float = 0.0
    """Of kernels that cast its operands to another format before."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What an operator launches besides its own kernel: bytes that elementwise kernels move, and their number."""

    bytes: float = 0.0
    launches: int = 0


_ALONE = Beside()


def operator_terms(
    operator: Operator,
    device: Device,
    dtype: str,
    training: bool = False,
    fit: CostFit | None = None,
    *,
    launches: int | None = None,
    casts: Beside = _ALONE,
) -> OperatorTerms:
    """The cost of an operator in a stream of operators in eager mode, where launch and work overlap (`CostFit`).

    By the shipped parameters of the device's kind, or by `fit`.  0 for an operator without work, which is a view.
    `launches` are those of a part of a fused kernel; `casts` come before the operator.

    Raises InputError for a device whose rates are not known.
    """
    work = operator_work(operator, dtype).slowed(times_as_long(operator.kind, device.kind))
    if work.flops == 0 and work.bytes == 0:
        return OperatorTerms(0.0, 0.0, 0.0, 0.0)
    fit, rates = fit or kind_fit(device.kind), rates_of(device, dtype)
    kernel, forward = fit.kernel(work.kernel), fit.launches.forward if training else fit.launches.inference
    mode = fit.launches.backward if is_gradient(operator.kind) else forward
    launch = mode * (launches_of(operator.kind) if launches is None else launches) * kernel.launch
    casting = 0.0
    if casts.launches:
        cast = fit.kernel("elementwise")
        launch += mode * casts.launches * cast.launch
        casting = casts.bytes / (rates.bandwidth * cast.memory)
    computing, moving = kernel.computing(work, rates), kernel.moving(work, rates)
    seconds = fit.joined(launch, kernel.busy(work, rates) + casting)
    return OperatorTerms(launch, computing, moving, seconds, casting)


def operator_work(operator: Operator, dtype: str) -> Work:
    """The work of all its launches together."""
    name, moved = kernel_of(operator.kind), operator.bytes or 0.0
    return Work(name, operator.flops or 0.0, moved, outputs_of(name, moved, operator.output_bytes, width_of(dtype)))


def with_batch_size(graph: OperatorGraph, batch_size: int) -> OperatorGraph:
    """The graph of a micro-batch of `batch_size` samples, in proportion to what the graph's own batch costs.

    FLOPs, activations, outputs, transfers and given times grow with the batch; weights do not, and neither does that
    part of the bytes moved that is weights, nor a `size` that was given as one number.  Derived times are better
    derived anew from the result.

    Raises InputError for a batch size below 1.
    """
    check_integer("micro-batch size", "it", batch_size, least=1)
    ratio = batch_size / graph.batch_size
    if ratio == 1:
        return graph
    operators = tuple(_scaled_operator(each, ratio) for each in graph.operators)
    edges = tuple(_scaled_edge(each, ratio) for each in graph.edges)
    return replace(graph, operators=operators, edges=edges, batch_size=batch_size)


def _scaled_operator(operator: Operator, ratio: float) -> Operator:
    weights = min(operator.weight_bytes or 0, operator.bytes or 0)
    return replace(
        operator,
        times=tuple(DeviceTime(each.kind, each.time * ratio) for each in operator.times),
        flops=None if operator.flops is None else operator.flops * ratio,
        bytes=None if operator.bytes is None else weights + (operator.bytes - weights) * ratio,
        activation_bytes=_whole(operator.activation_bytes, ratio),
        output_bytes=_whole(operator.output_bytes, ratio),
    )


def _scaled_edge(edge: Edge, ratio: float) -> Edge:
    return replace(edge, bytes=_whole(edge.bytes, ratio), cost=None if edge.cost is None else edge.cost * ratio)


def _whole(amount: int | None, ratio: float) -> int | None:
    return None if amount is None else round(amount * ratio)
