"""Strategies: degrees of parallelism, micro-batches and the order of the pipeline.

Build and simulate their programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from tessel_core.errors import InputError
from tessel_core.ir.distributed import Distributed, check_degree
from tessel_core.ir.operators.attributes import integer
from tessel_core.ir.operators.optimizers import NARROW
from tessel_core.ir.program import Program
from tessel_core.ir.transforms.attention import AttentionKernel
from tessel_core.ir.transforms.checkpoint import Recompute, holding_selected, keeping_products, recomputing
from tessel_core.ir.transforms.compiled import Compiled
from tessel_core.ir.transforms.context import ContextMethod, ContextParallel
from tessel_core.ir.transforms.data import DataParallel
from tessel_core.ir.transforms.expansion import expanded
from tessel_core.ir.transforms.experts import ExpertParallel
from tessel_core.ir.transforms.pipeline import Pipeline, stages_of_layers, with_parts_apart
from tessel_core.ir.transforms.precision import Fp8Linears
from tessel_core.ir.transforms.tensor import TensorParallel
from tessel_core.ir.transforms.update import GradientFormat, ShardedOptimizer, with_gradients
from tessel_core.ir.transforms.zero import ShardedReplicas
from tessel_core.model import Device, DeviceMesh, Link, PeakRate
from tessel_core.shown import Shown
from tessel_core.simulation import Trace, simulate
from tessel_core.simulation.costs import MeshCosts
from tessel_core.simulation.ranks import RankCosts
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
"""Default size in bytes of a bucket in PyTorch's DistributedDataParallel (`bucket_cap_mb`)."""


ZERO_STAGES = (0, 1, 2, 3)
GRADIENT_FORMATS = ("", "fp32", "bf16", "fp16")


class Semantics(StrEnum):
    """Rules for time and memory that a simulation follows."""

    DEFAULT = "default"
    """Streams that overlap, collectives on rings, and fitted durations of kernels."""
    DISTIR = "distir"
    """The rules of DistIR's published code, including its errors."""

    @property
    def compat(self) -> str | None:
        """Value for the argument `compat` of `simulate`."""
        return None if self is Semantics.DEFAULT else self.value


