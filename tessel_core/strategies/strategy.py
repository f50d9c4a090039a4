"""How a network is spread: the degrees of parallelism, the micro-batches, and the order of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tessel_core.errors import InputError
from tessel_core.ir.distributed import Distributed, check_degree
from tessel_core.ir.operators.optimizers import NARROW
from tessel_core.ir.program import Program
from tessel_core.ir.transforms.checkpoint import Recompute, recomputing
from tessel_core.ir.transforms.compiled import Compiled
from tessel_core.ir.transforms.data import DataParallel
from tessel_core.ir.transforms.pipeline import Pipeline
from tessel_core.ir.transforms.precision import Fp8Linears
from tessel_core.ir.transforms.tensor import TensorParallel
from tessel_core.ir.transforms.update import ShardedOptimizer, with_gradients
from tessel_core.model import Device, DeviceMesh, Link, PeakRate
from tessel_core.simulation import Trace, simulate
from tessel_core.simulation.trace import shortage, worker_peaks
from tessel_core.strategies.families import Family, Spec
from tessel_core.strategies.orders import DEFAULT_ORDER, LOOP, StageForm, order_objection, stage_form, stage_order
from tessel_core.strategies.ranks import (
    DEFAULT_RANK_ORDER,
    DISTIR_RANK_ORDER,
    RankOrder,
    Ranks,
    rank_order_words,
    read_rank_order,
)

BUCKET_BYTES = 25 * 2**20
"""Gradients that PyTorch's DistributedDataParallel reduces together by default (`bucket_cap_mb`)."""


class Semantics(StrEnum):
    """The rules of time and memory that a simulation follows."""

    DEFAULT = "default"
    """Streams that overlap, rings, kernels as fitted."""
    DISTIR = "distir"
    """DistIR's published code, faults included."""

    @property
    def compat(self) -> str | None:
        """The argument `compat` of `simulate`."""
        return None if self is Semantics.DEFAULT else self.value


@dataclass(frozen=True, slots=True)
class Strategy:
    """`data` replicas of a pipeline over `pipeline` groups of `tensor` devices.

    Raises InputError for a degree below 1, and for a rank order that does not name each dimension once.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    micro_batches: int = 1
    schedule: str = DEFAULT_ORDER
    """The scheduler that orders the micro-batches."""
    recompute: Recompute = Recompute.NONE
    """Which operations run again for their backward, so that what they make need not be kept."""
    zero: bool = False
    """Whether replicas share the optimizer's state, each with a part of it (ZeRO-1)."""
    stages_per_device: int = 1
    """Stages on each device of the pipeline, which then goes round the devices as often (the loop form)."""
    rank_order: RankOrder | None = None
    """Which dimensions are neighbours, innermost first; None for the usual order of the semantics."""
    bucket_bytes: int = BUCKET_BYTES
    """Gradients that replicas reduce together; 0 to reduce them one by one."""
    fp8: bool = False
    """Whether products of linear layers are computed in FP8; all else keeps the network's format."""
    compiled: bool = False
    """Whether each layer runs as torch.compile makes it, which also recomputes pointwise operators in the backward."""

    def __post_init__(self) -> None:
        for name in ("data", "tensor", "pipeline", "micro_batches", "stages_per_device"):
            check_degree(name.replace("_", "-"), getattr(self, name))
        if self.rank_order is not None:
            read_rank_order(",".join(self.rank_order))
        if self.bucket_bytes < 0:
            raise InputError("bucket", f"must not be negative, got {self.bucket_bytes}")

    @property
    def devices(self) -> int:
        """The number of devices."""
        return self.data * self.tensor * self.pipeline

    @property
    def form(self) -> StageForm:
        """How its stages lie on devices, and whether their backward passes are split."""
        shape = self.pipeline, self.micro_batches, self.stages_per_device
        return stage_form(self.schedule, *shape) or LOOP

    @property
    def stages(self) -> int:
        """The number of stages of the pipeline."""
        return self.pipeline * self.stages_per_device

    def ranks(self, semantics: Semantics) -> Ranks:
        """How its devices are numbered."""
        order = self.rank_order or (DEFAULT_RANK_ORDER if semantics is Semantics.DEFAULT else DISTIR_RANK_ORDER)
        return Ranks(self.data, self.tensor, self.pipeline, order)

    def __str__(self) -> str:
        return f"{self.data}/{self.tensor}/{self.pipeline}/{self.micro_batches} {self.how}"

    @property
    def summary(self) -> str:
        """The strategy in words, without what is not divided: "2 replicas, 4 stages, 8 micro-batches, pipedream"."""
        degrees = (
            (self.data, f"{self.data} replicas"),
            (self.pipeline, f"{self.stages} stages"),
            (self.tensor, f"tensors over {self.tensor}"),
            (self.micro_batches, f"{self.micro_batches} micro-batches"),
        )
        words = [text for degree, text in degrees if degree > 1] + ([self.schedule] if self.pipeline > 1 else [])
        words += self._saving + self._running + self._placed
        return ", ".join(words if self.devices > 1 else ["one device", *words])

    @property
    def how(self) -> str:
        """The strategy without its degrees."""
        return ", ".join([self.schedule, *self._saving, *self._running, *self._placed])

    @property
    def _saving(self) -> list[str]:
        """How it saves memory, in words."""
        return _RECOMPUTING[self.recompute] + ["ZeRO"] * self.zero

    @property
    def _running(self) -> list[str]:
        """How its kernels differ from the usual ones, in words."""
        return ["FP8"] * self.fp8 + ["compiled"] * self.compiled

    @property
    def _placed(self) -> list[str]:
        """What is not as usual about stages and ranks, in words."""
        several = [f"{self.stages_per_device} stages per device"] * (self.stages_per_device > 1)
        usual = self.rank_order in (None, DEFAULT_RANK_ORDER)
        return several + ([] if usual else [f"ranks {rank_order_words(self.rank_order or ())}"])


