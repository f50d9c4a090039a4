"""Costs of a graph's operators on the devices of a mesh, in seconds and bytes, for any batch size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from tessel_core.costs.fit import CostFit, KernelFit, Rates, kind_fit, rates_of, times_as_long
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
    "adam-mixed": 12,  # A float32 copy of the weight and two moments [Rajbhandari 2020, section 3.1].
    "adam": 8,  # Two float32 moments [Kingma 2015].
    "momentum": 4,
    "sgd": 0,
    _INFERENCE: 0,
}
"""Bytes of optimizer state per parameter.

In training, gradients take as many additional bytes as the weights. Inference has neither.
"""


@dataclass(frozen=True, slots=True)
class CostOptions:
    """Options for the costs of a graph on a mesh."""

    dtype: str = option(
        "bf16", Option("Number format", "Number format of weights and activations", choices=tuple(BYTES_OF))
    )
    optimizer: str = option(
        "adam-mixed",
        Option("Optimizer", "Determines how many bytes training keeps per parameter", choices=tuple(OPTIMIZERS)),
    )
    in_flight: int | str = option(
        ONE_F_ONE_B,
        Option(
            "Micro-batches in flight",
            "Number of micro-batches whose activations a stage holds in training. With 1f1b, the k-th stage from the "
            "end holds k. With gpipe, every stage holds all. With a number, every stage holds that many",
            1,
            MAX_IN_FLIGHT,
            choices=(ONE_F_ONE_B, GPIPE),
            numbers=True,
        ),
    )
    micro_batches: int = option(
        32,
        Option(
            "Micro-batches of a step",
            "Micro-batches per training step. No stage holds the activations of more micro-batches",
            1,
            1_000_000,
        ),
    )

    tensor: int = option(
        1,
        Option(
            "Tensor-parallel degree",
            "Number of neighbouring devices in a group. The devices of a group run each operator together",
            1,
            64,
        ),
    )

    @property
    def held(self) -> InFlight:
        """Number of micro-batches whose activations each stage of a pipeline holds."""
        return InFlight(self.in_flight, self.micro_batches)


@lru_cache(maxsize=8)
def costed(graph: OperatorGraph, mesh: DeviceMesh, options: CostOptions) -> OperatorGraph:
    """Return the graph with times for the devices of the mesh, and with the `size` of each operator in bytes.

    `size` includes the activations of one micro-batch, or of the micro-batches in flight. A training graph, which has
    backward operators, also has gradients and optimizer state for every weight. Other graphs have only weights. A
    `size` that the graph already has is kept. Equal arguments return the same object, so that placements on it can be
    compared quickly.

    Raises InputError if a time is neither given nor can be derived, or if the graph's times are not in seconds.
    """
    if graph.time_unit != "s":
        raise InputError(f"graph {graph.name}", f"its times are in {graph.time_unit}, but times on a mesh are in s")
    known = timed(graph, mesh.devices, options.dtype)
    return replace(known, operators=tuple(_with_size(each, graph, options) for each in known.operators))


def _static_bytes(operator: Operator, graph: OperatorGraph, options: CostOptions) -> int:
    """Return the bytes of an operator's weights and, in training, of their gradients and optimizer state."""
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
    """Return the graph with a time in seconds for each kind of device. Times that the graph already has are kept.

    An operator with times but without FLOPs and bytes gets no further times, so other kinds of devices cannot run it.
    In a graph with backward operators, launches are as slow as autograd makes them.

    Raises InputError for an operator without a time, FLOPs and bytes, and for a device whose rates are unknown.
    """
    kinds, training = {device.kind: device for device in devices}, graph.is_training
    weights = {each.name: each.weight_bytes or 0 for each in graph.operators}
    made = (_made_bytes(each, weights) for each in graph.operators)
    pairs = zip(graph.operators, made, strict=True)
    return replace(graph, operators=tuple(_timed(each, kinds, dtype, training, bytes_) for each, bytes_ in pairs))


def _made_bytes(operator: Operator, weights: Mapping[str, int]) -> int | None:
    """Return the bytes that an operator writes, or None if unknown.

    If the backward pass of a product is one operator, it also writes the gradient of its weights.
    """
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
            raise InputError(
                f"operator {operator.name}", "has no time, and no flops or bytes from which a time could be derived"
            )
        return operator
    missing = ((kind, device) for kind, device in kinds.items() if operator.time_on(kind) is None)
    asked = replace(operator, output_bytes=made_bytes)
    derived = (DeviceTime(kind, operator_terms(asked, device, dtype, training).seconds) for kind, device in missing)
    return replace(operator, times=(*operator.times, *derived))