@dataclass(frozen=True, slots=True)
class Strategy:
    """`data` replicas of a pipeline. The pipeline has `pipeline` positions with `tensor` devices each.

    Raises InputError for a degree below 1, a rank order that does not name each dimension once, a layout that does not
    fit the stages, and unknown values of other fields.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    micro_batches: int = 1
    schedule: str = DEFAULT_ORDER
    """Name of the scheduler that orders the micro-batches."""
    recompute: Recompute = Recompute.NONE
    """Operations that are repeated before the backward pass, so that their results need not be kept."""
    zero: int = 0
    """Stage of ZeRO. Replicas divide the optimizer state (1), also gradients (2), and also weights (3, FSDP)."""
    stages_per_device: int = 1
    """Number of stages on each device of the pipeline.

    In the loop form, stages go around the devices this many times.
    """
    rank_order: RankOrder | None = None
    """Dimensions of the ranks, innermost first. None is the default order of the semantics."""
    bucket_bytes: int = BUCKET_BYTES
    """Smallest size in bytes of a group of gradients that replicas reduce together. 0 reduces each gradient alone."""
    context: int = 1
    """Number of devices that divide the tokens of each sample."""
    context_method: ContextMethod = ContextMethod.RING
    """How devices that divide the tokens compute attention."""
    expert: int = 1
    """Number of devices that divide the experts of each layer.

    Their number includes devices of the tensor, context and data dimensions.
    """
    sequence_parallel: bool = False
    """Whether tensor-parallel devices divide activations along the tokens between products, and the vocabulary."""
    reshard: bool = True
    """Whether ZeRO-3 frees gathered weights between the forward and the backward run of a layer."""
    grad_dtype: str = ""
    """Number format in which gradients are summed. Empty for that of the weights."""
    attention: AttentionKernel = AttentionKernel.FUSED
    """Kernel for attention. Unfused attention has one operator per step and keeps the scores in memory."""
    fp8: bool = False
    """Whether products of linear layers are computed in FP8.

    All other operators keep the number format of the network.
    """
    compiled: bool = False
    """Whether torch.compile compiles each layer. The backward pass then also recomputes pointwise operators."""
    layout: tuple[int, ...] = ()
    """Number of layers of each stage.

    If empty, all stages have the same number, and the first get one more if any remain.
    """
    eager_loss: bool = False
    """Whether the loss is not compiled. It then holds copies of the logits in fp32."""

    def __post_init__(self) -> None:
        for name in ("data", "tensor", "pipeline", "micro_batches", "stages_per_device", "context", "expert"):
            check_degree(name.replace("_", "-"), getattr(self, name))
        if self.zero not in ZERO_STAGES:
            raise InputError("zero", f"must be one of {', '.join(map(str, ZERO_STAGES))}, got {self.zero}")
        if self.grad_dtype not in GRADIENT_FORMATS:
            known = ", ".join(GRADIENT_FORMATS[1:])
            raise InputError("grad-dtype", f"must be one of {known}, got {self.grad_dtype!r}")
        if self.rank_order is not None:
            read_rank_order(",".join(self.rank_order))
        if self.layout and (len(self.layout) != self.stages or min(self.layout) < 1):
            why = f"gives each of {self.stages} stages 1 layer or more, got {','.join(map(str, self.layout))}"
            raise InputError("layout", why)
        if self.bucket_bytes < 0:
            raise InputError("bucket", f"must not be negative, got {self.bucket_bytes}")

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.data * self.context * self.tensor * self.pipeline

    @property
    def form(self) -> StageForm:
        """How stages are placed on devices, and whether their backward passes are split."""
        shape = self.pipeline, self.micro_batches, self.stages_per_device
        return stage_form(self.schedule, *shape) or LOOP

    @property
    def stages(self) -> int:
        """Number of stages of the pipeline."""
        return self.pipeline * self.stages_per_device

    def ranks(self, semantics: Semantics) -> Ranks:
        """Return how the devices are numbered."""
        order = self.rank_order or (DEFAULT_RANK_ORDER if semantics is Semantics.DEFAULT else DISTIR_RANK_ORDER)
        return Ranks(self.data, self.tensor, self.pipeline, order, self.context, self.expert)

    @property
    def scatters_at_once(self) -> bool:
        """Whether every micro-batch gathers weights or scatters gradients.

        ZeRO-3 without `reshard` does so once per step if there are several micro-batches, as PyTorch's FSDP does in a
        pipeline. It gathers weights before the first micro-batch, and scatters gradients after the last. Its
        communication and memory are those of ZeRO-1, which gathers weights at the end of the previous step.
        """
        once = self.zero == ZERO_STAGES[-1] and not self.reshard and self.micro_batches > 1
        return self.zero > 1 and not once

    @property
    def selects_products(self) -> bool:
        """Whether recomputation keeps the results of some products."""
        return self.recompute == Recompute.SELECTIVE and self.attention != AttentionKernel.UNFUSED

    @property
    def plain(self) -> bool:
        """Whether the strategy has only data, tensor and pipeline parallelism, micro-batches, and at most ZeRO-1.

        It must also compute the network as it is written, with the same number of layers in each stage.
        """
        apart = self.context > 1 or self.expert > 1 or self.sequence_parallel
        kernels = self.fp8 or self.compiled or self.attention != AttentionKernel.FUSED
        written = not (kernels or self.grad_dtype or self.layout)
        return not apart and written and self.zero < ZERO_STAGES[2]

    def __str__(self) -> str:
        return f"{self.data}/{self.tensor}/{self.pipeline}/{self.micro_batches} {self.how}"

    @property
    def summary(self) -> str:
        """Description without degrees of 1, such as "2 replicas, 4 stages, 8 micro-batches, pipedream"."""
        degrees = (
            (self.data, f"{self.data} replicas"),
            (self.pipeline, f"{self.stages} stages"),
            (self.tensor, f"tensors over {self.tensor}" + " (sequence parallel)" * self.sequence_parallel),
            *self._shared,
            (self.micro_batches, f"{self.micro_batches} micro-batches"),
        )
        words = [text for degree, text in degrees if degree > 1] + ([self.schedule] if self.pipeline > 1 else [])
        words += self._saving + self._running + self._placed
        return ", ".join(words if self.devices > 1 else ["one device", *words])

    @property
    def how(self) -> str:
        """Description without the degrees D, H, P and K."""
        shared = [text for degree, text in self._shared if degree > 1]
        shared += ["sequence parallel"] * (self.sequence_parallel and self.tensor > 1)
        return ", ".join([self.schedule, *shared, *self._saving, *self._running, *self._placed])

    @property
    def _shared(self) -> tuple[tuple[int, str], ...]:
        """Degrees of context and expert parallelism, each with its description."""
        sequences = f"sequences over {self.context} ({self.context_method})"
        return (self.context, sequences), (self.expert, f"experts over {self.expert}")

    @property
    def _saving(self) -> list[str]:
        """Descriptions of attention, recomputation, ZeRO and the number format of gradients."""
        kernel = [f"{self.attention} attention"] * (self.attention != AttentionKernel.FUSED)
        more = [f"gradients in {self.grad_dtype}"] if self.grad_dtype else []
        kept = " keeping weights" * (self.zero == 3 and not self.reshard)
        return kernel + _RECOMPUTING[self.recompute] + ([f"ZeRO-{self.zero}{kept}"] if self.zero else []) + more

    @property
    def _running(self) -> list[str]:
        """Descriptions of FP8 and compilation."""
        loss = " except for the loss" * self.eager_loss
        return ["FP8"] * self.fp8 + [f"compiled{loss}"] * self.compiled

    @property
    def _placed(self) -> list[str]:
        """Descriptions of stages per device, layout and rank order, unless they have their defaults."""
        several = [f"{self.stages_per_device} stages per device"] * (self.stages_per_device > 1)
        if self.layout:
            uneven = f"{min(self.layout)} to {max(self.layout)} layers in a stage"
            several.append(
                uneven if len(self.layout) > _MAX_LISTED_STAGES else f"layers {'-'.join(map(str, self.layout))}"
            )
        usual = self.rank_order in (None, DEFAULT_RANK_ORDER)
        return several + ([] if usual else [f"ranks {rank_order_words(self.rank_order or ())}"])


_RECOMPUTING = {
    Recompute.NONE: [],
    Recompute.SELECTIVE: ["recomputing selectively"],
    Recompute.FULL: ["recomputing"],
}
_MAX_LISTED_STAGES = 8
"""Up to this number of stages, the description lists the number of layers of each."""
MAX_LAYERS = 10_000
"""Largest number of layers of a network."""
MAX_TRACED = 400_000
"""Largest number of operations of a program that is simulated without asking for its trace. That takes some seconds."""
MAX_PARTS = 500_000
"""Largest number of layers of a program, counted once per device and micro-batch. They have some million operations."""


def build_program(
    family: Family,
    spec: Spec,
    strategy: Strategy,
    semantics: Semantics = Semantics.DEFAULT,
    *,
    gradients: bool = False,
) -> Distributed:
    """Return the program of the network on the devices of the strategy. In training, it includes the optimizer step.

    With `gradients`, the gradients that the optimizer uses are outputs, too. DistIR's semantics number the devices in
    DistIR's order and reduce each gradient alone.

    Raises InputError if a degree does not divide the size that it should divide, or if the scheduler cannot order the
    stages.
    """
    model = program_of_one(family, spec, strategy, semantics, gradients=gradients)
    ranks = strategy.ranks(semantics)
    return ranks.numbered(expanded(model, ranks.degrees))


def program_of_one(
    family: Family,
    spec: Spec,
    strategy: Strategy,
    semantics: Semantics = Semantics.DEFAULT,
    *,
    gradients: bool = False,
) -> Distributed:
    """Return the program with one device for each position of the pipeline. All ranks at a position run the same
    program.

    Raises InputError in the cases of `build_program`.
    """
    optimizer, degrees = family.optimizer(spec), strategy.ranks(semantics).degrees
    split = optimizer is not None and strategy.form.split
    model = family.build(spec, split_weights=split, attention=strategy.attention)
    model = with_layers_cut(model, strategy, training=optimizer is not None)
    shape = strategy.pipeline, strategy.micro_batches, optimizer is not None, strategy.stages_per_device
    stage_of = stages_of_layers(model, strategy.stages, strategy.layout)
    model = with_parts_apart(model, stage_of)
    if strategy.grad_dtype:
        model = GradientFormat(strategy.grad_dtype)(model)
    if strategy.scatters_at_once:
        model = ShardedReplicas(degrees, strategy.zero > 2, strategy.reshard, stage_of.__getitem__)(model)
    how = Pipeline(stage_order(strategy.schedule, *shape), strategy.layout, sums_in_place=bool(strategy.grad_dtype))
    model = how(model)
    bucket = max(1, strategy.bucket_bytes) if semantics is Semantics.DEFAULT else 0
    model = DataParallel(strategy.data, bucket_bytes=bucket).of_one(model, degrees)
    if optimizer is None:
        return model
    updated = ShardedOptimizer(optimizer)(model) if strategy.zero else optimizer(model)
    return with_gradients(model, updated) if gradients else updated


def with_layers_cut(model: Distributed, strategy: Strategy, *, training: bool) -> Distributed:
    """Divide the layers of a model of one device, and return the program that each device runs.

    FP8, recomputation and compilation are applied, too. The program is not yet divided into stages, micro-batches and
    replicas.
    """
    if strategy.fp8:
        model = Fp8Linears()(model)
    if strategy.compiled and training and strategy.recompute == Recompute.NONE:
        model = keeping_products(
            model
        )  # The compiler keeps no results of pointwise operators [PyTorch, min-cut partitioner].
    model = recomputing(strategy.recompute, model)
    model = ExpertParallel(strategy.expert).of_one(model)
    model = ContextParallel(strategy.context, strategy.context_method).of_one(model)
    model = TensorParallel(strategy.tensor, strategy.sequence_parallel).of_one(model)
    if strategy.compiled:
        return Compiled(loss=not strategy.eager_loss)(model)
    return holding_selected(model) if strategy.selects_products else model


@dataclass(frozen=True, slots=True)
class CanBeShared:
    """Sizes that context, expert and tensor parallelism can divide. 0 for sizes that a network does not have."""

    sequence: int
    """Tokens per sample."""
    experts: int
    """Experts per layer."""
    heads: int
    """Smallest number of key-value heads of an attention."""
    weights: bool
    """Whether some weight has an axis along which devices can divide it."""


NO_SEQUENCE = "the network has no sequence of tokens that devices could share"
NO_EXPERTS = "the network has no experts that devices could share"


@lru_cache(maxsize=256)
def can_be_shared(family: Family, spec: Spec) -> CanBeShared:
    """Return the sizes of a network that devices can divide. They are found in its forward program."""
    model = family.forward(family.sample(spec)[0])
    program, sequences, experts, weights = model.program, [0], [0], False
    for value, piece in model.piece_of.items():
        role, shape = model.role_of(piece), program.types[value].shape
        sequences += [] if role.sequence_axis is None else [shape[role.sequence_axis]]
        experts += [] if role.expert_axis is None else [shape[role.expert_axis]]
        weights |= role.shard_axis is not None
    attentions = (op for op in program.ops if op.kind == "attention")
    heads = (program.types[op.inputs[1]].shape[2] // integer(dict(op.attributes), "head_size") for op in attentions)
    return CanBeShared(max(sequences), max(experts), min(heads, default=0), weights)


def count_operations(family: Family, spec: Spec, strategy: Strategy) -> int:
    """Return an estimate of the number of operations of a strategy's program, from the program of one device."""
    alone = build_program(family, spec, Strategy(recompute=strategy.recompute, attention=strategy.attention))
    return len(alone.program.ops) * strategy.devices // strategy.pipeline * strategy.micro_batches