_RECOMPUTING = {
    Recompute.NONE: [],
    Recompute.SELECTIVE: ["recomputing selectively"],
    Recompute.FULL: ["recomputing"],
}
MOST_LAYERS = 10_000
"""Most layers of a network."""
MOST_TRACED = 400_000
"""Operations of a program that is simulated one by one unless somebody asks for its trace: some seconds of work."""
MOST_PARTS = 500_000
"""Most layers of a program, counted on each device and for each micro-batch: some million operations."""


def build_program(
    family: Family,
    spec: Spec,
    strategy: Strategy,
    semantics: Semantics = Semantics.DEFAULT,
    *,
    gradients: bool = False,
) -> Distributed:
    """The network on the strategy's devices; in training the optimizer's step is included.

    With `gradients`, which the step takes, they are outputs too.  DistIR's semantics number the devices by its order
    and reduce gradients one by one.

    Raises InputError where a degree does not divide what it divides, or the scheduler does not suit.
    """
    optimizer = family.optimizer(spec)
    model = family.build(spec, split_weights=optimizer is not None and strategy.form.split)
    if strategy.fp8:
        model = Fp8Linears()(model)
    recompute = strategy.recompute
    if strategy.compiled and optimizer is not None and recompute == Recompute.NONE:
        recompute = Recompute.SELECTIVE  # the compiler keeps no pointwise results [PyTorch, min-cut partitioner]
    model = TensorParallel(strategy.tensor)(recomputing(recompute, model))
    if strategy.compiled:
        model = Compiled()(model)
    shape = strategy.pipeline, strategy.micro_batches, optimizer is not None, strategy.stages_per_device
    bucket = max(1, strategy.bucket_bytes) if semantics is Semantics.DEFAULT else 0
    model = Pipeline(stage_order(strategy.schedule, *shape))(model)
    model = DataParallel(strategy.data, bucket_bytes=bucket)(model)
    ranks = strategy.ranks(semantics)
    if optimizer is None:
        return ranks.numbered(model)
    updated = ShardedOptimizer(optimizer)(model) if strategy.zero else optimizer(model)
    return ranks.numbered(with_gradients(model, updated) if gradients else updated)


def count_operations(family: Family, spec: Spec, strategy: Strategy) -> int:
    """About how many its program has, from the program of one device, which is quick to build."""
    alone = build_program(family, spec, Strategy(recompute=strategy.recompute))
    return len(alone.program.ops) * strategy.data * strategy.tensor * strategy.micro_batches


def why_not(family: Family, spec: Spec, strategy: Strategy, mesh: DeviceMesh | None, semantics: Semantics) -> str:
    """The first objection to a strategy before anything is built, as one sentence; empty where there is none.

    Without a mesh there are as many devices as it takes.
    """
    return next(_objections(family, spec, strategy, mesh, semantics), "")