@dataclass(frozen=True, slots=True)
class OperatorTerms:
    """Seconds of an operator's launches, its arithmetic and its memory traffic, and of the whole operator."""

    launch: float
    computing: float
    moving: float
    seconds: float
    casting: float = 0.0
    """Seconds of the kernels that first cast its factors to another number format."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Additional elementwise kernels of an operator: the bytes that they move, and their number."""

    bytes: float = 0.0
    launches: int = 0


_NO_KERNELS = Beside()


def operator_terms(
    operator: Operator,
    device: Device,
    dtype: str,
    training: bool = False,
    fit: CostFit | None = None,
    *,
    launches: int | None = None,
    casts: Beside = _NO_KERNELS,
) -> OperatorTerms:
    """Return the cost of an operator in eager mode, in which launches overlap with work (see `CostFit`).

    The parameters are those in `fit`, or the shipped parameters for the kind of device. An operator without work, such
    as a view, takes 0 seconds. For a part of a fused kernel, `launches` replaces the number of launches. The kernels in
    `casts` run before the operator.

    Raises InputError for a device whose rates are unknown.
    """
    work = operator_work(operator, dtype)
    if work.flops == 0 and work.bytes == 0:
        return _NO_WORK
    return kernel_speed(operator.kind, device, dtype, training, fit, launches=launches).terms(work, casts)


_NO_WORK = OperatorTerms(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class KernelSpeed:
    """How fast a device runs one kind of operator."""

    fit: CostFit
    kernel: KernelFit
    rates: Rates
    mode: float
    """Factor on the time of launches."""
    launches: int
    times: float
    """Duration of the arithmetic, divided by that of the kernel that was fitted."""

    def terms(self, work: Work, casts: Beside = _NO_KERNELS) -> OperatorTerms:
        """Return the cost of an operator with some work. The kernels in `casts` run before it."""
        work, kernel, rates = work.slowed(self.times), self.kernel, self.rates
        launch, casting = self.mode * self.launches * kernel.launch, 0.0
        if casts.launches:
            cast = self.fit.kernel("elementwise")
            launch += self.mode * casts.launches * cast.launch
            casting = casts.bytes / (rates.bandwidth * cast.memory)
        computing, moving = kernel.computing(work, rates), kernel.moving(work, rates)
        seconds = self.fit.joined(launch, kernel.joined(computing, moving) + casting)
        return OperatorTerms(launch, computing, moving, seconds, casting)


def kernel_speed(
    kind: str, device: Device, dtype: str, training: bool, fit: CostFit | None, *, launches: int | None = None
) -> KernelSpeed:
    """Return how fast a device runs one kind of operator. The arguments are those of `operator_terms`."""
    fit, rates = fit or kind_fit(device.kind), rates_of(device, dtype)
    forward = fit.launches.forward if training else fit.launches.inference
    mode = fit.launches.backward if is_gradient(kind) else forward
    count = launches_of(kind) if launches is None else launches
    return KernelSpeed(fit, fit.kernel(kernel_of(kind)), rates, mode, count, times_as_long(kind, device.kind))


def operator_work(operator: Operator, dtype: str) -> Work:
    """Return the work of all kernels of an operator together."""
    return work_of(operator.kind, operator.flops or 0.0, operator.bytes or 0.0, operator.output_bytes, dtype)


def work_of(kind: str, flops: float, moved: float, output_bytes: int | None, dtype: str) -> Work:
    """Return the work of all kernels of an operator together, from its FLOPs and the bytes that it moves and writes."""
    name = kernel_of(kind)
    return Work(name, flops, moved, outputs_of(name, moved, output_bytes, width_of(dtype)))


def with_batch_size(graph: OperatorGraph, batch_size: int) -> OperatorGraph:
    """Return the graph for a micro-batch of `batch_size` samples, scaled from the graph's own batch size.

    FLOPs, activations, outputs, transfers and given times grow with the batch. Weights, the bytes moved for weights,
    and a `size` that is a single number do not. If times were derived, derive them again from the result.

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