def why_not(family: Family, spec: Spec, strategy: Strategy, mesh: DeviceMesh | None, semantics: Semantics) -> str:
    """Return why a strategy is impossible, in one sentence. Empty if it is possible.

    No program is built. Without a mesh, the number of devices is not checked.
    """
    return next(_objections(family, spec, strategy, mesh, semantics), "")


def _objections(
    family: Family, spec: Spec, strategy: Strategy, mesh: DeviceMesh | None, semantics: Semantics
) -> Iterator[str]:
    parts = strategy.data * strategy.micro_batches
    if mesh is not None and strategy.devices > len(mesh.devices):
        yield f"it needs {strategy.devices} devices, but the mesh has {len(mesh.devices)}"
    if spec.batch % parts:
        division = f"{strategy.data} x {strategy.micro_batches} parts (replicas x micro-batches)"
        yield f"a batch of {spec.batch} does not divide into {division}"
    if objection := family.objection(spec, strategy.tensor):
        yield objection
    if spec.layers > MAX_LAYERS:
        yield f"{spec.layers:,} layers are more than the {MAX_LAYERS:,} allowed"
    yield from _stage_objections(spec, strategy)
    if semantics is Semantics.DISTIR and strategy.rank_order not in (None, DISTIR_RANK_ORDER):
        yield f"DistIR numbers its devices by the rank order {','.join(DISTIR_RANK_ORDER)}, so it allows no other order"
    if (strategy.recompute != Recompute.NONE or strategy.zero) and family.optimizer(spec) is None:
        yield "inference has no backward pass and no optimizer, so it has neither recomputation nor ZeRO"
    if strategy.zero and semantics is Semantics.DISTIR:
        yield "DistIR's rules have no cost for ZeRO"
    if strategy.zero == 1 and strategy.plain and (side := family.shared_side(spec, strategy.tensor)) % strategy.data:
        why = f"weights with an axis of {side} do not divide among {strategy.data} replicas"
        yield f"{why}, so they cannot divide the optimizer state (ZeRO)"
    if strategy.zero and strategy.form.copies > 1:
        yield f"{strategy.schedule} keeps two copies of the network, so it cannot divide the optimizer state (ZeRO)"
    yield from _kernel_objections(spec, strategy, mesh, semantics)
    yield from _sharing_objections(family, spec, strategy)
    shape = strategy.pipeline, strategy.micro_batches, strategy.stages_per_device
    if objection := order_objection(strategy.schedule, *shape):
        yield objection