def _objections(
    family: Family, spec: Spec, strategy: Strategy, mesh: DeviceMesh | None, semantics: Semantics
) -> Iterator[str]:
    parts = strategy.data * strategy.micro_batches
    if mesh is not None and strategy.devices > len(mesh.devices):
        yield f"it takes {strategy.devices} devices, the mesh has {len(mesh.devices)}"
    if spec.batch % parts:
        division = f"{strategy.data} x {strategy.micro_batches} parts, replicas by micro-batches"
        yield f"a batch of {spec.batch} does not divide into {division}"
    if objection := family.objection(spec, strategy.tensor):
        yield objection
    if spec.layers > MOST_LAYERS:
        yield f"{spec.layers:,} layers are more than the {MOST_LAYERS:,} that are counted"
    if strategy.stages_per_device > 1 and strategy.pipeline == 1:
        yield "several stages per device need a pipeline over at least 2 devices"
    if strategy.stages > spec.layers:
        yield f"{strategy.stages} stages need as many layers, there are {spec.layers}"
    if semantics is Semantics.DISTIR and strategy.rank_order not in (None, DISTIR_RANK_ORDER):
        yield f"DistIR numbers its devices by the rank order {','.join(DISTIR_RANK_ORDER)}, so leave out any other"
    if (strategy.recompute != Recompute.NONE or strategy.zero) and family.optimizer(spec) is None:
        yield "inference has neither a backward to recompute for nor an optimizer to share"
    if strategy.zero and semantics is Semantics.DISTIR:
        yield "DistIR has no sharded optimizer state (ZeRO), so its rules do not say what that costs"
    if strategy.zero and (side := family.shared_side(spec, strategy.tensor)) % strategy.data:
        why = f"weights {side} wide do not divide among {strategy.data} replicas"
        yield f"{why}, so they cannot share the optimizer's state (ZeRO)"
    if strategy.zero and strategy.form.copies > 1:
        yield f"{strategy.schedule} keeps two copies of the network, which do not share an optimizer's state (ZeRO)"
    yield from _kernel_objections(spec, strategy, semantics)
    shape = strategy.pipeline, strategy.micro_batches, strategy.stages_per_device
    if objection := order_objection(strategy.schedule, *shape):
        yield objection


def _kernel_objections(spec: Spec, strategy: Strategy, semantics: Semantics) -> Iterator[str]:
    if (strategy.fp8 or strategy.compiled) and semantics is Semantics.DISTIR:
        yield "DistIR has neither FP8 nor compiled kernels, so its rules do not say what those cost"
    if strategy.fp8 and spec.dtype not in NARROW:
        yield f"linear layers in FP8 take numbers of 16 bits, the network's are {spec.dtype}"


def refuse_impossible(
    family: Family, spec: Spec, strategy: Strategy, mesh: DeviceMesh | None, semantics: Semantics
) -> None:
    """Raise InputError where a strategy cannot be, as `why_not`."""
    objection = why_not(family, spec, strategy, mesh, semantics)
    if objection:
        raise InputError(f"strategy {strategy}", objection)


def check_strategy(
    family: Family,
    spec: Spec,
    strategy: Strategy,
    mesh: DeviceMesh | None = None,
    semantics: Semantics = Semantics.DEFAULT,
) -> None:
    """Raise InputError where a strategy cannot be, as `why_not`, or its program would be too long."""
    refuse_impossible(family, spec, strategy, mesh, semantics)
    parts = spec.layers * strategy.data * strategy.tensor * strategy.micro_batches
    if parts > MOST_PARTS:
        most = f"more than the {MOST_PARTS:,} that are taken one by one"
        raise InputError(f"strategy {strategy}", f"has {parts:,} layers by devices and micro-batches, {most}")


@dataclass(frozen=True)
class Simulated:
    """A program and its trace."""

    program: Program
    trace: Trace
    ranks: Ranks
    """How the program's devices are numbered."""
    shortage: str = ""
    """Why it does not fit the mesh's memory; empty where it does."""


def simulate_strategy(
    family: Family,
    spec: Spec,
    strategy: Strategy,
    mesh: DeviceMesh,
    semantics: Semantics = Semantics.DEFAULT,
    *,
    overlap: bool = True,
    link_sharing: bool = False,
) -> Simulated:
    """The strategy on the first devices of the mesh, in their order; raises InputError where it cannot be."""
    check_strategy(family, spec, strategy, mesh, semantics)
    program = build_program(family, spec, strategy, semantics).program
    trace = simulate(program, mesh, compat=semantics.compat, overlap=overlap, link_sharing=link_sharing)
    return Simulated(program, trace, strategy.ranks(semantics), shortage(worker_peaks(trace), mesh))


def equal_devices(count: int, flops: float, bytes_per_second: float, gigabits: float) -> DeviceMesh:
    """So many equal devices, all pairs equally linked at Gb/s (1.25e8 bytes), as DistIR's experiments have it."""
    rates = tuple(PeakRate(dtype, flops) for dtype in ("fp32", "fp16", "bf16"))
    devices = tuple(Device(f"gpu{i}", "gpu", 0, None, rates, bytes_per_second) for i in range(count))
    return DeviceMesh("uniform", devices, same_node_link=Link(gigabits * 1.25e8))