def _stage_objections(spec: Spec, strategy: Strategy) -> Iterator[str]:
    if strategy.stages_per_device > 1 and strategy.pipeline == 1:
        yield "several stages per device need a pipeline over at least 2 devices"
    if strategy.stages > spec.layers:
        yield f"{strategy.stages} stages need at least {strategy.stages} layers, but the network has {spec.layers}"
    if strategy.layout and sum(strategy.layout) != spec.layers:
        yield f"its stages have {sum(strategy.layout)} layers in total, but the network has {spec.layers}"


def _sharing_objections(family: Family, spec: Spec, strategy: Strategy) -> Iterator[str]:
    """Yield objections to context and expert parallelism."""
    context, expert = strategy.context, strategy.expert
    if context == expert == 1:
        return
    shared = can_be_shared(family, spec)
    if context > 1 and not shared.sequence:
        yield NO_SEQUENCE
    chunks = context * (1 + (strategy.context_method is ContextMethod.RING))
    if context > 1 and shared.sequence % chunks:
        yield f"{shared.sequence} tokens do not divide into {chunks} equal chunks"
    sharing = context * strategy.tensor
    if context > 1 and strategy.context_method is ContextMethod.ALL_TO_ALL and shared.heads % sharing:
        why = f"{shared.heads} heads of keys and values do not divide among {sharing} devices (tensor x context)"
        yield f"{why}, so use the ring method"
    if context > 1 and strategy.attention == AttentionKernel.UNFUSED:
        yield "context parallelism needs fused attention"
    if expert > 1 and not shared.experts:
        yield NO_EXPERTS
    ranks = strategy.tensor * context * strategy.data
    if ranks % expert:
        yield f"{expert} does not divide the {ranks} tensor, context and data ranks that share experts"
    if shared.experts % expert:
        yield f"{shared.experts} experts do not divide among {expert} devices"
    if expert > 1 and strategy.tensor > 1 and not strategy.sequence_parallel:
        yield "tensor and expert parallelism together need sequence parallelism"


def _kernel_objections(spec: Spec, strategy: Strategy, mesh: DeviceMesh | None, semantics: Semantics) -> Iterator[str]:
    if semantics is Semantics.DISTIR and not replace(strategy, attention=AttentionKernel.FUSED).plain:
        yield "DistIR's rules have costs only for data, tensor and pipeline parallelism"
    if strategy.zero > 1 and strategy.data * strategy.context == 1:
        yield f"ZeRO-{strategy.zero} needs several replicas, but there is only one"
    if strategy.fp8 and spec.dtype not in NARROW:
        yield f"linear layers in FP8 need a network with a 16-bit format, not {spec.dtype}"
    without = next((each for each in mesh.devices if each.peak("fp8") is None), None) if mesh and strategy.fp8 else None
    if without is not None:
        yield f"{without.name} is of kind {without.kind}, which has no FP8"


def refuse_impossible(
    family: Family, spec: Spec, strategy: Strategy, mesh: DeviceMesh | None, semantics: Semantics
) -> None:
    """Raise InputError if `why_not` has a reason."""
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
    """Raise InputError if the strategy is impossible, or its program would have more than `MAX_PARTS` layers."""
    refuse_impossible(family, spec, strategy, mesh, semantics)
    parts = spec.layers * strategy.devices // strategy.pipeline * strategy.micro_batches
    if parts > MAX_PARTS:
        most = f"more than the {MAX_PARTS:,} allowed"
        raise InputError(f"strategy {strategy}", f"has {parts:,} layers, counted per device and micro-batch, {most}")


@dataclass(frozen=True)
class Simulated(Shown):
    """A strategy's program and its trace."""

    program: Program
    trace: Trace
    ranks: Ranks
    """How the devices of the program are numbered."""
    shortage: str = ""
    """Why the strategy does not fit into the memory of the mesh. Empty if it fits."""


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
    """Simulate the strategy on the first devices of the mesh. Raises InputError if the strategy is impossible."""
    check_strategy(family, spec, strategy, mesh, semantics)
    program = build_program(family, spec, strategy, semantics).program
    trace = simulate(program, mesh, compat=semantics.compat, overlap=overlap, link_sharing=link_sharing)
    return Simulated(program, trace, strategy.ranks(semantics), shortage(worker_peaks(trace), mesh))


def simulate_places(family: Family, spec: Spec, strategy: Strategy, mesh: DeviceMesh, *, overlap: bool = True) -> Trace:
    """Simulate one rank at each position of the pipeline. Device p of the trace represents all devices at position p.

    If groups of ranks are spread over nodes in different ways, the slowest group counts. All devices of the mesh must
    be equal.

    Raises InputError if the strategy is impossible.
    """
    refuse_impossible(family, spec, strategy, mesh, Semantics.DEFAULT)
    model, ranks = program_of_one(family, spec, strategy), strategy.ranks(Semantics.DEFAULT)
    of_workers = MeshCosts(mesh, training=model.program.is_training)
    nodes = [device.node for device in mesh.devices]
    costs = RankCosts(of_workers, ranks.degrees, ranks.worker_of, nodes)
    return simulate(model.program, None, costs, overlap=overlap)


def equal_devices(count: int, flops: float, bytes_per_second: float, gigabits: float) -> DeviceMesh:
    """Return the mesh of DistIR's experiments: equal devices, with a link of `gigabits` Gb/s between each pair.

    `flops` is the peak rate in FLOP/s, and `bytes_per_second` the memory bandwidth of a device.
    """
    rates = tuple(PeakRate(dtype, flops) for dtype in ("fp32", "fp16", "bf16"))
    devices = tuple(Device(f"gpu{i}", "gpu", 0, None, rates, bytes_per_second) for i in range(count))
    return DeviceMesh("uniform", devices, same_node_link=Link(gigabits * 1.25e8))
